"""A field whose type changes between two publications of a task: by real processes, with Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.collection import Field
from fixtures.conversation import CONFIG
from support.engines.readers import ledger_table
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

KEY, NOTE = LEDGER.fields


def task(directory: Path, note: Field, log: Any = None, **advanced: Any) -> Runtime:
    runtime = Runtime(directory, (replace(LEDGER, fields=(KEY, note)),), {**CONFIG, "advanced": advanced})
    runtime.log = log or {}
    return runtime


def notes(directory: Path) -> dict[int, Any]:
    table = ledger_table(directory)
    return {row["id"]: row["note"] for row in table.scan().to_arrow().to_pylist()}


INTEGER, TEXT = replace(NOTE, types=("integer",)), NOTE


def test_the_rows_that_are_there_and_those_that_were_staged_keep_their_values(tmp_path: Path) -> None:
    before = task(tmp_path, INTEGER)
    with before.open(publish=True) as session:
        session.transaction({"id": 1, "note": 10})
        session.transaction({"id": 2, "note": -20}, {"id": 3})
        session.stage_and_die({"id": 4, "note": 40})

    # The runtime gives apply no state: what is staged can only be finished by the session that opens next.
    after = task(tmp_path, TEXT, before.log)
    answer = after.apply()
    assert answer.body["actionDescription"] == (
        "alter table shop.ledger: convert column 'note' from long to string, in new data files"
    )
    assert notes(tmp_path) == {1: "10", 2: "-20", 3: None}
    with after.open() as session:
        assert notes(tmp_path)[4] == "40"
        session.transaction({"id": 5, "note": "fifty"})
    assert notes(tmp_path) == {1: "10", 2: "-20", 3: None, 4: "40", 5: "fifty"}
    assert after.apply().body == {}


def test_a_task_that_may_not_change_its_tables_says_what_would_have_to_change(tmp_path: Path) -> None:
    before = task(tmp_path, INTEGER)
    before.apply()
    strict = task(tmp_path, TEXT, before.log, schema_evolution="strict")
    outcome = strict.apply_and_fail()
    assert "Field 'note' has a column of type long, but its schema now needs string" in outcome.last_log_line
    assert "set schema_evolution to full, which converts its values" in outcome.last_log_line
