"""What Flow's UI shows as the status of a task: the newest record with the field that Flow looks for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.conversation import Row
from support.engines.readers import readers_catalog
from support.sessions.runtime import LEDGER, Runtime, Session
from support.tables.local_tables import refusing_commits

pytestmark = pytest.mark.spark

UPDATED = replace(LEDGER, settings={"delta_updates": False})
RUNNING = "running: all committed transactions are in their tables"


def statuses(directory: Path) -> list[str]:
    records = map(json.loads, (directory / "connector.log").read_text().splitlines())
    return [record["msg"].partition(" rows, ")[0] for record in records if "eventType" in record]


def stage(session: Session, *rows: Row) -> None:
    session.load([1])
    session.flush()
    session.store_rows(*rows)
    session.start_commit()


def test_it_says_what_the_task_does(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, [UPDATED], environment={"LOG_FORMAT": "json"})
    with runtime.open(publish=True) as session:
        stage(session, Row(0, {"id": 1}))
        session.acknowledge()
        stage(session, Row(0, {"id": 1}, exists=True), Row(0, {"id": 2}))
        with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
            session.acknowledge()
        assert session.finish().status == 0
    assert statuses(tmp_path)[:7] == [
        "1 table(s) are open",
        "transaction 1: looking up 1 keys",
        "transaction 1: 1",
        RUNNING,
        "transaction 2: looking up 1 keys",
        "transaction 2: 2",
        "running, but 1 table(s) refuse commits, and their rows stay staged: shop.ledger",
    ]
    assert statuses(tmp_path)[7:] == [RUNNING], "a retry has committed the rows"


@pytest.mark.slow  # two sessions, for a part of one record
def test_it_says_that_a_backfill_awaits_its_first_rows(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, environment={"LOG_FORMAT": "json"})
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    runtime.backfill()
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    opened = "1 table(s) are open. A backfill replaces the rows of shop.ledger when the first new ones come"
    assert statuses(tmp_path)[-3:] == [opened, "transaction 1: 1", RUNNING]
