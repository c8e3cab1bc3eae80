"""Acknowledgements of small transactions are held for the upload interval, and for nothing longer than it helps."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.driver import QUICK_TRANSACTIONS
from fixtures.conversation import CONFIG, line
from support.processes import wait_until
from support.readers import local_catalog
from support.runtime import Runtime, Session

pytestmark = pytest.mark.spark

ROWS = QUICK_TRANSACTIONS + 1


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Session]:
    """A session that has committed a transaction and holds its acknowledgement for four hours."""
    runtime = Runtime(tmp_path, config={**CONFIG, "upload_interval": "PT4H"})
    runtime.apply()
    with runtime.open() as session:
        for number in range(QUICK_TRANSACTIONS):
            session.transaction({"id": number})
        session.flush()
        session.store({"id": QUICK_TRANSACTIONS})
        session.start_commit()
        session.send_acknowledge()
        assert wait_until(lambda: "waiting until" in session.connector.log)
        assert not session.connector.has_answered()
        yield session


@pytest.mark.usefixtures("held")
def test_the_rows_are_visible_while_the_acknowledgement_is_held(tmp_path: Path) -> None:
    assert local_catalog(tmp_path / "warehouse").load_table("shop.ledger").scan().to_arrow().num_rows == ROWS


def test_a_flush_that_is_there_already_ends_the_wait(held: Session) -> None:
    held.connector.send(line("flush", {}))
    held.connector.expect("acknowledged")
    held.connector.expect("flushed")


def test_the_end_of_the_input_ends_the_wait(held: Session) -> None:
    outcome = held.finish()
    assert (outcome.status, outcome.kinds[-1]) == (0, "acknowledged")


def test_a_signal_ends_the_wait(held: Session) -> None:
    held.connector.process.send_signal(signal.SIGTERM)
    outcome = held.connector.wait()
    assert (outcome.status, outcome.kinds[-1]) == (143, "acknowledged")
