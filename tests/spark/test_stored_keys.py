"""Tables of keys in tasks: what a process remembers of them."""

import weakref
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from connector.encoding.lines.keys_tables import keys_of_texts
from connector.encoding.live_rows.lineage_columns import ROW_ID_FIELD
from connector.encoding.parquet.file_options import Destination
from connector.host.refresh import Lease
from connector.model.binding import Binding, Column, KeyPart, Updates
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.spark.blocks.stored_keys import GatheredKeys, open_keys, open_row_ids, store_keys
from connector.spark.blocks.transaction_files import LocalFile, StoredObject, TableLayout

UPDATES = Updates((KeyPart(10, "/id"),), document_id=99)
LOCAL = Properties({})
ID = pa.field("id", pa.string(), metadata={"PARQUET:field_id": "10"})


def layout_of(path: Path, *keys: str) -> TableLayout:
    """The layout of a table whose rows of these keys have the ids 0, 1, …"""
    columns = (Column("id", "id", 10, StringType(), required=True),)
    binding = Binding(0, "key", TableIdentifier("db", "orders"), columns, (), None, updates=UPDATES)
    source = LocalFile(path)
    layout = TableLayout(
        binding, Destination("file:///table", Properties(), "prefix"), Lease(LOCAL, None), row_ids=source
    )
    table = keys_of_texts(pa.array([f'["{key}"]' for key in keys]), UPDATES.parts, [StringType()])
    with_ids = table.append_column(ROW_ID_FIELD, pa.array(range(len(keys)), pa.int64()))
    store_keys(source, with_ids.schema, [with_ids], layout)
    return layout


def ids_of(layout: TableLayout, *keys: str) -> list[int | None]:
    rows = pa.record_batch([pa.array(keys)], schema=pa.schema([ID]))
    found: list[int | None] = open_row_ids(layout).add_to(rows)["_row_id"].to_pylist()
    return found


@pytest.mark.parametrize("keys", [3, 40])
@pytest.mark.parametrize("is_local", [True, False])
def test_many_keys_wait_on_the_disk_until_they_are_stored(tmp_path: Path, keys: int, *, is_local: bool) -> None:
    texts = [f'["{number}"]' for number in range(keys)]
    gathered = GatheredKeys(tmp_path / "gathered")
    for first in range(0, keys, 3):
        gathered.add(keys_of_texts(pa.array(texts[first : first + 3]), UPDATES.parts, [StringType()]))
        if first % 2 and first < 30:
            assert gathered.size
            gathered.move_to_disk()
            assert not gathered.size
    assert (tmp_path / "gathered").exists() == (keys > 3)
    source = LocalFile(tmp_path / "keys") if is_local else StoredObject(f"file://{tmp_path}/keys")
    table = gathered.store(source, layout_of(tmp_path / "ids"))
    read = open_keys(source, LOCAL)
    (tmp_path / "keys").unlink()
    assert gathered.count == keys
    assert table["key"].to_pylist() == read["key"].to_pylist() == texts
    assert {path.name for path in tmp_path.iterdir()} == {"ids"}


def test_the_blocks_of_two_bindings_read_the_row_ids_of_each_once(tmp_path: Path) -> None:
    """A write job takes their blocks in turn."""
    first = layout_of(tmp_path / "first", "one", "two")
    second = layout_of(tmp_path / "second", "two")
    assert (ids_of(first, "two", "new"), ids_of(second, "two", "one")) == ([1, None], [0, None])
    for path in tmp_path.iterdir():
        path.unlink()
    assert (ids_of(first, "one", "two"), ids_of(second, "one", "two")) == ([0, 1], [None, 0])


def test_row_ids_larger_than_the_memory_for_them_are_not_kept(tmp_path: Path) -> None:
    """A worker lives for days, and has other work to do."""
    keys = [letter * (2 << 20) for letter in "abcdefghi"]  # twice: as values and as texts
    row_ids = open_row_ids(layout_of(tmp_path / "keys", *keys))
    is_kept = weakref.ref(row_ids)
    assert is_kept()
    del row_ids
    assert not is_kept()
