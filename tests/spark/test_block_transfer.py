"""Blocks that go through the object store: what a lost task had claimed is written by another, once."""

import errno
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from connector.encoding.parquet.file_options import Destination
from connector.host.errors import RetryableError
from connector.host.refresh import Lease
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import file_prefix
from connector.iceberg.fences.file_names import FileOrigin
from connector.model.properties import Properties
from connector.model.state import DataFile, WriterId
from connector.spark.blocks.block_transfer import ThroughTheStore
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.claims import Claim, Next, Strays, TaskClaims, Wrote
from connector.spark.blocks.ledger import Ledger, TaskOutput
from connector.spark.blocks.spool import Block, Spool
from connector.spark.blocks.transaction_files import TableLayout
from encoding.store_lines import binding, plain
from protocol.request import Store
from support.layouts import fixed, made_by
from support.sessions.processes import DEADLINE

WRITER = WriterId("acme/task", "orders.v1", "00000000-ffffffff")
TABLE = "6b1f1c1e-93d5-4d0e-8b7e-0f5b6a3c2d10"
A_FILE = DataFile("file:///table/a.parquet", 1, 100, (4,), ())
A_STRAY = Strays(1, [plain(9, "9")], [9])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Spool(tmp_path / "spool", block_size=1))  # every row may be claimed at once


@pytest.fixture
def layouts(tmp_path: Path) -> list[TableLayout]:
    """Of two tables."""
    prefix = file_prefix(WRITER, TABLE, fence.NONE)
    of_tables = [(binding(LongType(), index=index), f"file://{tmp_path}/table{index}") for index in (0, 1)]
    return [
        TableLayout(of, Destination(location, Properties(), prefix), Lease.until(Properties(), None))
        for of, location in of_tables
    ]


@pytest.fixture
def transfer(layouts: list[TableLayout]) -> ThroughTheStore:
    return ThroughTheStore(fixed(*layouts))


@pytest.fixture
def claims(ledger: Ledger, layouts: list[TableLayout], transfer: ThroughTheStore) -> Iterator[ClaimServer]:
    with closing(ClaimServer(("127.0.0.1", 0), "127.0.0.1")) as server:
        server.begin(ledger, fixed(*layouts), transfer)
        yield server


def add(ledger: Ledger, *keys: int) -> None:
    for key in keys:
        ledger.add(Store(0, key, 1, (plain(key, str(key)),)))


def claim(task: "Connection[Any, Any]") -> Claim | None:
    task.send(Next(0))
    assert task.poll(DEADLINE), "no block in time"
    claimed = task.recv()
    assert claimed is None or isinstance(claimed, Claim)
    return claimed


def content(claimed: Claim | None) -> bytes:
    assert claimed is not None
    with claimed.source.open(claimed.layout.io) as stream:
        return bytes(stream.read(1000))


def stored(directory: Path) -> list[Path]:
    return sorted(directory.glob("table*/data/*"))


def test_a_block_lies_among_its_tables_files_until_the_transaction_is_written(
    claims: ClaimServer, ledger: Ledger, transfer: ThroughTheStore, tmp_path: Path
) -> None:
    add(ledger, 1)
    ledger.complete()
    with claims.address.connect() as task:
        assert content(claim(task)) == plain(1, "1")
        assert list((tmp_path / "spool").iterdir()) == []
        [block] = stored(tmp_path)
        assert block.parent == tmp_path / "table0" / "data"
        assert FileOrigin.of(block.name) == FileOrigin(fence.writer_hash(WRITER), WRITER.key_range, TABLE, fence.NONE)
        assert claim(task) is None
        task.send(Wrote(TaskOutput({0: (A_FILE,)})))
        task.recv()
    claims.finish()
    ledger.close()
    assert stored(tmp_path) == [block]
    transfer.remove()
    assert stored(tmp_path) == []


def test_a_block_that_cannot_be_read_fails_the_transaction(claims: ClaimServer, ledger: Ledger, tmp_path: Path) -> None:
    add(ledger, 1)
    [block] = (tmp_path / "spool").iterdir()
    block.unlink()
    with claims.address.connect() as task:
        task.send(Next(0))
        with pytest.raises(EOFError):
            task.recv()
    with pytest.raises(RetryableError, match="rows cannot be read from"):
        ledger.check()


def test_a_block_of_which_the_spool_cannot_delete_its_file_is_claimed(
    claims: ClaimServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    add(ledger, 1)
    monkeypatch.setattr(Path, "unlink", refuse)
    with claims.address.connect() as task:
        assert content(claim(task)) == plain(1, "1")


def test_every_block_that_a_lost_task_had_claimed_is_claimed_again(
    claims: ClaimServer, ledger: Ledger, tmp_path: Path
) -> None:
    add(ledger, 1, 2, 3)
    ledger.complete()
    with claims.address.connect() as lost:
        claim(lost)
        claim(lost)
    with claims.address.connect() as other:
        contents = [content(claim(other)) for _ in range(3)]
        assert sorted(contents) == [plain(1, "1"), plain(2, "2"), plain(3, "3")]
        assert claim(other) is None
        assert len(stored(tmp_path)) == 3
        other.send(Wrote(TaskOutput({0: (A_FILE,)})))
        other.recv()
    claims.finish()
    assert ledger.close().files == {0: (A_FILE,)}


def test_a_task_that_is_lost_while_it_waits_gives_its_blocks_back(claims: ClaimServer, ledger: Ledger) -> None:
    add(ledger, 1)
    with claims.address.connect() as lost:
        claim(lost)
        lost.send(Next(0))
    with claims.address.connect() as other:
        assert content(claim(other)) == plain(1, "1")  # before there is any other block


class _LostMachine(Connection):
    """The connection to a task, when the system has found out that its machine is gone."""

    def __init__(self, descriptor: int, error: int) -> None:
        super().__init__(descriptor)
        self._error = error

    def send(self, obj: object) -> None:
        """Send blocks. The task is gone when it waits for the last answer."""
        if obj is None:
            raise OSError(self._error, os.strerror(self._error))
        super().send(obj)


@pytest.mark.parametrize("error", [errno.ETIMEDOUT, errno.EHOSTUNREACH], ids=errno.errorcode.get)
def test_a_task_whose_machine_is_gone_while_it_waits_gives_its_blocks_back(
    ledger: Ledger, layouts: list[TableLayout], transfer: ThroughTheStore, error: int
) -> None:
    """The system says so in many ways."""
    add(ledger, 1)
    ours, of_task = socket.socketpair()
    with _LostMachine(ours.detach(), error) as to_task, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(TaskClaims(ledger, fixed(layouts[0]), transfer).answer, to_task)
        with Connection(of_task.detach()) as lost:
            claim(lost)
            lost.send(Next(0))
        answering.result(DEADLINE)
    again = ledger.claim(ledger.begin_task(), 0)
    assert again is not None
    assert again.line_of(0) == 1


def test_what_a_lost_task_has_named_is_not_written_again(claims: ClaimServer, ledger: Ledger) -> None:
    add(ledger, 1, 2)
    ledger.complete()
    with claims.address.connect() as lost:
        claim(lost)
        claim(lost)
        lost.send(Wrote(TaskOutput({0: (A_FILE,)})))
        lost.recv()
    with claims.address.connect() as other:
        assert content(claim(other)) == plain(2, "2")
        assert claim(other) is None


@pytest.mark.parametrize("is_encoded", [False, True], ids=["in its middle", "encoded"])
def test_the_strays_of_a_block_that_is_written_again_are_rows_once(
    claims: ClaimServer, ledger: Ledger, is_encoded: bool
) -> None:
    add(ledger, 1)
    ledger.complete()
    with claims.address.connect() as lost:
        claim(lost)
        lost.send(A_STRAY)
        if is_encoded:
            assert content(claim(lost)) == plain(9, "9")
    with claims.address.connect() as other:
        contents = []
        while claimed := claim(other):
            contents.append(content(claimed))
            if contents[-1] == plain(1, "1"):
                other.send(A_STRAY)
    assert sorted(contents) == [plain(1, "1"), plain(9, "9")]


def test_blocks_that_cannot_be_removed_fail_no_transaction(
    ledger: Ledger, layouts: list[TableLayout], caplog: pytest.LogCaptureFixture
) -> None:
    """All files of the transaction are complete."""

    def make_layout() -> TableLayout:
        raise RetryableError("the credentials have expired")

    add(ledger, 1)
    block = ledger.claim(ledger.begin_task(), 0)
    assert block
    transfer = ThroughTheStore(made_by(make_layout))
    transfer.source(block, layouts[0])
    transfer.remove()
    assert "stay in the object store until a later session: the credentials have expired" in caplog.text


def test_blocks_may_be_copied_while_others_are_removed(
    ledger: Ledger, layouts: list[TableLayout], transfer: ThroughTheStore, tmp_path: Path
) -> None:
    """A failed transaction removes them while tasks may still claim blocks."""

    def copy(block: Block) -> None:
        transfer.source(block, layouts[0])

    class CopiesAnother(int):
        """A block's binding. Another task's block is copied while the blocks are listed."""

        def __hash__(self) -> int:
            while while_listed:
                copy(while_listed.pop())
            return super().__hash__()

    add(ledger, 1, 2, 3)
    first, second, third = (block for _ in range(3) if (block := ledger.claim(ledger.begin_task(), 0)))
    while_listed = list[Block]()
    copy(replace(first, binding=CopiesAnother(0)))
    copy(second)
    while_listed.append(third)
    transfer.remove()
    assert len(stored(tmp_path)) == 1


def test_a_block_that_nobody_has_written_in_the_end_is_an_error(claims: ClaimServer, ledger: Ledger) -> None:
    add(ledger, 1)
    ledger.complete()
    with claims.address.connect() as lost:
        claim(lost)
    claims.finish()
    with pytest.raises(RetryableError, match=r"1 block\(s\) of rows of binding\(s\) 0 are in no data file"):
        ledger.close()
