"""The runtime may load a key and not store it: it drops documents from before a capture has read its source again. The
key's row stays as it is."""

import json
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from fixtures.conversation import CONFIG, Row
from process.test_updates import USERS, make_user
from support.engines.readers import readers_catalog
from support.rows.updating_source import UpdatingSource
from support.sessions.runtime import Runtime, Session

pytestmark = pytest.mark.spark


def read_documents(directory: Path, reader: duckdb.DuckDBPyConnection) -> dict[int, Any]:
    """The documents of the users, by their keys. Each key has one row."""
    table = readers_catalog(directory / "warehouse").load_table("shop.users")
    rows = reader.execute("SELECT flow_document FROM iceberg_scan(?)", [table.metadata_location]).fetchall()
    documents = [json.loads(document) for (document,) in rows]
    assert len({document["id"] for document in documents}) == len(documents)
    return {document["id"]: document for document in documents}


def transact(session: Session, loaded: list[int], *stored: Row) -> None:
    """Load keys that are in the table, and store rows."""
    session.load(*([key] for key in loaded))
    assert sorted(document["id"] for _, document in session.flush()) == loaded
    session.store_rows(*stored)
    session.start_commit()
    session.acknowledge()


@pytest.mark.parametrize(
    ("hard_delete", "format_version"),
    [
        pytest.param(False, 2, marks=pytest.mark.slow),  # nothing of these keys depends on it
        pytest.param(True, 2, marks=pytest.mark.slow),
        (True, 3),
    ],
)
def test_the_row_of_a_key_that_is_loaded_and_not_stored_stays(
    tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection, hard_delete: bool, format_version: int
) -> None:
    config = {**CONFIG, "hard_delete": hard_delete, "advanced": {"format_version": format_version}}
    runtime = Runtime(tmp_path, (USERS,), config)
    users = UpdatingSource(USERS, make_user, Random(1), hard_delete=hard_delete)
    with runtime.open(publish=True) as session:
        users.transact(session, [[1], [2], [3], [4]])
        expected = read_documents(tmp_path, duckdb_reader)
        # Some of the loaded keys are stored.
        updated, deleted, added = make_user([1], 9), make_user([3], 10), make_user([5], 11)
        transact(session, [1, 2, 3, 4], Row(0, updated, exists=True), Row(0, deleted, True, True), Row(0, added))
        expected |= {1: updated, 3: deleted, 5: added}
        if hard_delete:
            del expected[3]
        assert read_documents(tmp_path, duckdb_reader) == expected
        # None is, and another row is new.
        expected[6] = make_user([6], 12)
        transact(session, [2, 4], Row(0, expected[6]))
        assert read_documents(tmp_path, duckdb_reader) == expected
        # None is, and nothing else comes.
        transact(session, [2, 4])
        assert read_documents(tmp_path, duckdb_reader) == expected
        # The next version of the key replaces its row.
        expected[2] = make_user([2], 13)
        transact(session, [2], Row(0, expected[2], exists=True))
        assert read_documents(tmp_path, duckdb_reader) == expected
        assert session.finish().status == 0
        assert "table shop.users: 2 key(s) were loaded and not stored" in session.connector.log
    assert not list((tmp_path / "warehouse").rglob("*-located.parquet*"))
