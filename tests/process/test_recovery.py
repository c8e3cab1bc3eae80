"""What a crashed session staged is finished by the next one, however long its upload interval is.

Every other fault is in tests/crash."""

from pathlib import Path

import pytest

from fixtures.conversation import CONFIG
from support.engines.readers import ledger_ids, ledger_table
from support.rows.staged_files import finished_state
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark


def test_a_committed_transaction_is_applied_by_the_successor(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, config={**CONFIG, "upload_interval": "PT4H"})
    with runtime.open(publish=True) as session:
        session.stage_and_die({"id": 1}, {"id": 2})
    assert ledger_ids(tmp_path) == []
    with runtime.open() as session:
        assert ledger_ids(tmp_path) == [1, 2]
        session.transaction({"id": 3})
    assert ledger_ids(tmp_path) == [1, 2, 3]
    assert runtime.log == finished_state(LEDGER.state_key, ledger_table(tmp_path))
