"""Rows that a table has refused land when it takes commits again, whether or not a transaction comes, and no end of a
session passes over them in silence."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.conversation import CONFIG
from support.engines.readers import ledger_ids, ledger_table, readers_catalog
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime, Session
from support.snapshots import check_text
from support.tables.local_tables import NO_COMMIT_CAN_FOLLOW, refusing_commits

pytestmark = pytest.mark.spark


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path)


@pytest.fixture
def session(runtime: Runtime) -> Iterator[Session]:
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        yield session


def entries(runtime: Runtime) -> int:
    return sum(len(by_next) for ranges in runtime.log["bindingStates"].values() for by_next in ranges.values())


def test_they_land_while_the_source_is_quiet_and_at_the_end_of_the_input(
    runtime: Runtime, session: Session, tmp_path: Path
) -> None:
    with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
        session.transaction({"id": 2})
        assert ledger_ids(tmp_path) == [1]
    assert wait_until(lambda: ledger_ids(tmp_path) == [1, 2])
    assert not session.connector.has_answered()
    assert entries(runtime) == 1
    session.transaction({"id": 3})
    assert entries(runtime) == 0

    # The last attempt, at the end of the input, heeds no pause.
    with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
        session.transaction({"id": 4})
    assert session.finish().status == 0
    assert ledger_ids(tmp_path) == [1, 2, 3, 4]


def test_the_end_of_the_input_with_rows_that_wait_is_an_error_that_names_them(
    runtime: Runtime, session: Session, tmp_path: Path
) -> None:
    with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
        session.transaction({"id": 2})
        outcome = session.finish()
    assert outcome.status == 1
    _, _, error = outcome.log.partition("error ")
    size = error.rpartition(" rows, ")[2].partition(" staged")[0]
    text = error.rstrip().replace("\n    ", "\n")  # the log indents further lines
    check_text("commit_errors", "the input ends, and rows of a process wait", text, {size: "<size>"})
    with runtime.open() as successor:
        assert ledger_ids(tmp_path) == [1, 2]
        assert successor.finish().status == 0
    assert entries(runtime) == 0


def test_a_task_that_has_stopped_goes_on_without_the_binding_of_the_table(tmp_path: Path) -> None:
    others = replace(LEDGER, table="others")
    runtime = Runtime(tmp_path, [LEDGER, others], {**CONFIG, "advanced": {"max_waiting_commits": 1}})
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        catalog = readers_catalog(tmp_path / "warehouse")
        with catalog.load_table("shop.ledger").transaction() as other_engine:
            other_engine.set_properties(NO_COMMIT_CAN_FOLLOW)
        session.transaction({"id": 2})
        session.flush()
        session.store({"id": 3})
        session.start_commit()
        session.send_acknowledge()
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert "By now 2 transactions" in outcome.last_log_line
    runtime.change([others])
    with runtime.open(publish=True) as session:
        session.transaction({"id": 4})
    assert catalog.load_table("shop.others").scan().to_arrow()["id"].to_pylist() == [4]
    assert entries(runtime) == 2


@pytest.mark.slow  # the text is that of the end of the input
def test_a_signal_with_rows_that_wait_is_followed_by_a_record_that_names_them(session: Session, tmp_path: Path) -> None:
    with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
        session.transaction({"id": 2})
        session.connector.process.send_signal(signal.SIGTERM)
        outcome = session.connector.wait()
    assert outcome.status == 143
    assert "table shop.ledger: 1 transaction(s), 1 rows" in outcome.last_log_line


def test_an_error_that_no_retry_can_mend_ends_a_session_whose_source_is_quiet(session: Session, tmp_path: Path) -> None:
    with refusing_commits(readers_catalog(tmp_path / "warehouse"), "shop.ledger"):
        session.transaction({"id": 2})
        with ledger_table(tmp_path).update_schema() as others:
            others.delete_column("note")
    outcome = session.connector.wait()  # its input is still open
    assert outcome.status == 1
    assert "shop.ledger" in outcome.last_log_line
    assert "'note'" in outcome.last_log_line
