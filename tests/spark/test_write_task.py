"""A task without Spark around it: the files that it makes of spooled blocks, and what it says when it cannot go on."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from errno import EAGAIN, EMFILE, ENOSPC
from http import HTTPStatus
from itertools import count
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Event
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import S3_ENDPOINT, FileIO
from pyiceberg.types import LongType, StringType, UUIDType

from connector.encoding.live_rows.lineage_columns import ROW_ID_FIELD
from connector.encoding.parquet.file_options import Destination
from connector.host.errors import BrokenTaskError, ConnectorError, RetryableError, UserError
from connector.host.refresh import Lease
from connector.host.threads import StartedCalls
from connector.model.binding import Arrangement, Binding, PartitionField
from connector.model.invalid_values import OnInvalid, Tally, Treatment
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.spark.blocks import stored_keys
from connector.spark.blocks.block_transfer import OnThisMachine
from connector.spark.blocks.claim_server import Address, ClaimServer
from connector.spark.blocks.claims import Claim, Next, Strays, TaskFailed, Wrote
from connector.spark.blocks.ledger import Ledger, TaskAccount, TaskOutput
from connector.spark.blocks.spool import Block, LineRange, Spool
from connector.spark.blocks.transaction_files import LocalFile, TableLayout
from connector.spark.jvm.jvm_ends import WORKER_ENDED
from connector.spark.tasks import write_task
from connector.spark.tasks.write_task import write_files
from connector.storage import file_io
from connector.storage.file_access import file_properties
from encoding.store_lines import REJECTED, binding, plain
from protocol.protocol_error import ProtocolError
from protocol.request import Store
from support.layouts import fixed
from support.plans import meeting
from support.servers.fault_proxy import GENUINE, Fault, FaultProxy, Request, fault_proxy
from support.servers.s3_server import S3Server
from support.sessions.processes import DEADLINE, wait_until
from support.snapshots import check_text

ORDERS = replace(binding(LongType(), StringType(), index=0), on_invalid=OnInvalid.QUARANTINE)


def text_of(key: int) -> str:
    """A kilobyte that a dictionary does not make smaller."""
    return f"{key:010}" * 100


class Job:
    """One transaction of one task. Each binding has a layout."""

    def __init__(self, directory: Path, *layouts: TableLayout) -> None:
        self.files: dict[int, tuple[DataFile, ...]] = {}
        self.treated: dict[int, Tally] = {}
        self._ledger = Ledger(Spool(directory / "spool", block_size=8 << 20))
        self._directory = directory
        self._layouts = fixed(*layouts)
        self._lines = count(1)

    def add(self, *lines: bytes, binding: int = 0) -> None:
        self._ledger.add(Store(binding, next(self._lines), len(lines), lines))

    def run(self) -> None:
        """Raises what has stopped the task."""
        self._ledger.complete()
        with closing(ClaimServer(str(self._directory / "claims"))) as claims:
            claims.begin(self._ledger, self._layouts, OnThisMachine(lambda: RetryableError(WORKER_ENDED)))
            write_files(claims.address, [0])
            claims.finish()
        counted = self._ledger.close()
        self.files, self.treated = counted.files, counted.treated

    @property
    def has_failed(self) -> bool:
        try:
            self._ledger.check()
        except ConnectorError:
            return True
        return False

    def rows(self, table: int) -> list[Any]:
        return [
            found
            for file in self.files[table]
            for found in pq.read_table(file.path.removeprefix("file://")).to_pylist()
        ]


def layout(directory: Path, of: Binding, rejected: TableLayout | None = None) -> TableLayout:
    """Of a table with small files."""
    properties = {"write.target-file-size-bytes": "1000000", "write.parquet.compression-codec": "uncompressed"}
    destination = Destination(f"file://{directory}/{of.path[1]}", Properties(properties), "prefix")
    return TableLayout(of, destination, Lease.until(Properties(), None), rejected=rejected)


def row(key: int, value: Any, text: str = "") -> bytes:
    return plain(key, value, text, binding=0)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, layout(tmp_path, ORDERS, layout(tmp_path, REJECTED)))


def parquet_files(directory: Path) -> list[Path]:
    return list(directory.rglob("*.parquet"))


def test_every_row_is_in_one_of_the_two_tables_however_many_files_they_have(job: Job) -> None:
    for begin in range(0, 20_000, 1000):
        numbers = range(begin, begin + 1000)
        job.add(*(row(n, "bad" if n % 2 else n, text_of(n)) for n in numbers))
    job.run()

    assert sorted(row["id"] for row in job.rows(0)) == list(range(0, 20_000, 2))
    rejected = job.rows(1)
    assert sorted(orjson.loads(found["key"])[0] for found in rejected) == list(range(1, 20_000, 2))
    documents = map(orjson.loads, (found["document"] for found in rejected))
    assert all(document["value1"] == text_of(document["id"]) for document in documents)
    assert len(job.files[1]) > 1
    assert [sum(file.rows for file in job.files[table]) for table in (0, 1)] == [10_000, 10_000]
    assert job.treated[0].total(Treatment.REJECTED) == 10_000


def test_where_every_row_is_rejected_the_table_gets_no_files(job: Job) -> None:
    job.add(*(row(n, "bad") for n in range(10)))
    job.run()

    assert [*job.files] == [1]
    assert len(job.rows(1)) == 10


def test_where_no_row_is_rejected_their_table_gets_no_files(job: Job) -> None:
    job.add(*(row(n, n) for n in range(10)))
    job.run()

    assert [*job.files] == [0]
    assert job.treated == {}


def test_lines_keep_their_numbers_behind_rejected_rows(job: Job) -> None:
    """The second batch of a block goes on counting where the first ended."""
    for n in range(60):
        job.add(row(n, "bad", "x" * 100_000))
    job.add(b'{"store":{"key":[1],"values":[]}}\n')

    with pytest.raises(ProtocolError, match=r"^line 61: "):
        job.run()


def test_a_task_that_fails_leaves_no_file_of_either_table(job: Job, tmp_path: Path) -> None:
    job.add(*(row(n, "bad" if n % 2 else n, text_of(n)) for n in range(20_000)))
    job.add(b'{"store":{"key":[1],"values":[]}}\n')

    with pytest.raises(ProtocolError):
        job.run()

    assert parquet_files(tmp_path) == []


def test_the_ids_of_replaced_rows_are_opened_once_for_consecutive_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they are many, a worker does not keep them."""
    opened = list[TableLayout]()

    class NoRowIds:
        def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.append_column(ROW_ID_FIELD, pa.nulls(batch.num_rows, pa.int64()))

    def open_row_ids(of: TableLayout) -> NoRowIds:
        opened.append(of)
        return NoRowIds()

    monkeypatch.setattr(stored_keys, "open_row_ids", open_row_ids)
    job = Job(tmp_path, replace(layout(tmp_path, BINDINGS[0]), row_ids=LocalFile(tmp_path / "ids")))
    for n in range(100):
        job.add(row(n, n, "x" * 100_000))
    job.run()
    assert len(job.rows(0)) == 100
    assert len(opened) == 1


BINDINGS: Final = tuple(binding(LongType(), StringType(), index=index) for index in range(3))


@pytest.fixture
def job_of_three_tables(tmp_path: Path) -> Job:
    job = Job(tmp_path, *(layout(tmp_path / str(of.index), of) for of in BINDINGS))
    for of in BINDINGS:
        job.add(plain(of.index, of.index, "text", binding=of.index), binding=of.index)
    return job


def test_small_files_of_several_tables_are_uploaded_at_the_same_time(
    job_of_three_tables: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, write = meeting(3), file_io.write_small_file

    def wait_for_the_others(io: FileIO, location: str, content: bytes) -> None:
        together.wait()
        write(io, location, content)

    monkeypatch.setattr(file_io, "write_small_file", wait_for_the_others)
    job_of_three_tables.run()
    assert [[row["id"] for row in job_of_three_tables.rows(index)] for index in range(3)] == [[0], [1], [2]]


def test_the_driver_is_told_of_large_blocks_before_the_next_table(
    job_of_three_tables: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost task of a cluster repeats only what it has not told."""
    monkeypatch.setattr(write_task, "REPORTED_TOGETHER", 1)
    told, count_written = list[int](), Ledger.count

    def note(ledger: Ledger, task: TaskAccount, output: TaskOutput) -> None:
        told.append(len(output.files))
        count_written(ledger, task, output)

    monkeypatch.setattr(Ledger, "count", note)
    job_of_three_tables.run()
    assert told == [1, 1, 1]


def test_the_driver_is_told_when_all_files_are_durable(
    job_of_three_tables: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, finished, count_written = file_io.write_small_file, list[str](), Ledger.count

    def write_slowly(io: FileIO, location: str, content: bytes) -> None:
        time.sleep(0.1)
        write(io, location, content)
        finished.append(location)

    def check(ledger: Ledger, task: TaskAccount, output: TaskOutput) -> None:
        named = {file.path for files in output.files.values() for file in files}
        assert named == {*finished}
        count_written(ledger, task, output)

    monkeypatch.setattr(file_io, "write_small_file", write_slowly)
    monkeypatch.setattr(Ledger, "count", check)
    job_of_three_tables.run()
    assert len(finished) == 3


def test_an_upload_that_fails_fails_the_transaction_and_no_file_is_left(
    job_of_three_tables: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, write, written = meeting(3), file_io.write_small_file, list[str]()

    def fail_in_one_table(io: FileIO, location: str, content: bytes) -> None:
        together.wait()
        if "/1/" in location:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        time.sleep(0.1)
        write(io, location, content)
        written.append(location)

    monkeypatch.setattr(file_io, "write_small_file", fail_in_one_table)
    with pytest.raises(RetryableError, match=r"/1/.*\.parquet: the disk is full"):
        job_of_three_tables.run()
    assert len(written) == 2
    assert parquet_files(tmp_path) == []


def claim_of_one_row(
    directory: Path, of: Binding = ORDERS, seconds: float | None = None, rejected: TableLayout | None = None
) -> Claim:
    """A block of one row. The credentials of its table are valid for so many seconds, if they expire."""
    path = directory / f"block-{of.index}"
    path.write_bytes(plain(1, 1, "text", binding=of.index))
    block = Block(of.index, path, path.stat().st_size, (LineRange(1, 1),))
    access = Lease.until(Properties(), None if seconds is None else time.time() + seconds)
    return Claim(block, LocalFile(path), replace(layout(directory / str(of.index), of, rejected), access=access))


@contextmanager
def task_of_one_row(
    directory: Path, seconds: float | None = None
) -> "Iterator[tuple[Future[Any], Connection[Any, Any]]]":
    """A task, and its driver's side of their connection, when it has asked for a second block."""
    claim = claim_of_one_row(directory, seconds=seconds)
    with closing(Listener(str(directory / "claims"), authkey=b"secret")) as listener, ThreadPoolExecutor(1) as pool:
        task = pool.submit(write_files, Address(str(directory / "claims"), b"secret"), [0])
        with listener.accept() as driver:
            assert driver.recv() == Next(None)
            driver.send(claim)
            assert driver.recv() == Next(0)
            yield task, driver


def test_files_end_when_the_credentials_of_either_table_are_refreshed(tmp_path: Path) -> None:
    """A file that goes on to grow would be written with expired ones."""
    old, new = (Lease.until(Properties(), time.time() + 3600 * hours) for hours in (1, 2))
    rejected = layout(tmp_path, REJECTED)
    claims = [
        claim_of_one_row(tmp_path, rejected=replace(rejected, access=old)),
        claim_of_one_row(tmp_path, rejected=replace(rejected, access=old)),
        claim_of_one_row(tmp_path, rejected=replace(rejected, access=new)),
        claim_of_one_row(tmp_path, rejected=replace(rejected, access=new), seconds=3600),
    ]
    with task_of_one_row(tmp_path) as (_, driver):
        for claim in claims:
            driver.send(claim)
            assert driver.recv() == Next(0)
        driver.send(None)
        wrote = driver.recv()
    assert [file.rows for file in wrote.output.files[0]] == [1, 2, 1, 1]


@pytest.mark.parametrize(
    ("mode", "run_limit", "merged"),
    [("none", 1 << 20, True), ("hash", 1 << 20, False), ("hash", 500, True)],  # a run has about 300 bytes
    ids=["merged at the end", "merged with those of other tasks", "merged before the next table"],
)
def test_a_task_merges_its_runs_before_their_credentials_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, run_limit: int, merged: bool
) -> None:
    """No block comes until then. Later, it could read the runs, but write no files."""
    monkeypatch.setattr(write_task, "UPLOADS_CHECK", 0.01)
    claim = claim_of_one_row(tmp_path, BINDINGS[1], seconds=0.1)
    destination = replace(claim.layout.destination, properties=Properties({"write.distribution-mode": mode}))
    arrangement = Arrangement(1, (PartitionField(2, "truncate[10]"),))
    of_table = replace(claim.layout, destination=destination, arrangement=arrangement, run_limit=run_limit)
    with task_of_one_row(tmp_path) as (_, driver):
        driver.send(replace(claim, layout=of_table))
        assert driver.recv() == Next(1)
        expected = "1/**/*.parquet" if merged else "*.run"
        assert wait_until(lambda: any(tmp_path.glob(expected)))
        driver.send(None)
        output = driver.recv().output
    assert [file.rows for file in output.files.get(1, ())] == [1] * merged
    assert len(output.runs.get(1, ())) == (not merged)


def test_files_that_the_driver_may_have_counted_are_not_deleted(tmp_path: Path) -> None:
    """Whether its message was read a task cannot know that gets no answer."""
    with task_of_one_row(tmp_path) as (task, driver):
        driver.send(None)
        assert isinstance(driver.recv(), Wrote)
        driver.close()
        assert isinstance(task.exception(), EOFError)
    assert len(parquet_files(tmp_path)) == 1


def test_a_task_that_loses_its_driver_ends_with_an_error_so_that_spark_runs_it_again(tmp_path: Path) -> None:
    with task_of_one_row(tmp_path) as (task, driver):
        driver.close()
        assert isinstance(task.exception(), EOFError)
    assert parquet_files(tmp_path) == []


def test_a_task_whose_driver_resets_its_connection_has_lost_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver ends before it has read all that the task has sent."""
    ended, write_lines = Event(), write_task._BlockWriter._write_lines

    def wait(blocks: Any, lines: Any) -> None:
        blocks.driver.send(Strays(1, [], []))
        assert ended.wait(60)
        write_lines(blocks, lines)

    with task_of_one_row(tmp_path) as (task, driver):
        monkeypatch.setattr(write_task._BlockWriter, "_write_lines", wait)
        driver.send(claim_of_one_row(tmp_path))
        assert driver.poll(60)
        driver.close()
        ended.set()
        error = task.exception()
    assert isinstance(error, ConnectionError)
    assert error.__context__ is None  # it has not tried to tell the driver


@pytest.fixture
def uploads_fail(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Uploads of small files, when this is set."""
    fail = Event()

    def write(*_: object) -> None:
        assert fail.wait(60)
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(file_io, "write_small_file", write)
    return fail


def receive_failure(driver: "Connection[Any, Any]") -> None:
    assert driver.poll(DEADLINE), "nothing is said of the upload"
    failed = driver.recv()
    assert isinstance(failed, TaskFailed), failed
    assert str(failed.error).endswith(".parquet: the disk is full. Make room there.")


def test_an_upload_that_fails_while_the_task_waits_for_a_block_is_told(
    tmp_path: Path, uploads_fail: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction may be open for hours."""
    monkeypatch.setattr(write_task, "UPLOADS_CHECK", 0.01)
    with task_of_one_row(tmp_path) as (_, driver):
        driver.send(claim_of_one_row(tmp_path, BINDINGS[1]))
        assert driver.recv() == Next(1)
        uploads_fail.set()
        receive_failure(driver)


def test_an_upload_that_fails_while_the_task_encodes_blocks_is_told_with_the_next_one(
    tmp_path: Path, uploads_fail: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_call, has_failed = StartedCalls._call, Event()

    def note(uploads: StartedCalls, upload: Callable[[], object]) -> None:
        try:
            make_call(uploads, upload)
        finally:
            has_failed.set()

    monkeypatch.setattr(StartedCalls, "_call", note)
    monkeypatch.setattr(write_task, "UPLOADS_CHECK", 60.0)
    with task_of_one_row(tmp_path) as (_, driver):
        driver.send(claim_of_one_row(tmp_path, BINDINGS[1]))
        assert driver.recv() == Next(1)
        uploads_fail.set()
        assert has_failed.wait(60)
        driver.send(claim_of_one_row(tmp_path, BINDINGS[1]))
        receive_failure(driver)


def test_an_upload_that_fails_before_the_credentials_expire_is_told(
    tmp_path: Path, uploads_fail: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_task, "UPLOADS_CHECK", 0.01)
    uploads_fail.set()
    with task_of_one_row(tmp_path, seconds=0.1) as (_, driver):
        receive_failure(driver)


def test_an_error_that_nobody_has_thought_of_is_one_sentence_and_its_traceback_is_for_debugging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path, layout(tmp_path, binding(UUIDType(), index=0)))  # open refuses it: no task can write it
    job.add(plain(1, "a", binding=0))

    with caplog.at_level(logging.DEBUG), pytest.raises(BrokenTaskError) as raised:
        job.run()

    check_text("spark_errors", "an error that nobody has thought of", str(raised.value))
    # py4j logs what it makes of another test's JVM that has ended.
    [record] = [record for record in caplog.records if record.name.startswith("connector.")]
    assert record.levelno == logging.DEBUG
    assert "Traceback (most recent call last)" in record.getMessage()


def test_rows_that_are_gone_before_they_are_read_are_an_error_that_says_so(job: Job, tmp_path: Path) -> None:
    job.add(row(1, 1))
    (spooled,) = (tmp_path / "spool").iterdir()
    spooled.unlink()
    with pytest.raises(RetryableError) as raised:
        job.run()
    check_text("spark_errors", "rows that are gone", str(raised.value), {str(spooled): "FILE"})


@pytest.mark.parametrize(
    ("name", "error"), [("no files", OSError(EMFILE, os.strerror(EMFILE))), ("no threads", BlockingIOError(EAGAIN, ""))]
)
def test_a_limit_of_the_process_is_told_as_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, name: str, error: OSError
) -> None:
    """No disk is to be checked."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(LocalFile, "open", refuse)
    job.add(row(1, 1))
    with pytest.raises(RetryableError) as raised:
        job.run()
    check_text("machine_errors", name, str(raised.value))


def test_a_failed_upload_is_told_before_the_task_cleans_up(tmp_path: Path, s3_server: S3Server) -> None:
    """A store that refuses an upload may not answer a deletion either."""
    was_told: list[bool] = []

    def fault_of(request: Request) -> Fault:
        if request.method == "DELETE":
            was_told.append(wait_until(lambda: failing.has_failed))
        return Fault(0, HTTPStatus.FORBIDDEN) if request.method == "PUT" else GENUINE

    with fault_proxy(s3_server.endpoint) as proxy:
        proxy.choose = fault_of
        failing = Job(tmp_path, in_a_bucket(layout(tmp_path, binding(LongType(), index=0)), s3_server, proxy))
        failing.add(plain(1, 1, binding=0))
        with pytest.raises(UserError, match="the object store forbids this"):
            failing.run()
    assert was_told == [True]


def test_a_small_file_is_one_request_over_a_connection_that_stays_open(tmp_path: Path, s3_server: S3Server) -> None:
    with fault_proxy(s3_server.endpoint) as proxy:
        of_table = in_a_bucket(layout(tmp_path, binding(LongType(), index=0)), s3_server, proxy)
        for transaction in ("first", "second"):
            (tmp_path / transaction).mkdir()
            job = Job(tmp_path / transaction, replace(of_table))
            job.add(plain(1, 1, binding=0))
            job.run()
    assert [request.method for request in proxy.seen] == ["PUT", "PUT"]
    assert len(proxy.clients) == 1


def in_a_bucket(on_disk: TableLayout, s3: S3Server, proxy: FaultProxy) -> TableLayout:
    """The same table's, with its files in a new bucket behind the proxy."""
    files = file_properties(s3.file_properties(), {S3_ENDPOINT: proxy.uri})
    destination = replace(on_disk.destination, location=f"s3://{s3.new_bucket()}/table")
    return replace(on_disk, destination=destination, access=Lease.until(Properties(files), None))
