"""Where a table's properties have its files."""

import re

import pytest
from pyiceberg.types import LongType

from connector.host.refresh import Lease
from connector.model.properties import Properties
from connector.spark.table_files import TableLayout
from encoding.store_lines import binding


def layout(**properties: str) -> TableLayout:
    of_table = Properties({f"write.{name.replace('_', '.')}": value for name, value in properties.items()})
    return TableLayout(binding(LongType()), "s3://lake/orders", of_table, "prefix", Lease.until(Properties(), None))


@pytest.mark.parametrize(
    ("of_table", "directory"),
    [
        (layout(), "s3://lake/orders/data/"),
        (layout(data_path="s3://lake/elsewhere/"), "s3://lake/elsewhere/"),
        (layout(**{"object-storage_enabled": "true"}), r"s3://lake/orders/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"),
    ],
)
def test_data_files_and_blocks_are_where_the_properties_have_them(of_table: TableLayout, directory: str) -> None:
    assert re.fullmatch(f"{directory}prefix-[-0-9a-f]+\\.parquet", of_table.new_location())
    assert re.fullmatch(f"{directory}prefix-[-0-9a-f]+\\.jsonl", of_table.new_block_location())
