"""A transaction that is not staged leaves no file, however its session ends: no later session could tell the files from
those of its own transaction before the next commit."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from fixtures.collection import Collection, Field
from fixtures.conversation import Row
from support.engines.readers import ledger_table, unreferenced_files
from support.sessions.connector_process import Outcome
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime, Session

pytestmark = pytest.mark.spark

NOTES: Final = Random(1)


def collection(table: str) -> Collection:
    """Of a table with small files, whose task stops at an invalid value."""
    return Collection(
        f"acmeCo/{table}",
        table,
        (
            Field("id", "/id", ("integer",), exists="MUST", is_key=True),
            Field("note", "/note", ("string",)),
            Field("amount", "/amount", ("integer",)),
        ),
        settings={"additional_table_properties": {"write.target-file-size-bytes": "1000000"}, "on_invalid": "stop"},
    )


@contextmanager
def open_transaction(directory: Path) -> Iterator[Session]:
    """A session in the middle of a transaction, after an earlier one. A data file is written, and its task waits for
    more rows."""
    runtime = Runtime(directory, [collection("ledger"), collection("visits")])
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        session.flush()
        for number in range(500):  # more than a block
            session.store({"id": number, "note": NOTES.randbytes(50_000).hex()})
        assert wait_until(lambda: unreferenced_files(directory, "ledger") != [])
        yield session


def stop_at_an_invalid_value(session: Session) -> Outcome:
    session.store_rows(Row(1, {"id": 1, "amount": "no number"}))
    session.send_start_commit()
    return session.connector.wait()


def end_by_a_signal(session: Session) -> Outcome:
    session.connector.process.send_signal(signal.SIGTERM)
    return session.connector.wait()


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (stop_at_an_invalid_value, 1),
        (end_by_a_signal, 128 + signal.SIGTERM),
        # tests/session/test_staged_transactions.py has this end of a transaction.
        pytest.param(Session.finish, 1, marks=pytest.mark.slow),
    ],
)
def test_a_transaction_that_is_not_staged_leaves_no_file(
    tmp_path: Path, end: Callable[[Session], Outcome], status: int
) -> None:
    with open_transaction(tmp_path) as session:
        assert end(session).status == status
    assert unreferenced_files(tmp_path, "ledger", "visits") == []
    assert ledger_table(tmp_path).scan().to_arrow()["id"].to_pylist() == [1]
