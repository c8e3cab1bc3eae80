"""What a killed session left beside a table goes when a later one opens."""

from pathlib import Path

import pytest

from support.engines.readers import ledger_table
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark


def test_what_was_staged_and_never_committed_is_deleted_once_the_table_has_moved_on(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    with runtime.open(publish=True) as session:
        session.stage_and_die({"id": 1}, commits=False)
    [left] = data_files(tmp_path)
    with runtime.open() as session:
        session.transaction({"id": 2})
    assert left in data_files(tmp_path)
    with runtime.open() as session:
        session.transaction({"id": 3})
        assert wait_until(lambda: left not in data_files(tmp_path))
    table = ledger_table(tmp_path)
    referenced = table.inspect.files()["file_path"].to_pylist()
    assert sorted(referenced) == sorted(f"file://{path}" for path in data_files(tmp_path))


def data_files(directory: Path) -> set[Path]:
    return set((directory / "warehouse").rglob("*.parquet"))
