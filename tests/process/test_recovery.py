"""What a crashed session staged is finished by the next one, however long its upload interval is.

Every other fault is in tests/crash."""

from pathlib import Path

import pytest

from fixtures.conversation import CONFIG
from support.readers import local_catalog
from support.runtime import LEDGER, Runtime
from support.staged_files import finished_state

pytestmark = pytest.mark.spark


def ids(directory: Path) -> list[int]:
    table = local_catalog(directory / "warehouse").load_table("shop.ledger")
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_a_committed_transaction_is_applied_by_the_successor(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, config={**CONFIG, "upload_interval": "PT4H"})
    with runtime.open(publish=True) as session:
        session.stage_and_die({"id": 1}, {"id": 2})
    assert ids(tmp_path) == []
    with runtime.open() as session:
        assert ids(tmp_path) == [1, 2]
        session.transaction({"id": 3})
    assert ids(tmp_path) == [1, 2, 3]
    assert runtime.log == finished_state(
        LEDGER.state_key, local_catalog(tmp_path / "warehouse").load_table("shop.ledger")
    )
