"""A transaction's rows on their way through the object store, with threads for tasks: nothing of them stays there."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Timer
from typing import Any

import msgspec
import pytest
from pyiceberg.types import LongType

from connector.encoding.parquet.file_options import Destination
from connector.host.errors import InvalidValueError, RetryableError
from connector.host.refresh import Lease
from connector.model.properties import Properties
from connector.model.state import ColumnStatistics, DataFile, FileList
from connector.spark.blocks.block_transfer import ThroughTheStore
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.claims import Claim
from connector.spark.blocks.spool import Spool
from connector.spark.blocks.transaction_files import TableLayout
from connector.spark.jobs import write_job as write_job_module
from connector.spark.jobs.write_job import LONGEST_IN_STATE, WriteJob, Written, find_long_lists
from connector.spark.tasks.write_task import _BlockWriter
from connector.storage.file_io import StoreFileIO
from encoding.store_lines import binding, plain
from protocol.request import Store
from support.layouts import made_by
from support.sessions.processes import wait_until
from support.snapshots import check_text

RunTasks = Callable[[ThreadPoolExecutor, Callable[[Iterable[int]], Iterable[Any]]], "Future[list[Any]]"]


@dataclass(frozen=True)
class InThreads:
    """Spark's jobs, with threads for tasks."""

    threads: ThreadPoolExecutor
    run_tasks: RunTasks
    cores: int = 1

    def run(self, task: Callable[[Iterable[int]], Iterable[Any]]) -> "Future[list[Any]]":
        return self.run_tasks(self.threads, task)

    def map(self, call: Callable[[Any], Any], things: Sequence[Any]) -> "Future[list[Any]]":
        return self.threads.submit(lambda: [call(thing) for thing in things])


@contextmanager
def write_job(tmp_path: Path, run: RunTasks, expired: Callable[[], bool] = bool) -> Iterator[WriteJob]:
    with write_jobs(tmp_path, run, expired) as start:
        yield start()


@contextmanager
def write_jobs(tmp_path: Path, run: RunTasks, expired: Callable[[], bool] = bool) -> Iterator[Callable[[], WriteJob]]:
    """Starts the job of one transaction after the other. The credentials of the table may have `expired`."""
    of = binding(LongType(), index=0)

    def make_layout() -> TableLayout:
        if expired():
            raise RetryableError("the catalog has no credentials now")
        destination = Destination(f"file://{tmp_path}/table", Properties(), "prefix")
        return TableLayout(of, destination, Lease.until(Properties(), None))

    layouts = made_by(make_layout)
    with closing(ClaimServer(("127.0.0.1", 0), "127.0.0.1")) as claims, ThreadPoolExecutor(1) as tasks:

        def start() -> WriteJob:
            spool = Spool(Path(mkdtemp(dir=tmp_path)) / "spool", block_size=1)
            return WriteJob(InThreads(tasks, run), claims, spool, ThroughTheStore(layouts), layouts)

        yield start


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[WriteJob]:
    with write_job(tmp_path, lambda tasks, task: tasks.submit(lambda: [*task([0])])) as job:
        yield job


def add(writing: WriteJob, *values: object) -> None:
    for number, value in enumerate(values, start=1):
        writing.add(Store(0, number, 1, (plain(number, value, binding=0),)))


def written_files(job: WriteJob) -> tuple[DataFile, ...]:
    files = job.finish().files[0]
    assert isinstance(files, tuple)
    return files


def test_written_rows_are_in_data_files_only(writing: WriteJob, tmp_path: Path) -> None:
    add(writing, 1, 2, 3)
    files = written_files(writing)
    assert [file.rows for file in files] == [3]
    assert [path.name for path in (tmp_path / "table" / "data").iterdir()] == [Path(file.path).name for file in files]


def stored(directory: Path) -> list[str]:
    """The names of all files of the table."""
    return [path.name for path in (directory / "table").rglob("*") if path.is_file()]


def test_a_failed_transaction_leaves_nothing(writing: WriteJob, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError):
        add_and_finish(writing, 1, "no number", 3)
    writing.discard()
    assert list((tmp_path / "table" / "data").iterdir()) == []


def test_files_that_tasks_have_reported_go_with_a_transaction_that_is_discarded(
    writing: WriteJob, tmp_path: Path
) -> None:
    add(writing, 1, 2, 3)
    written_files(writing)
    assert [name.rpartition(".")[2] for name in stored(tmp_path)] == ["parquet"]
    writing.discard()
    assert stored(tmp_path) == []


def test_the_list_of_many_files_goes_with_a_transaction_that_is_discarded(
    writing: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_job_module, "LONGEST_IN_STATE", 1)
    add(writing, 1)
    assert isinstance(writing.finish().files[0], FileList)
    assert len(stored(tmp_path)) == 2
    writing.discard()
    assert stored(tmp_path) == []


def test_a_task_that_is_writing_deletes_its_files_before_its_transaction_is_discarded(
    writing: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends then, and its tasks with it."""
    is_written, may_go_on, write = Event(), Event(), _BlockWriter.write

    def write_and_wait(blocks: _BlockWriter, claim: Claim) -> None:
        write(blocks, claim)
        blocks.files.close()
        is_written.set()
        assert may_go_on.wait(60)

    monkeypatch.setattr(_BlockWriter, "write", write_and_wait)
    add(writing, 1)
    assert is_written.wait(60)
    assert wait_until(lambda: any(name.endswith(".parquet") for name in stored(tmp_path)))
    Timer(0.2, may_go_on.set).start()
    writing.discard()
    assert stored(tmp_path) == []


def test_a_discarded_transaction_for_which_there_are_no_credentials_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    are_gone = Event()
    with write_job(tmp_path, lambda tasks, task: tasks.submit(lambda: [*task([0])]), are_gone.is_set) as job:
        add(job, 1)
        written_files(job)
        are_gone.set()
        job.discard()
    assert (
        "files of a transaction that was not staged stay in the object store until a later session: "
        "the catalog has no credentials now"
    ) in caplog.text


def test_files_of_a_discarded_transaction_that_cannot_be_deleted_are_told(
    writing: WriteJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("403 Forbidden")

    add(writing, 1)
    written_files(writing)
    monkeypatch.setattr(StoreFileIO, "delete", refuse)
    writing.discard()
    assert "files of a transaction that was not staged stay in the object store until a later session" in caplog.text
    assert "403 Forbidden" in caplog.text


def test_a_job_that_ends_without_a_task_is_told_with_the_binding(tmp_path: Path) -> None:
    with (
        write_job(tmp_path, lambda tasks, _: tasks.submit(list), lambda: True) as job,
        pytest.raises(RetryableError) as error,
    ):
        add_and_finish(job, 1)
    check_text("machine_errors", "rows that are in no file", str(error.value))


def test_a_transaction_without_rows_does_not_wait_for_its_job(tmp_path: Path) -> None:
    """Spark may still be starting."""
    never: Future[list[Any]] = Future()
    with write_job(tmp_path, lambda *_: never) as job:
        assert job.finish() == Written()


def test_a_job_that_fails_after_its_transaction_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks may be writing rows of the next one."""
    running: Future[list[Any]] = Future()
    with write_job(tmp_path, lambda *_: running) as job, caplog.at_level(logging.DEBUG):
        assert job.finish() == Written()
        running.set_exception(RetryableError("a worker was killed"))
    assert "a worker was killed" in caplog.text


def test_a_task_that_comes_late_writes_rows_of_the_next_transaction(tmp_path: Path) -> None:
    """The job of an earlier transaction may have been waiting for Spark. Then its tasks are as good as others."""
    started: list[Callable[[], Any]] = []

    def start_later(_: ThreadPoolExecutor, task: Callable[[Iterable[int]], Iterable[Any]]) -> "Future[list[Any]]":
        started.append(lambda: [*task([0])])
        return Future()

    with write_jobs(tmp_path, start_later) as start:
        assert start().finish() == Written()
        following = start()
        add(following, 1, 2)
        with ThreadPoolExecutor(1) as tasks:
            late = tasks.submit(started[0])
            [file] = written_files(following)
            assert file.rows == 2
            late.result()


def describe_file(columns: int) -> DataFile:
    bound = b"a text of so many characters"
    statistics = (ColumnStatistics(number, 1000, 1000, 0, bound, bound) for number in range(columns))
    return DataFile("s3://lake/shop/orders/data/a-name.parquet", 1000, 1000, (4,), tuple(statistics))


@pytest.mark.parametrize(("share", "largest"), [(1.0, 8 << 20), (0.25, 2 << 20), (2**-32, LONGEST_IN_STATE)])
def test_the_lists_of_very_many_files_are_outside_of_the_state(share: float, largest: int) -> None:
    """The state of all shards must fit into one message. No list of a single table is long here."""
    files = {table: (describe_file(columns=100 + table % 300),) for table in range(2000)}
    sizes = {table: len(msgspec.json.encode(of_table)) for table, of_table in files.items()}
    assert max(sizes.values()) < LONGEST_IN_STATE
    outside = find_long_lists(files, share)
    inside = files.keys() - {*outside}
    assert 0.9 * largest < sum(sizes[table] for table in inside) <= largest < sum(sizes.values()) / 4
    assert max(sizes[table] for table in inside) <= min(sizes[table] for table in outside)


def add_and_finish(writing: WriteJob, *values: object) -> None:
    add(writing, *values)  # may hear of the failure already
    writing.finish()
