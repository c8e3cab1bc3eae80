"""Which located rows a transaction replaces, if it has not stored all loaded keys."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from connector.encoding.lines.key_digest import hash_keys
from connector.encoding.search.located_rows import read_located
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.values.arrays import Words
from connector.host.errors import RetryableError
from connector.host.logs import FIELDS
from connector.iceberg.table_view import TableView
from connector.model.state import DataFile, LocatedRowsFile
from connector.session import replaced_rows
from connector.session.loads import TransactionLoads
from connector.spark.jobs.write_job import Written
from encoding import searched_tables
from encoding.searched_tables import IO
from protocol.protocol_error import ProtocolError
from protocol.request import Load
from session.test_loads import begin
from support.snapshots import check_text


def answer(directory: Path, keys: Sequence[str], *files: Sequence[str], is_exact: bool = True) -> TransactionLoads:
    """Loads of these keys, JSON arrays, when they are answered. `files` have the keys of rows."""
    searched = searched_tables.SearchedTable(directory, [StringType()], is_exact)
    view = TableView(7, tuple(SearchedFile(searched.write(each), 1) for each in files))
    loads = begin(directory, searched, view)
    loads.add(Load(0, len(keys), 1, tuple(f'{{"load":{{"key":{key}}}}}\n'.encode() for key in keys)))
    list(loads.answer())
    return loads


def hashes(*texts: str) -> list[Words]:
    """Of keys that have these values in their column. Several tasks tell them."""
    return [hash_keys([pa.array([text])]) for text in texts]


def find_places(loads: TransactionLoads) -> set[tuple[str, int, str]]:
    """The rows that the commit will delete: the names of their files, their positions, and their keys."""
    located = read_located(IO, loads.found[0].located.location or "")
    assert located.rows.num_rows == loads.found[0].located.rows
    rows = zip(located.rows.to_pylist(), located.read_texts().to_pylist(), strict=True)
    return {(Path(row["file_path"]).name, row["pos"], key) for row, key in rows}


def test_the_rows_of_a_key_that_is_not_stored_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All rows of a key: it may have several, also in several files."""
    monkeypatch.setattr(replaced_rows, "_AT_ONCE", 2)
    first, second = ['["one"]', '["two"]', '["two"]', '["three"]'], ['["four"]', '["two"]', '["one"]', '["none"]']
    loads = answer(tmp_path, ['["two"]', '["one"]', '["four"]', '["three"]', '["absent"]'], first, second)
    before = loads.found[0].located
    with caplog.at_level(logging.INFO):
        loads.stage(Written(existing_keys={0: hashes("one", "three")}))
    assert find_places(loads) == {
        ("0.parquet", 0, '["one"]'), ("0.parquet", 3, '["three"]'), ("1.parquet", 2, '["one"]'),
    }  # fmt: skip
    assert loads.found[0].located.snapshot_id == 7
    assert not Path((before.location or "")[7:]).exists(), "nothing names the object with all rows"
    [record] = caplog.records
    assert getattr(record, FIELDS) == {"event": "unstored", "table": "db.orders", "keys": 2}


def test_no_row_is_replaced_if_no_key_is_stored(tmp_path: Path) -> None:
    loads = answer(tmp_path, ['["one"]'], ['["one"]'])
    loads.stage(Written())
    assert loads.found[0].located == LocatedRowsFile(None, 0, 7)


def test_if_all_keys_are_stored_nothing_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loads = answer(tmp_path, ['["one"]', '["two"]', '["absent"]'], ['["one"]', '["two"]'])
    before = loads.found[0]
    with caplog.at_level(logging.INFO):
        loads.stage(Written(existing_keys={0: hashes("two", "one")}))
    assert loads.found[0] is before
    assert not caplog.records


@pytest.mark.parametrize("stored", [["one", "new"], ["new"], ["one", "one"]])
def test_nothing_is_written_for_a_transaction_that_will_fail(tmp_path: Path, stored: list[str]) -> None:
    loads = answer(tmp_path, ['["one"]', '["two"]'], ['["one"]', '["two"]'])
    before = loads.found[0].located
    loads.stage(Written(existing_keys={0: hashes(*stored)}))
    assert loads.found[0].located == before


def test_a_key_that_is_loaded_twice_is_named_as_the_mistake(tmp_path: Path) -> None:
    loads = answer(tmp_path, ['["one"]', '["one"]'], ['["one"]', '["two"]'])
    with pytest.raises(ProtocolError) as raised:
        loads.stage(Written(existing_keys={0: hashes("one")}))
    check_text("update_errors", "loaded twice", str(raised.value))


def test_a_key_that_was_loaded_may_not_be_stored_as_a_new_one(tmp_path: Path) -> None:
    """It would have two rows. Another key with the same value in its column may be new."""
    loads = answer(tmp_path, ["[7]", '["one"]'], ["[7]", '["one"]'], is_exact=False)
    new = searched_tables.SearchedTable(tmp_path, [StringType()], is_exact=False, numbers=iter(range(9, 99)))

    def written(*keys: str) -> Written:
        path = new.write(keys)
        file = DataFile(path, len(keys), Path(path[7:]).stat().st_size, (4,), ())
        return Written({0: (file,)}, existing_keys={0: hashes("one")})

    with pytest.raises(ProtocolError) as raised:
        loads.stage(written('["one"]', "[7]"))
    check_text("update_errors", "loaded and stored without `exists`", str(raised.value))
    loads.stage(written('["one"]', '["7"]'))
    assert find_places(loads) == {("0.parquet", 1, '["one"]')}


@pytest.mark.parametrize(("stored", "is_known"), [(["7"], False), (["7", "7"], True), ([], True), (["one"], True)])
def test_keys_with_the_same_value_in_the_key_column_are_stored_together_or_not(
    tmp_path: Path, stored: list[str], is_known: bool
) -> None:
    keys = ["[7]", '["7"]', '["one"]']
    loads = answer(tmp_path, keys, keys, is_exact=False)
    written = Written(existing_keys={0: hashes(*stored)})
    if is_known:
        loads.stage(written)
        assert loads.found[0].located.rows == len(stored)
    else:
        with pytest.raises(RetryableError) as raised:
            loads.stage(written)
        check_text("update_errors", "of keys with the same values, not all were stored", str(raised.value))
