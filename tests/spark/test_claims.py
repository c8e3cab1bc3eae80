"""What a task says last is heard, whenever it says it."""

from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Client, Connection, Pipe
from typing import Any

import pytest

from connector.host.errors import RetryableError
from connector.model.state import DataFile
from connector.spark.blocks.block_transfer import OnThisMachine
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.claims import Next, TaskClaims, TaskFailed, Wrote
from connector.spark.blocks.ledger import Ledger, TaskOutput
from connector.spark.blocks.transaction_files import TableLayout
from connector.spark.jvm.jvm_ends import WORKER_ENDED
from spark.served_claims import add_a_row
from support.layouts import made_by
from support.snapshots import check_text

A_FILE = DataFile("file:///table/a.parquet", 1, 100, (4,), ())
GIVES_UP = TaskFailed(RetryableError("its disk is full"))


@pytest.fixture
def task(claims: ClaimServer) -> "Iterator[Connection[Any, Any]]":
    with Client(claims.address.socket, authkey=claims.address.secret) as connection:
        yield connection


def test_a_task_that_gives_up_while_it_waits_for_a_block_fails_the_transaction(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    add_a_row(ledger)
    task.send(Next(None))
    task.recv()
    task.send(Next(0))
    task.send(GIVES_UP)
    task.close()
    add_a_row(ledger)
    ledger.complete()
    claims.finish()
    with pytest.raises(RetryableError, match="its disk is full"):
        ledger.check()


def test_a_task_that_gives_up_when_there_are_no_more_blocks_fails_the_transaction(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    ledger.complete()
    task.send(Next(0))
    assert task.recv() is None
    task.send(GIVES_UP)
    task.close()
    claims.finish()
    with pytest.raises(RetryableError, match="its disk is full"):
        ledger.check()


def test_a_task_that_ends_in_the_middle_of_a_block_fails_the_transaction(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    add_a_row(ledger)
    ledger.complete()
    task.send(Next(None))
    task.recv()
    task.close()
    claims.finish()
    with pytest.raises(RetryableError) as error:
        ledger.check()
    check_text("spark_errors", "a task that ends too early", str(error.value))


def test_a_task_that_ends_after_its_last_block_ends_well(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    ledger.complete()
    task.send(Next(None))
    assert task.recv() is None
    task.close()
    claims.finish()
    ledger.check()


def test_an_error_that_nobody_has_foreseen_fails_the_transaction(ledger: Ledger) -> None:
    def make_layout() -> TableLayout:
        raise LookupError("no such layout")

    ours, of_task = Pipe()
    add_a_row(ledger)
    of_task.send(Next(None))
    with closing(ours), closing(of_task):
        claims = TaskClaims(ledger, made_by(make_layout), OnThisMachine(lambda: RetryableError(WORKER_ENDED)))
        with pytest.raises(LookupError, match="no such layout"):
            claims.answer(ours)
    with pytest.raises(LookupError, match="no such layout"):
        ledger.check()


def test_files_count_with_the_blocks_that_they_hold(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    add_a_row(ledger)
    ledger.complete()
    task.send(Next(None))
    task.recv()
    task.send(Next(0))
    assert task.recv() is None
    with pytest.raises(RetryableError, match="are in no data file"):
        ledger.close()
    task.send(Wrote(TaskOutput({0: (A_FILE,)})))
    task.recv()
    task.close()
    claims.finish()
    assert ledger.close().files == {0: (A_FILE,)}


def test_files_that_a_task_reports_after_its_transaction_has_failed_are_counted(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    """It does not delete them itself."""
    add_a_row(ledger)
    task.send(Next(None))
    task.recv()
    ledger.fail(RetryableError("its disk is full"))
    task.send(Next(0))
    with pytest.raises(EOFError):
        task.recv()
    task.send(Wrote(TaskOutput({0: (A_FILE,)})))
    task.close()
    claims.finish()
    assert ledger.files == {0: (A_FILE,)}
