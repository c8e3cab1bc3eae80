"""Tables with partitions or a sort order: few files, each of one partition, whatever tasks and transfers there are."""

import errno
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

from connector.encoding.parquet import data_files
from connector.encoding.parquet.file_options import Destination
from connector.encoding.runs import sorted_runs
from connector.encoding.runs.run_merging import MergeRange
from connector.host.errors import RetryableError
from connector.host.refresh import Lease
from connector.host.signals import Stopped
from connector.host.threads import StartedCalls, call_within
from connector.model.binding import PLAIN, Arrangement, Binding, PartitionField, SortField
from connector.model.invalid_values import OnInvalid
from connector.model.properties import Properties
from connector.model.state import ColumnStatistics, DataFile
from connector.model.table_identifier import TableIdentifier
from connector.spark.blocks.block_transfer import BlockTransfer, OnThisMachine, ThroughTheStore
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.spool import Spool
from connector.spark.blocks.transaction_files import Layouts, LocalFile, StoredObject, TableLayout
from connector.spark.jobs import merge_job
from connector.spark.jobs.merge_job import MergeJob, MergeUnit
from connector.spark.jobs.write_job import WriteJob
from connector.spark.jvm.jvm_ends import WORKER_ENDED
from connector.spark.tasks import arranged_files
from connector.storage import file_io
from encoding.store_lines import REJECTED, binding, plain
from protocol.protocol_error import ProtocolError
from protocol.request import Store
from support.layouts import MadeLayouts
from support.plans import meeting

pytestmark = pytest.mark.long

ORDERS = replace(binding(LongType(), StringType(), index=0), on_invalid=OnInvalid.QUARANTINE)
BY_VALUE = (PartitionField(2, "truncate[10]"),)
SORTED = (SortField(3, "identity", is_descending=True, nulls_first=False), SortField(1, "identity", False, True))


@dataclass
class Spark:
    """Spark's jobs, with threads for two tasks."""

    threads: ThreadPoolExecutor
    cores: int
    mapped: list[Any]

    def run(self, task: Callable[[Any], Any]) -> "Future[list[Any]]":
        tasks = [self.threads.submit(task, [number]) for number in range(self.cores)]
        return self.threads.submit(lambda: [each.result() for each in tasks])

    def map(self, call: Callable[[Any], Any], things: Any) -> "Future[list[Any]]":
        self.mapped += things
        return self.threads.submit(lambda: [call(thing) for thing in things])


@dataclass
class Table:
    """A transaction that writes to an arranged table, and the table of its rejected rows."""

    directory: Path
    is_local: bool = True
    arrangement: Arrangement = field(default_factory=lambda: Arrangement(1, BY_VALUE))
    rejected: Arrangement = PLAIN
    properties: dict[str, str] = field(default_factory=dict)
    run_limit: int = 1 << 20
    cores: int = 2
    mapped: list[MergeUnit] = field(default_factory=list)
    binding: Binding = ORDERS

    def write(self, *rows: tuple[Any, ...], block_rows: int = 5) -> dict[int, tuple[DataFile, ...]]:
        with self.writing() as job:
            for first in range(0, len(rows), block_rows):
                lines = [plain(*row, binding=0) for row in rows[first : first + block_rows]]
                job.add(Store(0, first + 1, len(lines), tuple(lines)))
            return files_of(job)

    def write_lines(self, *lines: bytes) -> None:
        with self.writing() as job:
            for number, line in enumerate(lines, start=1):
                job.add(Store(0, number, 1, (line,)))
            job.finish()

    @contextmanager
    def writing(self, *others: Binding) -> Iterator[WriteJob]:
        """A job for the table, and for those of the other bindings, which are arranged alike."""
        with (
            closing(ClaimServer(str(self.directory / "claims"))) as claims,
            ThreadPoolExecutor(4) as threads,
        ):
            spark = Spark(threads, self.cores, self.mapped)
            spool = Spool(self.directory / "spool", block_size=1)
            alike = [partial(self._layout, other, self.arrangement) for other in others]
            layouts = MadeLayouts([self.layout, *alike, self._rejected], bindings=1 + len(others))
            job = WriteJob(spark, claims, spool, self._transfer(layouts), layouts)
            try:
                yield job
            except BaseException:
                job.discard()
                raise

    def layout(self) -> TableLayout:
        return replace(self._layout(self.binding, self.arrangement), rejected=self._rejected())

    def _rejected(self) -> TableLayout:
        return self._layout(REJECTED, self.rejected)

    def _layout(self, of: Binding, arrangement: Arrangement) -> TableLayout:
        return TableLayout(
            of,
            Destination(f"file://{self.directory}/{of.path[1]}", Properties(self.properties), "prefix"),
            Lease.until(Properties({"s3.secret-access-key": "hunter2"}), None),
            arrangement,
            run_limit=self.run_limit,
        )

    def _transfer(self, layouts: Layouts) -> BlockTransfer:
        if self.is_local:
            return OnThisMachine(lambda: RetryableError(WORKER_ENDED))
        return ThroughTheStore(layouts)

    @property
    def left(self) -> list[str]:
        """The names of all files that are no data files."""
        return [path.name for path in self.directory.rglob("*") if path.is_file() and path.suffix != ".parquet"]


def files_of(job: WriteJob) -> dict[int, tuple[DataFile, ...]]:
    files = job.finish().files
    assert all(isinstance(of_table, tuple) for of_table in files.values())
    return {table: of_table for table, of_table in files.items() if isinstance(of_table, tuple)}


def read(file: DataFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file.path.removeprefix("file://")).to_pylist()
    return rows


def row_groups(file: DataFile) -> list[int]:
    """The number of rows of each."""
    metadata = pq.read_metadata(file.path.removeprefix("file://"))
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def partitions(files: tuple[DataFile, ...]) -> list[Any]:
    return [None if file.partition[0] is None else from_bytes(LongType(), file.partition[0]) for file in files]


@pytest.fixture(params=["by the disk", "through the store", "all encoded at once"])
def table(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    if request.param == "all encoded at once":
        monkeypatch.setattr(sorted_runs, "LEAST_ENCODED", 1)
    return Table(tmp_path, is_local=request.param != "through the store")


def rows_of(count: int) -> list[tuple[int, int | None, str]]:
    return [(n, None if n % 7 == 0 else n % 40, f"text {n % 9}") for n in range(count)]


def test_a_small_transaction_makes_one_file_for_each_partition_with_its_rows(table: Table) -> None:
    files = table.write(*rows_of(200))[0]
    assert sorted(partitions(files), key=str) == sorted([None, 0, 10, 20, 30], key=str)
    for file, partition in zip(files, partitions(files), strict=True):
        values = {row["value0"] for row in read(file)}
        assert {None if value is None else value // 10 * 10 for value in values} == {partition}
    assert sorted(row["id"] for file in files for row in read(file)) == list(range(200))
    assert table.left == []


def test_files_of_several_partitions_are_uploaded_at_the_same_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's tasks divide the partitions among them."""
    table.cores = 1
    together, write, files = meeting(4), file_io.write_small_file, count(1)

    def wait_for_others(io: FileIO, location: str, content: bytes) -> None:
        if next(files) <= 4:
            together.wait()
        write(io, location, content)

    monkeypatch.setattr(file_io, "write_small_file", wait_for_others)
    written = table.write(*rows_of(200))[0]
    assert len(written) == 5
    assert sorted(row["id"] for file in written for row in read(file)) == list(range(200))


def test_rows_without_a_sort_order_stay_in_the_order_of_the_input(table: Table) -> None:
    files = table.write(*rows_of(200))[0]
    assert sum(file.rows for file in files) == 200
    for file in files:
        ids = [row["id"] for row in read(file)]
        assert ids == sorted(ids)


def test_sorted_rows_are_sorted_in_each_file(table: Table) -> None:
    table.arrangement = Arrangement(1, BY_VALUE, 1, SORTED)
    files = table.write(*rows_of(200))[0]
    assert len(files) == 5
    for file in files:
        keys = [(row["value1"], -row["id"]) for row in read(file)]
        assert keys == sorted(keys, reverse=True)
        assert len(row_groups(file)) == 1
    assert sum(file.rows for file in files) == 200


def test_a_sorted_table_without_partitions_gets_one_sorted_file(table: Table) -> None:
    table.arrangement = Arrangement(0, (), 1, SORTED)
    [file] = table.write(*rows_of(100))[0]
    assert file.partition == ()
    texts = [row["value1"] for row in read(file)]
    assert texts == sorted(texts, reverse=True)


@pytest.mark.parametrize("arrangement", [PLAIN, Arrangement(1, BY_VALUE)])
def test_the_table_of_rejected_rows_may_be_arranged_alone_or_too(tmp_path: Path, arrangement: Arrangement) -> None:
    rejected = Arrangement(3, (PartitionField(2, "identity"), PartitionField(5, "day")))
    table = Table(tmp_path, arrangement=arrangement, rejected=rejected)
    files = table.write(*((n, "bad" if n % 2 else n, "") for n in range(20)))
    assert sum(file.rows for file in files[0]) == sum(file.rows for file in files[1]) == 10
    [file] = files[1]
    assert file.partition[0] == b"value0"
    assert file.partition[1] is not None
    assert from_bytes(IntegerType(), file.partition[1]) == read(file)[0]["rejected_at"].timestamp() // 86400


def test_with_distribution_mode_none_each_task_writes_its_own_files(table: Table) -> None:
    table.properties = {"write.distribution-mode": "none"}
    files = table.write(*rows_of(200))[0]
    assert table.mapped == []
    assert set(partitions(files)) == {None, 0, 10, 20, 30}
    assert sorted(row["id"] for file in files for row in read(file)) == list(range(200))
    assert table.left == []


def test_runs_beyond_the_limit_are_merged_at_once(table: Table) -> None:
    table.run_limit = 5_000
    files = table.write(*((n, n % 2, "") for n in range(2000)), block_rows=50)[0]
    assert Counter(partitions(files))[0] > 1
    assert sorted(row["id"] for file in files for row in read(file)) == list(range(2000))
    assert table.left == []


OTHER = replace(binding(LongType(), StringType(), index=1), path=TableIdentifier("shop", "others"))
RUN = 10_000  # bytes; a run of `write_runs` has a little more


def write_runs(table: Table, *runs: int) -> tuple[list[int], int]:
    """Have one task write so many runs for each binding, one binding after the other. Return the numbers of the tables'
    files, and how many of the runs were left to the merge of all tasks."""
    table.cores = 1
    with table.writing(OTHER) as job:
        for index, of_table in enumerate(runs):
            for block in range(of_table):
                lines = tuple(plain(10 * block + row, 1, "x" * 1000, binding=index) for row in range(10))
                job.add(Store(index, 1, len(lines), lines))
        files = files_of(job)
    for index, of_table in enumerate(runs):
        assert sum(file.rows for file in files[index]) == 10 * of_table
    kept = [part.size for unit in table.mapped for merged in unit.ranges for _, part in merged.parts]
    assert RUN < min(kept) <= max(kept) < 1.1 * RUN
    return [len(files[index]) for index in range(len(runs))], len(kept)


@pytest.mark.parametrize(
    ("runs", "files", "kept"),
    [
        ((9,), [1], 9),
        ((4, 5), [1, 1], 9),
        ((9, 9), [1, 1], 9),  # the first table's runs would have left no room
        ((4, 7), [1, 2], 4 + 1),  # the second table's were merged when six of them had come
    ],
)
def test_runs_of_the_tables_of_a_task_have_one_limit(
    tmp_path: Path, runs: tuple[int, ...], files: list[int], kept: int
) -> None:
    table = Table(tmp_path, run_limit=10 * RUN)
    assert write_runs(table, *runs) == (files, kept)
    assert table.left == []


def test_runs_in_the_store_leave_room_to_other_tables(tmp_path: Path) -> None:
    assert write_runs(Table(tmp_path, is_local=False, run_limit=10 * RUN), 9, 9) == ([1, 1], 18)


def test_files_end_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gathered in (data_files.RowGroupMemory, data_files.GatheredRowGroup):
        monkeypatch.setattr(gathered, "__init__", small_row_group(gathered.__init__))
    codec = {"write.parquet.compression-codec": "uncompressed"}
    table = Table(tmp_path, properties={"write.target-file-size-bytes": "20000", **codec})
    files = table.write(*((n, 1, f"{n:0100}" * 3) for n in range(400)), block_rows=50)[0]
    assert len(files) > 3
    assert sorted(row["id"] for file in files for row in read(file)) == list(range(400))


def small_row_group(init: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    return lambda self, _: init(self, 16 << 10)


BLOCK = 20  # rows
MANY = 400  # bytes of Arrow data: three quarters of a block


def in_two_partitions(*of_first: int) -> list[tuple[int, int, str]]:
    """Blocks of rows, of which so many are of the first partition. They are among those of the second one."""
    places = [(block, place) for block in range(len(of_first)) for place in range(BLOCK)]
    return [
        (number, 0 if place * of_first[block] % BLOCK < of_first[block] else 10, f"text {number % 4}")
        for number, (block, place) in enumerate(places)
    ]


def test_many_rows_of_a_partition_are_encoded_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a row group of the data file as they were of the run, and rows between them are another."""
    monkeypatch.setattr(sorted_runs, "LEAST_ENCODED", MANY)
    rows = in_two_partitions(20, 2, 1, 18, 20, 3)
    files = table.write(*rows, block_rows=BLOCK)[0]
    assert [row_groups(file) for file in files] == [[20, 2 + 1, 18, 20, 3], [18, 19, 2, 17]]
    assert [tuple(row.values()) for file in files for row in read(file)] == sorted(rows, key=lambda row: row[1])
    with duckdb.connect() as database:
        for file, value in zip(files, (0, 10), strict=True):
            found = database.execute(f"SELECT * FROM '{file.path.removeprefix('file://')}' WHERE value1 = 'text 3'")
            assert found.fetchall() == [row for row in rows if row[1:] == (value, "text 3")]
    assert table.left == []


def test_statistics_and_field_ids_are_the_same_however_rows_get_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = binding(LongType(), DoubleType(), StringType(), DoubleType(), index=0)
    rows: list[tuple[Any, ...]] = [
        (number, value, None if number % 5 == 0 else number / 3, text * 20, "NaN" if number == 90 else 1.0)
        for number, value, text in in_two_partitions(20, 2, 1, 18, 20, 3)
    ]
    described = []
    for place, least in enumerate([MANY, 1, 1 << 30]):
        monkeypatch.setattr(sorted_runs, "LEAST_ENCODED", least)
        (tmp_path / str(place)).mkdir()
        files = Table(tmp_path / str(place), binding=values).write(*rows, block_rows=BLOCK)[0]
        for file in files:
            assert file.size == Path(file.path.removeprefix("file://")).stat().st_size
            assert len(file.splits) == len(row_groups(file))
            assert [int(field.metadata[b"PARQUET:field_id"]) for field in read_schema(file)] == [1, 2, 3, 4, 5]
        described.append([(file.rows, [replace_size(each) for each in file.columns]) for file in files])
    with_nan, without = described[0][0][1][4], described[0][1][1][4]
    assert sorted((with_nan.lower is None, without.lower is None)) == [False, True]
    assert described[0] == described[1] == described[2]


def read_schema(file: DataFile) -> pa.Schema:
    return pq.read_schema(file.path.removeprefix("file://"))


def replace_size(statistics: ColumnStatistics) -> ColumnStatistics:
    """The compressed bytes differ between ways to divide rows among row groups."""
    return msgspec.structs.replace(statistics, size=0)


def test_files_of_copied_row_groups_end_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "LEAST_ENCODED", 1)
    table = Table(tmp_path, properties={"write.target-file-size-bytes": "2000"})
    files = table.write(*((n, 1, f"{n:0100}") for n in range(200)), block_rows=BLOCK)[0]
    assert 2 < len(files) < 200 // BLOCK
    assert min(file.size for file in files[:-1]) >= 2000
    assert [row["id"] for file in files for row in read(file)] == list(range(200))


def test_one_file_is_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    is_open, most = 0, 0
    open_file, close_file = data_files._OpenParquetFile.__init__, data_files._OpenParquetFile.close

    def counted_open(self: Any, *arguments: Any) -> None:
        nonlocal is_open, most
        open_file(self, *arguments)
        is_open += 1
        most = max(most, is_open)

    def counted_close(self: Any) -> DataFile:
        nonlocal is_open
        is_open -= 1
        return close_file(self)

    monkeypatch.setattr(data_files._OpenParquetFile, "__init__", counted_open)
    monkeypatch.setattr(data_files._OpenParquetFile, "close", counted_close)
    files = table.write(*((n, n * 10, "") for n in range(100)))[0]
    assert len(files) == 100
    assert most == 1


def test_no_secret_is_among_the_things_that_spark_writes_to_a_file(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.write(*rows_of(50))
    assert table.mapped
    assert "hunter2" not in repr(table.mapped)
    assert all(isinstance(merged, MergeRange) for unit in table.mapped for merged in unit.ranges)


def no_space(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class FullDisk(LocalFile):
    """A file that cannot be made."""

    create = no_space


@pytest.mark.parametrize("is_merging", [False, True])
def test_a_full_disk_is_told_as_for_other_tables(
    table: Table, monkeypatch: pytest.MonkeyPatch, *, is_merging: bool
) -> None:
    if is_merging:
        monkeypatch.setattr(merge_job, "write_merged", no_space)
    else:
        kind = LocalFile if table.is_local else StoredObject
        monkeypatch.setattr(kind, "new_run", lambda *_: FullDisk(table.directory / "no.run"))
    with pytest.raises(RetryableError, match=r"No space left on device.*Check the disk of the temporary directory"):
        table.write(*rows_of(20))
    assert data_files_in(table) == []


def data_files_in(table: Table) -> list[Path]:
    return list(table.directory.rglob("*.parquet"))


def test_a_merge_that_fails_leaves_no_files_and_in_the_store_no_runs(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    write = data_files.FileWriter.finish

    def finish(self: Any) -> list[DataFile]:
        nonlocal written
        written += 1
        if written == 3:
            no_space()
        return write(self)

    monkeypatch.setattr(data_files.FileWriter, "finish", finish)
    with pytest.raises(RetryableError, match="No space left on device"):
        table.write(*rows_of(200))
    assert data_files_in(table) == []
    assert table.is_local or [name for name in table.left if name.endswith(".run")] == []


def test_files_of_merges_that_have_ended_go_with_one_that_fails(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task has merged them. A task that has failed merges nothing more."""
    write, merged = arranged_files.write_merged, list[list[DataFile]]()

    def write_once(*arguments: Any) -> list[DataFile]:
        if merged:
            no_space()
        merged.append(write(*arguments))
        return merged[0]

    monkeypatch.setattr(merge_job, "write_merged", write_once)
    table.rejected = Arrangement(3, (PartitionField(2, "identity"),))
    with pytest.raises(RetryableError, match="No space left on device"):
        table.write((1, 1, "text"), (2, "no number", "text"))
    assert [len(files) for files in merged] == [1]
    assert data_files_in(table) == []


def test_a_merge_during_which_the_process_is_stopped_leaves_no_files(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal does not end its tasks."""
    write, finish, process = arranged_files.write_merged, MergeJob.finish, threading.main_thread()
    waits, is_stopped = Event(), Event()
    assert threading.current_thread() is process

    def wait_for_tasks(job: MergeJob) -> dict[int, tuple[DataFile, ...]]:
        waits.set()
        return finish(job)

    def stop(number: int, _: object) -> None:
        is_stopped.set()
        raise Stopped(number)

    def write_until_stopped(*arguments: Any) -> list[DataFile]:
        merged = write(*arguments)
        assert waits.wait(60)
        signal.pthread_kill(process.ident or 0, signal.SIGUSR2)
        assert is_stopped.wait(60)
        return merged

    monkeypatch.setattr(MergeJob, "finish", wait_for_tasks)
    monkeypatch.setattr(merge_job, "write_merged", write_until_stopped)
    before = signal.signal(signal.SIGUSR2, stop)
    try:
        with pytest.raises(Stopped):
            table.write(*rows_of(20))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert data_files_in(table) == []


def test_a_merge_that_has_not_begun_is_not_waited_for() -> None:
    """A job of maintenance may run before it."""
    jobs, maintenance_ends = Spark(ThreadPoolExecutor(1), 1, []), Event()
    jobs.threads.submit(maintenance_ends.wait, 60)
    try:
        call_within(20, MergeJob(jobs, MadeLayouts([], bindings=0), {}).discard)
    finally:
        maintenance_ends.set()
        jobs.threads.shutdown()


def test_no_file_is_uploaded_after_a_failed_merge_has_deleted_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arranged_files, "ROW_GROUP_SIZE", 1)
    monkeypatch.setattr(data_files.FileWriter, "_end_if_full", data_files.FileWriter._end)
    begun, failed, write = Event(), Event(), file_io.write_small_file

    def write_late(*arguments: Any) -> None:
        begun.set()
        assert failed.wait(60)
        write(*arguments)

    def fail(_: Any) -> list[DataFile]:
        assert begun.wait(60)
        failed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_io, "write_small_file", write_late)
    monkeypatch.setattr(data_files.FileWriter, "finish", fail)
    table = Table(tmp_path)
    with pytest.raises(RetryableError, match="No space left on device"):
        table.write(*rows_of(20))
    assert data_files_in(table) == []


def test_a_merge_ends_with_the_first_rows_after_an_upload_has_failed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.cores = 1
    make_call, finish, has_failed = StartedCalls._call, data_files.FileWriter.finish, Event()
    read_later: list[str] = []

    def note_failure(uploads: StartedCalls, upload: Callable[[], object]) -> None:
        try:
            make_call(uploads, upload)
        finally:
            has_failed.set()

    def finish_first(writer: Any) -> list[DataFile]:
        files = finish(writer)
        assert has_failed.wait(60)
        return files

    def note(name: str, read: Callable[..., Any], *arguments: Any) -> Any:
        if has_failed.is_set():
            read_later.append(name)
        return read(*arguments)

    monkeypatch.setattr(file_io, "write_small_file", no_space)
    monkeypatch.setattr(StartedCalls, "_call", note_failure)
    monkeypatch.setattr(data_files.FileWriter, "finish", finish_first)
    for name in ("read_part", "read_encoded"):
        monkeypatch.setattr(arranged_files, name, partial(note, name, getattr(arranged_files, name)))
    with pytest.raises(RetryableError, match="the disk is full"):
        table.write(*rows_of(200))
    assert len(read_later) <= 1


def test_a_task_that_fails_leaves_no_runs_in_the_store(tmp_path: Path) -> None:
    """It has written the run of its first block when it finds the second one malformed."""
    table = Table(tmp_path, is_local=False, cores=1)
    with pytest.raises(ProtocolError, match="line 2"):
        table.write_lines(plain(1, 1, "", binding=0), b'{"store":{"key":[1],"values":[]}}\n')
    assert data_files_in(table) == []
    assert [name for name in table.left if name.endswith(".run")] == []


def test_runs_in_the_store_are_named_like_the_data_files(tmp_path: Path) -> None:
    layout = Table(tmp_path).layout()
    run = StoredObject("file:///block").new_run(layout)
    assert run.location.startswith(layout.destination.new_location().rpartition("-prefix")[0][:20])
    assert "/data/prefix-" in run.location


def test_a_discarded_transaction_leaves_no_runs_that_a_merge_could_begin_with(tmp_path: Path) -> None:
    """A merge that goes on would take the seconds in which the process deletes files before it ends."""
    with Table(tmp_path).writing() as job:
        job.add(Store(0, 1, 1, (plain(1, "a", binding=0),)))
        assert [*(tmp_path / "spool").iterdir()]
        job.discard()
    assert not (tmp_path / "spool").exists()
