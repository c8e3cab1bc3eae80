"""Acknowledgements of small transactions are held for the upload interval, and for no longer than it helps."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from connector.session.upload_interval import QUICK_TRANSACTIONS
from fixtures.conversation import CONFIG, line
from support.engines.readers import ledger_table, readers_catalog
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime, Session
from support.sessions.scraping import scrape
from support.tables.local_tables import refusing_commits

pytestmark = pytest.mark.spark

ROWS = QUICK_TRANSACTIONS + 1


INTERVAL: Mapping[str, Any] = {"upload_interval": "PT4H"}


def open_session(directory: Path, advanced: Mapping[str, Any], interval: Mapping[str, Any] = INTERVAL) -> Session:
    """A session that holds acknowledgements for four hours from its next transaction on."""
    runtime = Runtime(directory, config={**CONFIG, **interval, "advanced": advanced})
    session = runtime.open(publish=True)
    for number in range(QUICK_TRANSACTIONS):
        session.transaction({"id": number})
    return session


def stage(session: Session, rows: int, note: str = "") -> None:
    """Stage a transaction and ask for its acknowledgement."""
    session.flush()
    session.store(*({"id": number, "note": note} for number in range(rows)))
    session.start_commit()
    session.send_acknowledge()


def check_held(session: Session, times: int = 1) -> None:
    assert wait_until(lambda: session.connector.log.count("acknowledgement is held") == times)
    assert not session.connector.has_answered()


# On V1, a session holds as in the next test.
@pytest.mark.parametrize("is_on_v2", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_nothing_is_held_while_the_runtime_itself_commits_by_a_schedule(tmp_path: Path, *, is_on_v2: bool) -> None:
    """The schedule of a task has no effect in Flow's V1 runtime."""
    runtime = Runtime(tmp_path, config={**CONFIG, **INTERVAL}, shards_share_state=is_on_v2)
    runtime.schedule({"baseInterval": "30s"})
    with runtime.open(publish=True) as session:
        for number in range(QUICK_TRANSACTIONS):
            session.transaction({"id": number})
        stage(session, rows=1)
        if is_on_v2:
            session.acknowledged()
            assert "acknowledgement is held" not in session.connector.log
        else:
            check_held(session)
            session.connector.send(line("flush", {}))
            session.acknowledged()


def test_the_rows_are_visible_while_the_acknowledgement_is_held_until_a_flush_or_a_signal_comes(tmp_path: Path) -> None:
    address = free_address()
    with open_session(tmp_path, {"metrics": {"listen": address}}) as session:
        stage(session, rows=1)
        check_held(session)
        assert ledger_table(tmp_path).scan().to_arrow().num_rows == ROWS
        held = scrape(address)
        assert not held.values("oldest_waiting_row_timestamp_seconds")
        assert held.value("held_until_timestamp_seconds") > time.time() + 3 * 3600
        # Flow may repeat an acknowledge. That commits nothing, is not held, and does not count as a transaction.
        session.connector.send(*(line("acknowledge", {}) for _ in range(2)), line("flush", {}))
        assert session.acknowledged()["state"]
        assert [session.acknowledged() for _ in range(2)] == [{}, {}]
        session.connector.expect("flushed")
        ended = scrape(address)
        assert ended.value("held_until_timestamp_seconds") <= time.time()
        assert ended.value("transactions_total") == ended.value("commits_total") == ROWS
        assert ledger_table(tmp_path).scan().to_arrow().num_rows == ROWS

        session.store({"id": ROWS})
        session.start_commit()
        session.send_acknowledge()
        check_held(session, times=2)
        assert ledger_table(tmp_path).scan().to_arrow().num_rows == ROWS + 1
        session.connector.process.send_signal(signal.SIGTERM)
        outcome = session.connector.wait()
    assert (outcome.status, outcome.kinds[-1]) == (143, "acknowledged")


def test_a_schedule_holds_acknowledgements_too_also_of_rows_that_their_table_refuses(tmp_path: Path) -> None:
    """Otherwise a busy source would soon have more transactions waiting than `max_waiting_commits` allows."""
    schedule = {"upload_interval": None, "syncSchedule": {"syncFrequency": "4h"}}
    with open_session(tmp_path, {}, schedule) as session:
        with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
            stage(session, rows=1)
            check_held(session)
        outcome = session.finish()
    assert (outcome.status, outcome.kinds[-1]) == (0, "acknowledged")
    assert ledger_table(tmp_path).scan().to_arrow().num_rows == ROWS


@pytest.mark.slow  # tests/session/test_upload_interval.py has both limits
def test_a_transaction_that_reaches_a_limit_is_acknowledged_at_once_and_a_smaller_one_is_held(tmp_path: Path) -> None:
    with open_session(tmp_path, {"commit_after_rows": 50, "commit_after_bytes": 20_000}) as session:
        for rows, note in (50, ""), (2, Random(1).randbytes(30_000).hex()):
            for _ in range(2):
                stage(session, rows, note)
                session.acknowledged()
        assert "acknowledgement is held" not in session.connector.log
        stage(session, 49)
        check_held(session)
        assert session.finish().status == 0
