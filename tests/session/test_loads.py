"""The keys of Loads on their way to the search."""

import json
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.types import StringType

from connector.encoding.lines.keys_tables import read_table
from connector.encoding.live_rows.lineage_columns import NO_ROW_ID
from connector.encoding.live_rows.source_rows import RowLineage
from connector.encoding.parquet.file_options import Destination
from connector.encoding.search.located_rows import read_located
from connector.encoding.search.row_search import SearchedFile
from connector.host import facts
from connector.host.errors import RetryableError, UserError
from connector.host.refresh import Lease
from connector.iceberg.table_view import TableView
from connector.model.binding import Binding, Column
from connector.model.properties import Properties
from connector.model.state import LocatedRowsFile, StagedTransaction
from connector.model.table_identifier import TableIdentifier
from connector.session import loads
from connector.session.loads import SearchedTable, TransactionLoads
from connector.session.progress import TransactionProgress
from connector.session.transactions import OpenTransaction
from connector.spark.blocks.transaction_files import TableLayout
from connector.spark.jobs import search_job
from connector.spark.jobs.write_job import Written
from connector.storage import file_io
from encoding import searched_tables
from encoding.searched_tables import IO
from protocol.request import Flush, Load, StartCommit, Store
from support.engines.recording_spark import RecordingSpark
from support.layouts import fixed, made_by
from support.sessions.small_disk import SIZE, small_disk


def test_a_disk_without_room_for_the_keys_is_told(tmp_path: Path) -> None:
    updates = searched_tables.SearchedTable(tmp_path, [StringType()]).updates
    keys = (Column("id", "id", 10, StringType(), required=True),)
    binding = Binding(0, "key", TableIdentifier("db", "orders"), keys, (), None, updates=updates)
    view = TableView(None, (SearchedFile("file:///table.parquet", 1),))
    local_spark: Any = SimpleNamespace(is_local=True)
    access = Lease(Properties(), None)
    layout = TableLayout(binding, Destination("file:///table", Properties(), "prefix"), access)
    with small_disk(tmp_path / "disk") as disk:
        table = SearchedTable(binding, lambda _: view)
        loads = TransactionLoads(local_spark, disk.directory / "loads", {0: table}, fixed(layout))
        loads.add(Load(0, 1, 1, (b'{"load":{"key":["%b"]}}\n' % (b"x" * 2 * SIZE),)))
        with pytest.raises(UserError, match=r"no temporary file for the keys of Loads can be made: .*No space left"):
            list(loads.answer())


def test_the_row_id_of_a_key_is_that_of_its_newest_row(tmp_path: Path) -> None:
    """A key may have several rows. One of them is in a file of an earlier update."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    files = (
        (searched.write(['["one"]', '["two"]']), RowLineage(100, 1)),
        (searched.write(['["new"]', '["two"]'], _row_id=pa.array([None, 7], pa.int64())), RowLineage(200, 2)),
        (searched.write(['["waits"]', '["one"]'], _row_id=pa.array([None, 100], pa.int64())), None),
    )
    view = TableView(None, tuple(SearchedFile(path, 1, lineage=lineage, keeps_ids=True) for path, lineage in files))
    loads = search(tmp_path, searched, view, "one", "two", "new", "none", "waits")
    keys = read_table(str(loads.row_ids[0].path))  # type: ignore[union-attr]
    assert sorted(zip(keys["_row_id"].to_pylist(), keys["key"].to_pylist(), strict=True)) == [
        (NO_ROW_ID, '["waits"]'), (7, '["two"]'), (100, '["one"]'), (200, '["new"]'),
    ]  # fmt: skip
    loads.close()
    assert not (tmp_path / "loads").exists()
    loads.close()  # another program has removed it


def test_rows_keep_their_ids_beside_a_group_of_files_whose_rows_have_none_yet(tmp_path: Path) -> None:
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    files = (
        (searched.write(['["one"]']), RowLineage(100, 1)),
        (searched.write(['["waits"]'], _row_id=pa.array([None], pa.int64())), None),
    )
    large = 1 << 40  # bytes
    view = TableView(None, tuple(SearchedFile(path, large, lineage=lineage, keeps_ids=True) for path, lineage in files))
    loads = search(tmp_path, searched, view, "one", "waits")
    keys = read_table(str(loads.row_ids[0].path))  # type: ignore[union-attr]
    assert sorted(zip(keys["_row_id"].to_pylist(), keys["key"].to_pylist(), strict=True)) == [
        (NO_ROW_ID, '["waits"]'), (100, '["one"]'),
    ]  # fmt: skip


def test_rows_without_ids_need_no_table_of_them(tmp_path: Path) -> None:
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    view = TableView(None, (SearchedFile(searched.write(['["one"]']), 1),))
    assert search(tmp_path, searched, view, "one").row_ids == {}


def test_a_key_is_answered_that_only_one_of_several_groups_of_files_has(tmp_path: Path) -> None:
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    large = 1 << 40  # bytes
    files = tuple(SearchedFile(searched.write([f'["{key}"]']), large) for key in ("one", "two"))
    loads = search(tmp_path, searched, TableView(None, files), "one")
    assert loads.found[0].answered.count == 1


def test_all_rows_of_the_keys_are_located_in_their_files(tmp_path: Path) -> None:
    """Also in a file that is searched in parts, by several groups, and also those that are not the newest."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    first = searched.write(['["one"]', '["two"]'], row_group_size=1)
    second = searched.write(['["none"]', '["two"]', '["three"]'])
    large = 1 << 40  # bytes
    files = SearchedFile(first, large, 0, 1), SearchedFile(first, large, 1), SearchedFile(second, large)
    [loaded] = search(tmp_path, searched, TableView(None, files), "one", "two", "three").found.values()
    rows = read_located(IO, loaded.located.location or "").rows.to_pylist()
    assert {(each["file_path"], each["pos"]) for each in rows} == {(first, 0), (first, 1), (second, 1), (second, 2)}
    assert loaded.answered.count == 3


def test_located_rows_name_only_files_that_have_some(tmp_path: Path) -> None:
    """A table may have 100,000 files, and the object of one row would have megabytes."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    files = [SearchedFile(searched.write([f'["{number}"]']), 1) for number in range(3)]
    loads = search(tmp_path, searched, TableView(None, (*files[:2], files[1], files[2])), "1")
    rows = read_located(IO, loads.found[0].located.location or "").rows
    assert [chunk.dictionary.to_pylist() for chunk in rows["file_path"].chunks] == [[files[1].path]]


@pytest.mark.parametrize(("key", "rows"), [("one", 1), ("none", 0)])
def test_the_snapshot_that_was_searched_is_located_too(tmp_path: Path, key: str, rows: int) -> None:
    """A commit searches only what came later."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    view = TableView(7, (SearchedFile(searched.write(['["one"]']), 1),))
    [loaded] = search(tmp_path, searched, view, key).found.values()
    assert (loaded.located.rows, loaded.located.snapshot_id) == (rows, 7)


def open_transaction(
    directory: Path,
    stage: Callable[..., StagedTransaction] = lambda *_: pytest.fail("nothing is staged"),
    store: Callable[[Store], None] = lambda _: pytest.fail("no row is stored"),
) -> OpenTransaction:
    """A transaction that may load the key "one"."""
    searched = searched_tables.SearchedTable(directory, [StringType()])
    view = TableView(None, (SearchedFile(searched.write(['["one"]']), 1),))
    write_job = SimpleNamespace(add=store, finish=Written, discard=lambda: None)
    jobs: Any = SimpleNamespace(
        start_loading=lambda _: begin(directory, searched, view), start_writing=lambda *_: write_job
    )
    return OpenTransaction(TransactionProgress(1, ["orders"]), jobs, [], stage)


def test_a_transaction_that_changes_nothing_leaves_no_directory(tmp_path: Path) -> None:
    transaction = open_transaction(tmp_path, stage=lambda *_: StagedTransaction())
    transaction.load(load("none"))
    assert not [*transaction.answer_loads(Flush())]
    assert (tmp_path / "loads").exists()
    transaction.start_commit(StartCommit())
    assert not (tmp_path / "loads").exists()


def test_located_rows_go_with_a_transaction_that_is_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose upload has not ended."""
    may_write, write, written = Event(), file_io.write_small_file, list[str]()

    def write_later(io: FileIO, location: str, content: bytes) -> None:
        may_write.wait(60)
        write(io, location, content)
        written.append(location)

    monkeypatch.setattr(file_io, "write_small_file", write_later)
    with open_transaction(tmp_path) as transaction:
        transaction.load(load("one"))
        assert [*transaction.answer_loads(Flush())]
        Timer(0.1, may_write.set).start()
    assert len(written) == 1
    assert [*(tmp_path / "table").rglob("*.parquet")] == []
    assert not (tmp_path / "loads").exists()


def test_so_do_the_files_of_loads_that_are_not_answered_to_their_end(tmp_path: Path) -> None:
    with open_transaction(tmp_path) as transaction:
        transaction.load(load("one"))
        answers = transaction.answer_loads(Flush())
        assert next(answers)
        assert (tmp_path / "loads").exists()
    assert not (tmp_path / "loads").exists()


def test_loads_are_timed_from_the_first_one_and_their_search_from_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between, the runtime reads what it sends."""
    told: list[facts.Fact] = []
    monkeypatch.setattr(facts, "report", told.append)
    transaction = open_transaction(tmp_path)
    transaction.load(load("none"))
    pause = 0.05
    time.sleep(pause)
    transaction.load(load("one"))
    answers = transaction.answer_loads(Flush())
    assert next(answers)
    time.sleep(pause)
    assert not [*answers]
    [loaded] = [fact for fact in told if isinstance(fact, facts.LoadedTransaction)]
    assert loaded.search_seconds >= pause
    assert loaded.seconds >= loaded.search_seconds + pause


def test_the_runtime_does_not_wait_for_located_rows_before_it_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They must be durable when the transaction is staged."""
    may_write, written = Event(), list[str]()

    def write(_: FileIO, location: str, __: bytes) -> None:
        may_write.wait()
        written.append(location)

    monkeypatch.setattr(file_io, "write_small_file", write)
    transaction = open_transaction(tmp_path, stage=lambda *_: StagedTransaction())
    transaction.load(load("one"))
    assert [*transaction.answer_loads(Flush())]
    assert not written
    Timer(0.1, may_write.set).start()
    transaction.start_commit(StartCommit())
    assert len(written) == 1


def test_located_rows_that_cannot_be_written_fail_the_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(*_: object) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(file_io, "write_small_file", fail)
    transaction = open_transaction(tmp_path)
    transaction.load(load("one"))
    assert [*transaction.answer_loads(Flush())]
    with pytest.raises(RetryableError, match=r"-located.parquet: the disk is full"):
        transaction.start_commit(StartCommit())


def test_located_rows_that_cannot_be_written_are_noticed_while_rows_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction may be open for hours."""
    stored, fails = list[Store](), Event()

    def fail(*_: object) -> None:
        fails.wait()
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(file_io, "write_small_file", fail)
    transaction = open_transaction(tmp_path, store=stored.append)
    transaction.load(load("one"))
    assert [*transaction.answer_loads(Flush())]
    rows = Store(0, 1, 1, (b"a store\n",))
    transaction.store(rows)
    assert stored == [rows]
    fails.set()

    def go_on() -> None:
        for _ in range(500):
            time.sleep(0.01)
            transaction.store(rows)

    with pytest.raises(RetryableError, match=r"-located.parquet: the disk is full"):
        go_on()


def search(directory: Path, searched: searched_tables.SearchedTable, view: TableView, *keys: str) -> TransactionLoads:
    """Loads of these keys, when they are answered."""
    loads = begin(directory, searched, view)
    loads.add(load(*keys))
    list(loads.answer())
    return loads


def load(*keys: str) -> Load:
    return Load(0, len(keys), 1, tuple(b'{"load":{"key":["%b"]}}\n' % key.encode() for key in keys))


def begin(directory: Path, searched: searched_tables.SearchedTable, view: TableView) -> TransactionLoads:
    return begin_all(directory, RecordingSpark(), searched_table(0, searched, view))


def begin_all(directory: Path, spark: Any, *tables: SearchedTable) -> TransactionLoads:
    layouts = fixed(*[layout_of(directory, each) for each in tables])
    return TransactionLoads(spark, directory / "loads", dict(enumerate(tables)), layouts)


def searched_table(index: int, searched: searched_tables.SearchedTable, view: TableView) -> SearchedTable:
    columns = (Column("id", "id", 10, StringType(), required=True),)
    binding = Binding(index, "key", TableIdentifier("db", "orders"), columns, (), None, updates=searched.updates)
    return SearchedTable(binding, lambda _: view)


def layout_of(directory: Path, table: SearchedTable) -> TableLayout:
    destination = Destination(f"file://{directory}/table", Properties(), "prefix")
    return TableLayout(table.binding, destination, Lease(Properties(), None))


def test_located_rows_are_beside_the_data_files(tmp_path: Path) -> None:
    """Table buckets accept only Iceberg's own files beside the metadata."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    layout = layout_of(tmp_path, searched_table(0, searched, TableView(None, ())))
    assert layout.new_located_location().startswith(f"file://{tmp_path}/table/data/")


def test_no_secret_is_among_the_things_that_spark_writes_to_a_file(tmp_path: Path) -> None:
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    view = TableView(None, (SearchedFile(searched.write(['["one"]', '["two"]']), 1),))
    keys = (Column("id", "id", 10, StringType(), required=True),)
    binding = Binding(0, "key", TableIdentifier("db", "orders"), keys, (), None, updates=searched.updates)
    access = Lease(Properties({"s3.secret-access-key": "hunter2"}), None)
    layout = TableLayout(binding, Destination(f"file://{tmp_path}/table", Properties(), "prefix"), access)
    spark: Any = RecordingSpark()
    table = SearchedTable(binding, lambda _: view)
    loads = TransactionLoads(spark, tmp_path / "loads", {0: table}, fixed(layout))
    loads.add(Load(0, 1, 1, (b'{"load":{"key":["two"]}}\n',)))
    [line] = b"".join(loads.answer()).splitlines()
    assert b"two" in line
    assert spark.jobs
    assert b"hunter2" not in pickle.dumps(spark.jobs)


def test_each_job_of_a_long_search_gets_credentials_that_are_valid_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_job, "LARGEST_JOB", 2 * search_job.GROUP_SIZE)
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    paths = [searched.write([f'["{number}"]']) for number in range(5)]
    sizes = [size * search_job.GROUP_SIZE for size in (2, 2, 1, 1, 2)]
    view = TableView(None, tuple(map(SearchedFile, paths, sizes)))
    given: list[str] = []

    class Spark(RecordingSpark):
        def map_shares(self, call: Any, things: Any) -> Any:
            given.append(call.args[0][0]["renewed"])
            return super().map_shares(call, things)

    spark: Any = Spark()
    table = searched_table(0, searched, view)

    def make_layout() -> TableLayout:
        return replace(layout_of(tmp_path, table), access=Lease(Properties({"renewed": str(len(spark.jobs))}), None))

    asked = TransactionLoads(spark, tmp_path / "loads", {0: table}, made_by(make_layout))
    asked.add(load(*map(str, range(5))))
    assert len(b"".join(asked.answer()).splitlines()) == 5
    assert given == ["0", "1", "2", "3"]


def test_what_fails_after_a_search_has_failed_hides_no_error(tmp_path: Path) -> None:
    """The keys cannot be removed without a new layout, whose credentials may be the catalog's to give."""
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    view = TableView(None, (SearchedFile(searched.write(['["one"]']), 1),))
    table = searched_table(0, searched, view)

    class Spark(RecordingSpark):
        has_failed = False

        def map_shares(self, *_: Any) -> Any:
            self.has_failed = True
            raise RetryableError("a task was lost")

    spark: Any = Spark()

    def make_layout() -> TableLayout:
        if spark.has_failed:
            raise RetryableError("the catalog does not answer")
        return layout_of(tmp_path, table)

    asked = TransactionLoads(spark, tmp_path / "loads", {0: table}, made_by(make_layout))
    asked.add(load("one"))
    with pytest.raises(RetryableError, match="a task was lost"):
        list(asked.answer())


@pytest.mark.parametrize(
    ("at_once", "jobs"),
    [(6, [[0, 1, 2, 3]]), (4, [[0, 1], [2, 3]]), (3, [[0], [1, 2], [3]]), (1, [[0], [1], [2], [3]])],
)
def test_tables_are_searched_together_unless_they_have_many_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, jobs: list[list[int]]
) -> None:
    """A Spark job of its own takes a tenth of a second for each table, and a task may have hundreds of tables."""
    monkeypatch.setattr(loads, "KEYS_AT_ONCE", at_once)
    wanted = [["a", "none"], ["b", "c"], ["d"], ["e"]]
    spark, tables = RecordingSpark(), []
    for index, keys in enumerate(wanted):
        directory = tmp_path / str(index)
        directory.mkdir()
        searched = searched_tables.SearchedTable(directory, [StringType()])
        path = searched.write([f'["{key}"]' for key in keys if key != "none"])
        tables.append(searched_table(index, searched, TableView(7, (SearchedFile(path, 1),))))
    asked = begin_all(tmp_path, spark, *tables)
    for index, keys in reversed([*enumerate(wanted)]):
        lines = (b'{"load":{"binding":%d,"key":["%b"]}}\n' % (index, key.encode()) for key in keys)
        asked.add(Load(index, len(keys), 1, tuple(lines)))
    answers = [json.loads(line)["loaded"] for line in b"".join(asked.answer()).splitlines()]
    found = [(answer["binding"], answer["doc"]["0"]) for answer in answers]
    assert found == [(0, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e")]
    assert [[group.binding.index for group in groups] for groups in spark.jobs] == jobs
    for index, expected in enumerate([1, 2, 1, 1]):
        of_table = asked.found[index]
        assert read_located(IO, of_table.located.location or "").rows.num_rows == expected
        assert of_table.located.rows == of_table.answered.count == expected
    asked.close()
    assert not (tmp_path / "loads").exists()


def test_the_keys_of_all_tables_together_take_limited_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "GATHERED", 20_000)
    monkeypatch.setattr(loads, "GATHERED_OF_TABLE", 5_000)
    tables, keys = [], [f"key {number}" for number in range(5)]
    for index in range(4):
        directory = tmp_path / str(index)
        directory.mkdir()
        searched = searched_tables.SearchedTable(directory, [StringType()])
        path = searched.write([f'["{key}"]' for key in keys])
        tables.append(searched_table(index, searched, TableView(7, (SearchedFile(path, 1),))))
    asked = begin_all(tmp_path, RecordingSpark(), *tables)
    for key in keys:
        lines = (b'{"load":{"binding":%d,"key":["%b"]}}\n' % (index, key.encode()) for index in range(4))
        asked.add(Load(0, len(tables), 1, tuple(lines)))
        assert sum(gathered.size for gathered in asked._keys.values()) <= 20_000
    assert len([*(tmp_path / "loads").iterdir()]) > 1, "several tables have keys on the disk"
    answers = [json.loads(line)["loaded"] for line in b"".join(asked.answer()).splitlines()]
    assert sorted((answer["binding"], answer["doc"]["0"]) for answer in answers) == [
        (index, key) for index in range(4) for key in keys
    ]
    asked.close()
    assert not (tmp_path / "loads").exists()


def test_a_table_without_files_is_not_searched(tmp_path: Path) -> None:
    searched = searched_tables.SearchedTable(tmp_path, [StringType()])
    spark = RecordingSpark()
    asked = begin_all(tmp_path, spark, searched_table(0, searched, TableView(7, ())))
    asked.add(load("one"))
    assert not [*asked.answer()]
    assert (spark.jobs, asked.found[0].located) == ([], LocatedRowsFile(None, 0, 7))
