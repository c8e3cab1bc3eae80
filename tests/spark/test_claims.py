"""What a task says last is heard, whenever it says it."""

import socket
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from connector.host.errors import RetryableError
from connector.host.refresh import Lease
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.spark.block_transfer import OnThisMachine
from connector.spark.claims import ClaimServer, Failed, Next, Wrote
from connector.spark.ledger import Ledger
from connector.spark.spark_session import WORKER_ENDED
from connector.spark.spool import Spool
from connector.spark.table_files import TableLayout
from encoding.store_lines import binding, plain
from protocol.request import Store
from support.snapshots import check_text

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "spark_errors.json"
DEADLINE = 20.0  # seconds
A_FILE = DataFile("file:///table/a.parquet", 1, 100, (4,), ())
GIVES_UP = Failed(RetryableError("its disk is full"))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Spool(tmp_path / "spool", block_size=1))  # every row may be claimed at once


@pytest.fixture
def claims(tmp_path: Path, ledger: Ledger) -> Iterator[ClaimServer]:
    layout = TableLayout(
        binding(LongType(), index=0), f"file://{tmp_path}", Properties(), "prefix", Lease.until(Properties(), None)
    )
    with closing(ClaimServer(str(tmp_path / "claims"))) as server:
        server.begin(ledger, [lambda: layout], OnThisMachine(lambda: RetryableError(WORKER_ENDED)))
        yield server


@pytest.fixture
def task(claims: ClaimServer) -> "Iterator[Connection[Any, Any]]":
    with Client(claims.address.socket, authkey=claims.address.secret) as connection:
        yield connection


def add_a_row(ledger: Ledger) -> None:
    ledger.add(Store(0, 1, 1, (plain(1, "1"),)))


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
    check_text(SNAPSHOTS, "a task that ends too early", str(error.value), {})


def test_a_task_that_ends_after_its_last_block_ends_well(
    claims: ClaimServer, task: "Connection[Any, Any]", ledger: Ledger
) -> None:
    ledger.complete()
    task.send(Next(None))
    assert task.recv() is None
    task.close()
    claims.finish()
    ledger.check()


def test_who_connects_and_says_nothing_holds_up_nobody(claims: ClaimServer, ledger: Ledger) -> None:
    add_a_row(ledger)
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect(claims.address.socket)
        with claims.address.connect() as task:
            task.send(Next(None))
            assert task.poll(DEADLINE)


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
        ledger.close("table {}".format)
    task.send(Wrote([(0, (A_FILE,))]))
    task.recv()
    task.close()
    claims.finish()
    assert ledger.close("table {}".format).files == {0: (A_FILE,)}
