"""The lines of `loaded`, as a search writes them."""

import gc
import io
import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.types import LongType

from connector.encoding.lines.keys_tables import write_table
from connector.encoding.parquet.file_columns import FileColumns
from connector.encoding.search.row_search import SearchedFile
from connector.encoding.search.rows_of_keys import RowsOfKeys
from connector.encoding.search.searched_keys import SearchedKeys
from connector.host.errors import LostColumnError, RetryableError
from connector.model.binding import Binding, Column, Updates
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.spark.blocks.transaction_files import LocalFile, StoredObject, TemporaryFile
from connector.spark.jobs import search_job
from connector.spark.jobs.search_job import SearchGroup, fetch_rows, search_groups
from encoding.searched_tables import IO, SearchedTable
from support.plans import meeting
from support.sessions.small_disk import SIZE, small_disk
from support.snapshots import check_text

NO_PLACE = LocalFile(Path("/dev/null"))


def group_of(
    table: SearchedTable,
    path: str,
    keys: list[str],
    documents: Path | StoredObject,
    rows: TemporaryFile = NO_PLACE,
    index: int = 3,
) -> SearchGroup:
    source = LocalFile(table.directory / "keys.arrow")
    wanted = table.keys(keys)
    write_table(str(source.path), wanted.schema, [wanted])
    file = SearchedFile(path, Path(path[7:]).stat().st_size)
    columns = zip(table.key_names, table.updates.parts, strict=True)
    key = tuple(Column(name, name, part.column_id, LongType(), required=True) for name, part in columns)
    binding = Binding(index, "key", TableIdentifier("db", "orders"), key, (), None, updates=table.updates)
    place = documents if isinstance(documents, StoredObject) else LocalFile(documents)
    return SearchGroup(binding, source, ((0, file),), place, rows)


def run(
    table: SearchedTable, path: str, keys: list[str], documents: Path | StoredObject, rows: TemporaryFile = NO_PLACE
) -> object:
    [found] = search_groups({3: Properties({})}, [group_of(table, path, keys, documents, rows)])
    return found


def test_each_document_is_one_line_also_if_another_program_wrote_it_on_several(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"], flow_document=pa.array(['{\n  "0": 1,\n  "a": "\\n"\n}\n', '{"0":2}']))
    found = run(table, path, ["[1]", "[2]"], tmp_path / "loaded")
    assert isinstance(found, RowsOfKeys)
    lines = (tmp_path / "loaded").read_bytes().splitlines(keepends=True)
    assert [json.loads(line) for line in lines] == [
        {"loaded": {"binding": 3, "doc": {"0": 1, "a": "\n"}}},
        {"loaded": {"binding": 3, "doc": {"0": 2}}},
    ]


@pytest.mark.parametrize("is_local", [True, False])
def test_many_rows_do_not_go_through_the_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool
) -> None:
    monkeypatch.setattr(search_job, "MOST_RETURNED", 2)
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]", "[3]"])
    place = LocalFile(tmp_path / "rows") if is_local else StoredObject(f"file://{tmp_path}/rows")
    few = run(table, path, ["[1]", "[3]"], tmp_path / "few", place)
    assert isinstance(few, RowsOfKeys)
    assert not (tmp_path / "rows").exists()
    many = run(table, path, ["[1]", "[3]", "[2]"], tmp_path / "many", place)
    assert many == place
    rows, [of_few] = fetch_rows(place, IO), fetch_rows(few, IO).slices()
    assert (rows.keys.tolist(), rows.positions.tolist(), rows.row_ids) == ([0, 2, 1], [0, 1, 2], None)
    assert (of_few.keys.tolist(), of_few.positions.tolist()) == ([0, 1], [0, 2])
    assert not (tmp_path / "rows").exists()


def test_a_task_overwrites_what_a_lost_one_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster, Spark gives the group of a lost task to another."""
    monkeypatch.setattr(search_job, "MOST_RETURNED", 0)
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]", "[2]"])
    places = [StoredObject(f"file://{tmp_path}/{name}") for name in ("loaded", "rows")]
    run(table, path, ["[1]", "[2]"], *places)
    found = run(table, path, ["[2]"], *places)
    assert found == places[1]
    assert fetch_rows(places[1], IO).positions.tolist() == [1]
    assert len([*search_job.read_lines(places[0], IO)]) == 1


def test_results_that_cannot_be_deleted_are_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They have served their purpose."""
    (tmp_path / "loaded").mkdir()
    (tmp_path / "loaded" / "file").touch()  # a directory that is not empty cannot be deleted
    StoredObject(f"file://{tmp_path}/loaded").remove(IO, search_job.RESULTS)
    assert "the results of a search stay in the object store until a later session" in caplog.text


def test_the_index_of_a_tables_keys_is_dropped_with_its_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million keys take 20 MB, a task may search many tables, and its worker serves the session's next jobs."""
    made: list[weakref.ref[SearchedKeys]] = []

    def make(table: pa.Table, updates: Updates, names: Sequence[str]) -> SearchedKeys:
        assert not any(index() for index in made), "the indexes of earlier tables are gone"
        keys = SearchedKeys(table, updates, names)
        made.append(weakref.ref(keys))
        return keys

    monkeypatch.setattr(search_job, "SearchedKeys", make)
    monkeypatch.setattr(search_job, "SEARCHED_AT_ONCE", 1)
    groups = []
    for index in range(3):
        directory = tmp_path / str(index)
        directory.mkdir()
        table = SearchedTable(directory, [LongType()])
        group = group_of(table, table.write(["[1]", "[2]"]), ["[2]"], directory / "loaded", index=index)
        groups += [group, replace(group, documents=LocalFile(directory / "again"))]
    gc.disable()  # as in a worker
    try:
        found = [*search_groups(dict.fromkeys(range(3), Properties({})), groups)]
    finally:
        gc.enable()
    assert [type(of_group) for of_group in found] == [RowsOfKeys] * len(groups)
    assert [index() for index in made] == [None] * 3


def test_small_files_are_searched_at_the_same_time_also_of_several_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them waits for the store."""
    together = meeting(4)

    class Store(PyArrowFileIO):
        def new_input(self, location: str) -> PyArrowFile:
            together.wait()
            return super().new_input(location)

    monkeypatch.setattr(search_job, "open_file_io", lambda _: Store())
    groups = []
    for index in range(2):
        directory = tmp_path / str(index)
        directory.mkdir()
        table = SearchedTable(directory, [LongType()])
        paths = [table.write([f"[{number}]"]) for number in range(3)]
        group = group_of(table, paths[0], ["[0]", "[2]"], directory / "loaded", index=index)
        files = tuple((place, SearchedFile(paths[place], 1)) for place in (2, 0))
        groups.append(replace(group, files=files))
    found = [*search_groups(dict.fromkeys(range(2), Properties({})), groups)]
    for index, rows in enumerate(found):
        assert isinstance(rows, RowsOfKeys)
        assert rows.files.tolist() == [2, 0]
        lines = (tmp_path / str(index) / "loaded").read_text().splitlines()
        assert [json.loads(line)["loaded"]["doc"]["0"] for line in lines] == [2, 0]


@pytest.mark.parametrize("at_once", [1, search_job.SEARCHED_AT_ONCE])
def test_what_is_found_is_written_before_more_documents_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Those of many small files, too, may be larger than the memory."""
    loaded, read = tmp_path / "loaded", FileColumns.read_texts
    before = list[int]()

    def watch(self: FileColumns, *arguments: Any) -> Any:
        before.append(loaded.stat().st_size if loaded.exists() else 0)
        return read(self, *arguments)

    monkeypatch.setattr(FileColumns, "read_texts", watch)
    monkeypatch.setattr(search_job, "SEARCHED_AT_ONCE", at_once)
    table, keys = SearchedTable(tmp_path, [LongType()]), ["[1]", "[2]"]
    documents = pa.array([json.dumps({"0": number, "text": "x" * io.DEFAULT_BUFFER_SIZE}) for number in (1, 2)])
    paths = [table.write(keys, row_group_size=1, flow_document=documents) for _ in range(3)]
    files = tuple((place, SearchedFile(path, 1)) for place, path in enumerate(paths))
    [rows] = search_groups({3: Properties({})}, [replace(group_of(table, paths[0], keys, loaded), files=files)])
    assert isinstance(rows, RowsOfKeys)
    assert rows.files.tolist() == [0, 0, 1, 1, 2, 2]
    line = loaded.stat().st_size // 6
    assert before == [line * number for number in range(6)]


def test_a_key_column_that_comes_again_under_its_name_is_an_error(tmp_path: Path) -> None:
    """The rows of before have no values in it. They would not be found, and their keys would get second rows."""
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]"], k0=None, code=pa.array([1]))
    group = group_of(table, path, ["[1]"], tmp_path / "loaded")

    def search(name: str) -> object:
        """The key is in a column of this name, which the file does not have."""
        [key] = table.updates.parts
        binding = replace(group.binding, keys=(Column("id", name, key.column_id, LongType(), required=False),))
        [found] = search_groups({3: Properties({})}, [replace(group, binding=binding)])
        return found

    with pytest.raises(LostColumnError) as raised:
        search("code")
    check_text("update_errors", "a key column was dropped and added again", str(raised.value), {path: "<file>"})
    assert isinstance(search("added"), RowsOfKeys), "a column that was not there before is no reason"


def test_documents_that_do_not_fit_on_the_disk_are_an_error(tmp_path: Path) -> None:
    table = SearchedTable(tmp_path, [LongType()])
    path = table.write(["[1]"], flow_document=pa.array([json.dumps({"0": 1, "text": "x" * 2 * SIZE})]))
    with small_disk(tmp_path / "disk") as disk, pytest.raises(RetryableError) as raised:
        run(table, path, ["[1]"], disk.directory / "loaded")
    check_text("machine_errors", "a disk that takes no documents", str(raised.value), {str(tmp_path): "…"})
