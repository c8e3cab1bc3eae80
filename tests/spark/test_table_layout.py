"""Where a table's properties have its files."""

import re
import uuid
from collections.abc import Callable
from posixpath import basename
from typing import Final

import pytest
from pyiceberg.types import LongType

from connector.encoding.parquet.file_options import Destination
from connector.host.refresh import Lease
from connector.iceberg.fences import fence
from connector.iceberg.fences.file_names import FileOrigin
from connector.model.properties import Properties
from connector.model.state import WriterId
from connector.spark.blocks.transaction_files import TableLayout
from encoding.store_lines import binding

WRITER: Final = WriterId("acme/orders", "orders.v1", "00000000-ffffffff")


def new_data_file(layout: TableLayout) -> str:
    return layout.new_files.new_location()


NEW_LOCATIONS: Final = [
    new_data_file,
    *(function for name, function in vars(TableLayout).items() if name.startswith("new_") and callable(function)),
]


def layout(prefix: str = "prefix", **properties: str) -> TableLayout:
    of_table = Properties({f"write.{name.replace('_', '.')}": value for name, value in properties.items()})
    destination = Destination("s3://lake/orders", of_table, prefix)
    return TableLayout(binding(LongType()), destination, Lease.until(Properties(), None))


@pytest.mark.parametrize(
    ("of_table", "directory"),
    [
        (layout(), "s3://lake/orders/data/"),
        (layout(data_path="s3://lake/elsewhere/"), "s3://lake/elsewhere/"),
        (layout(**{"object-storage_enabled": "true"}), r"s3://lake/orders/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"),
    ],
)
def test_data_files_and_blocks_are_where_the_properties_have_them(of_table: TableLayout, directory: str) -> None:
    assert re.fullmatch(f"{directory}prefix-[-0-9a-f]+\\.parquet", new_data_file(of_table))
    assert re.fullmatch(f"{directory}prefix-[-0-9a-f]+\\.jsonl", of_table.new_block_location())


@pytest.mark.parametrize("new_location", NEW_LOCATIONS, ids=lambda each: each.__name__)
def test_a_later_session_knows_each_file_that_a_killed_one_has_left(new_location: Callable[[TableLayout], str]) -> None:
    value = fence.new_value()
    left = new_location(layout(fence.file_prefix(WRITER, table := str(uuid.uuid4()), value)))
    assert FileOrigin.of(basename(left)) == FileOrigin(fence.writer_hash(WRITER), WRITER.key_range, table, value)
