"""PyIceberg deletes and updates rows of updated tables: it rewrites their files without the deleted rows."""

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec

from support.bindings import PATH
from support.rows.updated_rows import BY_PART, land, make_table, row, values_of


@pytest.mark.parametrize("spec", [None, BY_PART])
def test_both_update_and_delete_the_rows_of_each_other(catalog: Catalog, spec: PartitionSpec | None) -> None:
    make_table(catalog, spec)
    land(catalog, dict.fromkeys(range(4), "a"))
    land(catalog, dict.fromkeys(range(4, 8), "b"))
    land(catalog, {1: "b", 5: "b"}, removed=[0])
    catalog.load_table(PATH).delete("id = 2")
    assert values_of(catalog) == {1: "b", 3: "a", 4: "b", 5: "b", 6: "b", 7: "b"}
    land(catalog, {1: "c", 3: "c"})
    table = catalog.load_table(PATH)
    updated = pa.Table.from_pylist([row(3, "pyiceberg")]).select(table.schema().column_names)
    assert table.upsert(updated.cast(table.schema().as_arrow()), join_cols=["id"]).rows_updated == 1
    assert values_of(catalog) == {1: "c", 3: "pyiceberg", 4: "b", 5: "b", 6: "b", 7: "b"}
    land(catalog, {3: "d"}, removed=[4])
    assert values_of(catalog) == {1: "c", 3: "d", 5: "b", 6: "b", 7: "b"}
