"""The ledger: what is added is claimed once, and every block is in one counted file or the transaction fails."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from connector.encoding.runs.sorted_runs import SortedRun
from connector.host.errors import RetryableError
from connector.model.invalid_values import Tally, Treated, Treatment
from connector.model.state import DataFile
from connector.spark.blocks.ledger import Ledger, TaskAccount, TaskOutput
from connector.spark.blocks.spool import Block, Spool
from connector.spark.blocks.transaction_files import LocalFile, StoredRun
from protocol.request import Store
from support.sessions.processes import DEADLINE
from support.snapshots import check_text

NO_ROWS = pa.record_batch({"id": pa.array([], pa.int64())})


def run(binding: int, first_line: int, *lines: bytes) -> Store:
    return Store(binding, first_line, len(lines), tuple(line + b"\n" for line in lines))


def claim_all(ledger: Ledger, task: TaskAccount) -> Iterator[tuple[Block, bytes]]:
    while block := ledger.claim(task, None):
        yield block, block.path.read_bytes()


def claim_one(ledger: Ledger, task: TaskAccount, preferred: int | None = None) -> Block:
    block = ledger.claim(task, preferred)
    assert block is not None
    return block


def encode(ledger: Ledger, task: TaskAccount) -> None:
    """The task has encoded its block, and does not wait for another."""
    ledger.claim(task, None, lambda: True)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", block_size=10, limit=100)
    yield spool
    spool.remove()


@pytest.fixture
def ledger(spool: Spool) -> Ledger:
    return Ledger(spool)


@pytest.fixture
def task(ledger: Ledger) -> TaskAccount:
    return ledger.begin_task()


def test_lines_are_claimed_as_they_came_by_binding(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"a", b"b"))
    ledger.add(run(1, 3, b"x"))
    ledger.add(run(0, 4, b"c"))
    ledger.complete()
    assert sorted((block.binding, content) for block, content in claim_all(ledger, task)) == [
        (0, b"a\nb\nc\n"),
        (1, b"x\n"),
    ]


def test_a_full_block_may_be_claimed_while_lines_still_come(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"0123456789"))
    assert claim_one(ledger, task).path.read_bytes() == b"0123456789\n"


def test_a_block_of_the_preferred_binding_comes_first(ledger: Ledger, task: TaskAccount) -> None:
    for binding in (0, 1, 2):
        ledger.add(run(binding, 1, b"a"))
    ledger.complete()
    assert claim_one(ledger, task, preferred=2).binding == 2


def check_that_more_rows_wait(ledger: Ledger, task: TaskAccount) -> None:
    """The spool is full until the task has encoded a block."""
    adder = threading.Thread(target=ledger.add, args=(run(0, 2, b"x" * 60),))
    adder.start()
    adder.join(0.05)
    assert adder.is_alive()
    claim_one(ledger, task)
    encode(ledger, task)
    adder.join(DEADLINE)
    assert not adder.is_alive()


def test_a_full_spool_waits_for_a_block_to_be_encoded(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"x" * 60))
    check_that_more_rows_wait(ledger, task)


def test_a_block_that_is_given_back_fills_the_spool_again(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"x" * 60))
    claim_one(ledger, task)
    encode(ledger, task)
    ledger.give_back(task)
    task = ledger.begin_task()
    check_that_more_rows_wait(ledger, task)


def test_of_a_lost_task_the_counted_runs_stay_and_its_other_blocks_are_encoded_again(
    ledger: Ledger, task: TaskAccount
) -> None:
    first, second = (StoredRun(LocalFile(Path(name)), SortedRun(0, (), NO_ROWS)) for name in ("first", "second"))
    ledger.add(run(0, 1, b"x" * 60))
    claim_one(ledger, task)
    encode(ledger, task)
    ledger.count(task, TaskOutput(runs={0: (first,)}))
    ledger.add(run(0, 2, b"y" * 60))
    lost = claim_one(ledger, task)
    encode(ledger, task)
    ledger.give_back(task)  # its second run was never reported
    ledger.complete()
    task = ledger.begin_task()
    assert claim_one(ledger, task) == lost
    assert ledger.claim(task, None) is None
    ledger.count(task, TaskOutput(runs={0: (second,)}))
    assert ledger.close().runs == {0: (first, second)}


def test_the_counted_runs_are_those_until_now(ledger: Ledger, task: TaskAccount) -> None:
    """A failed transaction removes them while tasks may still report others."""
    counted = ledger.runs
    ledger.count(task, TaskOutput(runs={0: (StoredRun(LocalFile(Path("run")), SortedRun(0, (), NO_ROWS)),)}))
    assert not counted
    assert ledger.runs


def test_what_tasks_have_written_of_a_table_is_added_up(ledger: Ledger, task: TaskAccount) -> None:
    """They tell it in parts, and each part is of rows that no other has."""
    files = [DataFile(f"file:///{number}.parquet", 1, 10, (4,), ()) for number in range(3)]
    for number, teller in enumerate([task, task, ledger.begin_task()]):
        treated = Tally()
        treated.add("qty", Treatment.NULLED, Treated(number + 1))
        output = TaskOutput(
            {0: (files[number],), 1: (files[number],)},
            treated={0: treated},
            existing_keys={0: (np.array([number], np.uint64),), 1: ()},
        )
        ledger.count(teller, output)
    counted = ledger.close()
    assert counted.files == dict.fromkeys((0, 1), tuple(files))
    assert {index: np.concatenate(parts).tolist() for index, parts in counted.existing_keys.items()} == {0: [0, 1, 2]}
    assert [treated.count for _, _, treated in counted.treated[0]] == [6]


def test_a_spool_full_of_blocks_begun_does_not_wait_for_ever(tmp_path: Path) -> None:
    ledger = Ledger(Spool(tmp_path / "spool", block_size=1000, limit=100))
    task = ledger.begin_task()
    for binding in range(4):
        ledger.add(run(binding, 1, b"x" * 24))
    adder = threading.Thread(target=ledger.add, args=(run(4, 1, b"x" * 24),))
    adder.start()
    claim_one(ledger, task)
    encode(ledger, task)
    adder.join(DEADLINE)
    assert not adder.is_alive()


def test_claims_wait_for_the_strays_of_claimed_blocks(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"a", b"b", b"c"))
    ledger.complete()
    claimed: list[tuple[int, bytes, int]] = []

    def claim() -> None:
        claimed.extend(
            (block.binding, content, block.line_of(0)) for block, content in claim_all(ledger, ledger.begin_task())
        )

    claim_one(ledger, task)
    other = threading.Thread(target=claim)
    other.start()
    ledger.note_strays(task, [run(1, 2, b"b")])
    encode(ledger, task)
    other.join(DEADLINE)
    assert claimed == [(1, b"b\n", 2)]


def test_a_failure_ends_both_sides_with_its_first_cause(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"0123456789"))
    ledger.fail(RetryableError("first"))
    ledger.fail(RetryableError("second"))
    with pytest.raises(RetryableError, match="first"):
        ledger.add(run(0, 2, b"b"))
    with pytest.raises(RetryableError, match="first"):
        ledger.claim(task, None)


def test_who_waits_for_a_job_hears_of_a_failure_while_it_is_under_way(ledger: Ledger) -> None:
    job: Future[None] = Future()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ledger.wait_for, job)
        ledger.fail(RetryableError("the disk is on fire"))
        heard, _ = wait([waiting], DEADLINE)
        job.set_result(None)
    assert heard
    with pytest.raises(RetryableError, match="on fire"):
        waiting.result()


def test_who_waits_for_a_job_goes_on_when_it_is_over(ledger: Ledger) -> None:
    job: Future[None] = Future()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ledger.wait_for, job)
        job.set_result(None)
        waiting.result(DEADLINE)


@pytest.mark.parametrize("are_encoded", [False, True])
def test_nobody_waits_for_the_end_of_a_job_whose_blocks_are_all_counted(
    ledger: Ledger, task: TaskAccount, are_encoded: bool
) -> None:
    """Spark needs some milliseconds to end it."""
    job: Future[None] = Future()
    ledger.add(run(0, 1, b"a"))
    ledger.complete()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ledger.wait_for, job)
        claim_one(ledger, task)
        if are_encoded:
            encode(ledger, task)
            ledger.count(task, TaskOutput())
        heard, _ = wait([waiting], DEADLINE if are_encoded else 0.1)
        job.set_result(None)
    assert bool(heard) is are_encoded
    assert waiting.result() is are_encoded


def test_a_block_that_may_still_grow_is_not_counted(ledger: Ledger) -> None:
    ledger.add(run(0, 1, b"a"))
    job: Future[None] = Future()
    job.set_result(None)
    assert not ledger.wait_for(job)


def test_rows_that_are_in_no_file_are_an_error(ledger: Ledger, task: TaskAccount) -> None:
    ledger.add(run(0, 1, b"a"))
    with pytest.raises(RetryableError) as error:
        ledger.close()
    check_text("machine_errors", "rows that are in no file", str(error.value))
    ledger.complete()
    with pytest.raises(RetryableError, match="are in no data file"):
        ledger.close()
    claim_one(ledger, task)
    with pytest.raises(RetryableError, match="are in no data file"):
        ledger.close()
    encode(ledger, task)
    with pytest.raises(RetryableError, match="are in no data file"):
        ledger.close()
    ledger.count(task, TaskOutput())
    ledger.close()
