"""What a crashed session staged is finished by the next one, once; the consistency suite will add every other fault."""

from pathlib import Path

import pytest

from fixtures.conversation import CONFIG
from support.readers import local_catalog
from support.runtime import Runtime

pytestmark = pytest.mark.spark


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    runtime = Runtime(tmp_path, config={**CONFIG, "upload_interval": "PT4H"})  # which delays no recovery
    runtime.apply()
    return runtime


def ids(directory: Path) -> list[int]:
    table = local_catalog(directory / "warehouse").load_table("shop.ledger")
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_a_committed_transaction_is_applied_by_the_successor(runtime: Runtime, tmp_path: Path) -> None:
    with runtime.open() as session:
        session.stage_and_die({"id": 1}, {"id": 2})
    assert ids(tmp_path) == []
    with runtime.open() as session:
        assert ids(tmp_path) == [1, 2]
        session.transaction({"id": 3})
    assert ids(tmp_path) == [1, 2, 3]
    assert runtime.log == {"bindingStates": {"shop%2Fledger.v0": {"00000000-ffffffff": {}}}}


def test_an_uncommitted_transaction_never_shows(runtime: Runtime, tmp_path: Path) -> None:
    with runtime.open() as session:
        session.stage_and_die({"id": 1}, commits=False)
    with runtime.open() as session:
        session.transaction({"id": 2})
    assert ids(tmp_path) == [2]


def test_a_transaction_whose_acknowledgement_was_lost_is_not_applied_again(runtime: Runtime, tmp_path: Path) -> None:
    with runtime.open() as session:
        session.flush()
        session.store({"id": 1})
        session.start_commit()
        log = runtime.log
        session.acknowledge()
        session.connector.kill()
    runtime.log = log
    with runtime.open() as session:
        session.transaction({"id": 2})
    assert ids(tmp_path) == [1, 2]


def test_an_older_process_is_fenced_once_its_successor_has_committed(runtime: Runtime, tmp_path: Path) -> None:
    with runtime.open() as older, runtime.open() as successor:
        older.flush()
        older.store({"id": 1})
        older.start_commit(commits=False)
        successor.transaction({"id": 2})
        older.send_acknowledge()
        outcome = older.connector.wait()
    assert outcome.status == 1
    assert "another process has taken over acmeCo/task" in outcome.last_log_line
    assert ids(tmp_path) == [2]
