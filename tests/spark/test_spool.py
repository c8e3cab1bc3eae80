"""The spool: what is added is claimed once, in bounded space."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from connector.host.errors import RetryableError
from connector.spark.blocks import Block
from connector.spark.spool import Spool
from protocol.request import Store
from support.snapshots import check_text

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "machine_errors.json"
DEADLINE = 20.0  # seconds


def run(binding: int, first_line: int, *lines: bytes) -> Store:
    return Store(binding, first_line, len(lines), tuple(line + b"\n" for line in lines))


def claim_all(spool: Spool) -> Iterator[tuple[Block, bytes]]:
    while block := spool.claim(None):
        yield block, block.path.read_bytes()
        spool.encoded(block)


def claim_one(spool: Spool) -> Block:
    block = spool.claim(None)
    assert block is not None
    return block


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", block_size=10, limit=100)


def test_lines_are_claimed_as_they_came_by_binding(spool: Spool) -> None:
    spool.add(run(0, 1, b"a", b"b"))
    spool.add(run(1, 3, b"x"))
    spool.add(run(0, 4, b"c"))
    spool.complete()
    assert sorted((block.binding, content) for block, content in claim_all(spool)) == [(0, b"a\nb\nc\n"), (1, b"x\n")]


def test_a_full_block_may_be_claimed_while_lines_still_come(spool: Spool) -> None:
    spool.add(run(0, 1, b"0123456789"))
    assert claim_one(spool).path.read_bytes() == b"0123456789\n"


def test_a_blocks_rows_know_their_lines(spool: Spool) -> None:
    spool.add(run(0, 7, b"a", b"b"))
    spool.add(run(0, 9, b"c"))
    spool.add(run(0, 20, b"d"))
    spool.complete()
    [(block, _)] = claim_all(spool)
    assert [block.line_of(row) for row in range(4)] == [7, 8, 9, 20]
    assert len(block.runs) == 2


def test_a_block_of_the_preferred_binding_comes_first(spool: Spool) -> None:
    for binding in (0, 1, 2):
        spool.add(run(binding, 1, b"a"))
    spool.complete()
    block = spool.claim(2)
    assert block is not None
    assert block.binding == 2


def test_files_are_removed_when_they_are_encoded(spool: Spool, tmp_path: Path) -> None:
    spool.add(run(0, 1, b"0123456789"))
    spool.complete()
    list(claim_all(spool))
    assert list((tmp_path / "spool").iterdir()) == []
    spool.remove()
    assert not (tmp_path / "spool").exists()


def test_a_full_spool_waits_for_a_block_to_be_encoded(spool: Spool) -> None:
    spool.add(run(0, 1, b"x" * 60))
    adder = threading.Thread(target=spool.add, args=(run(0, 2, b"x" * 60),))
    adder.start()
    adder.join(0.05)
    assert adder.is_alive()
    spool.encoded(claim_one(spool))
    adder.join(10)
    assert not adder.is_alive()


def test_a_block_that_is_given_back_fills_the_spool_again(spool: Spool) -> None:
    spool.add(run(0, 1, b"x" * 60))
    spool.encoded(block := claim_one(spool))
    spool.give_back([block])
    adder = threading.Thread(target=spool.add, args=(run(0, 2, b"x" * 60),))
    adder.start()
    adder.join(0.05)
    assert adder.is_alive()
    spool.encoded(claim_one(spool))
    adder.join(10)
    assert not adder.is_alive()


def test_a_spool_full_of_blocks_begun_does_not_wait_for_ever(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", block_size=1000, limit=100)
    for binding in range(4):
        spool.add(run(binding, 1, b"x" * 24))
    adder = threading.Thread(target=spool.add, args=(run(4, 1, b"x" * 24),))
    adder.start()
    spool.encoded(claim_one(spool))
    adder.join(10)
    assert not adder.is_alive()


def test_claims_wait_for_the_strays_of_claimed_blocks(spool: Spool) -> None:
    spool.add(run(0, 1, b"a", b"b", b"c"))
    spool.complete()
    claimed: list[tuple[int, bytes, int]] = []

    def claim() -> None:
        claimed.extend((block.binding, content, block.line_of(0)) for block, content in claim_all(spool))

    block = claim_one(spool)
    other = threading.Thread(target=claim)
    other.start()
    spool.add_strays(1, [b"b\n"], [2])
    spool.encoded(block)
    other.join(10)
    assert claimed == [(1, b"b\n", 2)]


def test_a_failure_ends_both_sides_with_its_first_cause(spool: Spool) -> None:
    spool.add(run(0, 1, b"0123456789"))
    spool.fail(RetryableError("first"))
    spool.fail(RetryableError("second"))
    with pytest.raises(RetryableError, match="first"):
        spool.add(run(0, 2, b"b"))
    with pytest.raises(RetryableError, match="first"):
        spool.claim(None)
    spool.remove()


def test_more_pieces_than_one_write_takes_are_all_written(tmp_path: Path) -> None:
    lines = [str(number).encode() for number in range(3000)]
    spool = Spool(tmp_path / "spool")
    spool.add(run(0, 1, *lines))
    spool.complete()
    [(_, content)] = claim_all(spool)
    assert content.split() == lines


def test_a_disk_that_takes_no_more_is_an_error_that_says_what_to_do(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").rmdir()
    with pytest.raises(RetryableError) as error:
        spool.add(run(0, 1, b"a"))
    check_text(SNAPSHOTS, "a disk that takes no more", str(error.value), {str(tmp_path): "…"})


def test_who_waits_for_a_job_hears_of_a_failure_while_it_is_under_way(spool: Spool) -> None:
    job: Future[None] = Future()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(spool.wait_for, job)
        spool.fail(RetryableError("the disk is on fire"))
        heard, _ = wait([waiting], DEADLINE)
        job.set_result(None)
    assert heard
    with pytest.raises(RetryableError, match="on fire"):
        waiting.result()


def test_who_waits_for_a_job_goes_on_when_it_is_over(spool: Spool) -> None:
    job: Future[None] = Future()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(spool.wait_for, job)
        job.set_result(None)
        waiting.result(DEADLINE)


def test_rows_that_are_in_no_file_are_an_error(spool: Spool) -> None:
    spool.add(run(0, 1, b"a"))
    with pytest.raises(RetryableError) as error:
        spool.check_written()
    check_text(SNAPSHOTS, "rows that are in no file", str(error.value), {})
    spool.complete()
    with pytest.raises(RetryableError, match="written to no file"):
        spool.check_written()
    block = claim_one(spool)
    with pytest.raises(RetryableError, match="written to no file"):
        spool.check_written()
    spool.encoded(block)
    with pytest.raises(RetryableError, match="written to no file"):
        spool.check_written()
    spool.written([block])
    spool.check_written()
