"""A catalog answers a session with a table as it was before its last commit: from a replica that lags, or a cache."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from fixtures.collection import Collection, Field
from fixtures.conversation import line
from support.engines.readers import readers_catalog
from support.rows.updating_source import UpdatingSource
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime, Session

pytestmark = pytest.mark.spark
OLDER: Final = "the catalog answers with an older table"
USERS: Final = Collection(
    "acmeCo/users",
    "users",
    (Field("id", "/id", ("integer",), exists="MUST", is_key=True), Field("note", "/note", ("string",))),
    settings={"delta_updates": False},
)


def make_user(key: Any, version: int) -> Any:
    return {"id": key[0], "note": f"version {version}"}


def swap_metadata(warehouse: Path) -> None:
    """Let the catalog answer with the metadata file before the one that it answers with, or again with that one."""
    with closing(sqlite3.connect(warehouse / "catalog.db")) as database, database:
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = previous_metadata_location, "
            "previous_metadata_location = metadata_location WHERE table_name = 'users'"
        )


@contextmanager
def older_answers(warehouse: Path) -> Iterator[None]:
    swap_metadata(warehouse)
    try:
        yield
    finally:
        swap_metadata(warehouse)


@contextmanager
def open_on_older(runtime: Runtime) -> Iterator[Session]:
    """Open a session, while the catalog answers with an older table for a moment."""
    with older_answers(runtime.directory / "warehouse"):
        session = runtime.start()
        seen = wait_until(lambda: session.connector.log.count("attempt 1 to open the tables") > 0)
    with session:
        assert seen, session.connector.log
        session.opened()
        session.acknowledge()
        yield session


@pytest.mark.slow  # tests/session/test_restored_tables.py binds this table again
def test_the_first_session_after_a_backfill_begins_with_the_table_that_the_backfill_has_left(tmp_path: Path) -> None:
    """What it staged for the table of before could not be added."""
    runtime = Runtime(tmp_path, (replace(USERS, settings={}),))
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1, "note": "of before"})
    runtime.backfill()
    runtime.apply()
    with open_on_older(runtime) as session:
        session.transaction({"id": 2, "note": "of after"})
    table = readers_catalog(tmp_path / "warehouse").load_table(("shop", "users"))
    assert table.scan().to_arrow().column("id").to_pylist() == [2]


def load_from_older(session: Session, directory: Path, users: UpdatingSource) -> None:
    """All users are loaded, while the catalog answers with an older table for a moment."""
    send_loads(session, directory, OLDER)
    users.check_loaded([[1], [2]], [session.connector.expect("loaded")["doc"] for _ in range(2)])
    session.connector.expect("flushed")


def send_loads(session: Session, directory: Path, said: str) -> None:
    before = session.connector.log.count(said)  # of earlier sessions, too
    with older_answers(directory / "warehouse"):
        session.load([1], [2])
        session.connector.send(line("flush", {}))
        assert wait_until(lambda: session.connector.log.count(said) > before)


def test_sessions_and_their_loads_begin_with_the_last_commit_of_their_session_or_of_the_one_before(
    tmp_path: Path,
) -> None:
    runtime, users = Runtime(tmp_path, (USERS,)), UpdatingSource(USERS, make_user, Random(1))
    with runtime.open(publish=True) as session:
        users.transact(session, [[1], [2]])
        users.transact(session, [[1], [2]])
        load_from_older(session, tmp_path, users)
    with runtime.open() as session:  # it recovers the last commit
        load_from_older(session, tmp_path, users)
        session.start_commit()
        session.acknowledge()
    with open_on_older(runtime) as session:  # it has nothing to recover
        load_from_older(session, tmp_path, users)
    runtime.backfill()
    with runtime.open(publish=True) as session:
        send_loads(session, tmp_path, f"{OLDER}: as it was before the backfill")
        session.connector.expect("flushed")
