"""A large transaction is written while it is still being read."""

from pathlib import Path
from random import Random

import pytest

from support.engines.readers import ledger_table
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark

ROWS = 1500
NOTE = Random(1).randbytes(50_000).hex()  # compressed it is still larger than what file systems hold back


def test_data_files_grow_before_the_last_store_is_read(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()

    def written() -> int:
        return sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))

    with runtime.open() as session:
        session.flush()
        for number in range(ROWS):
            session.store({"id": number, "note": NOTE})
        assert wait_until(lambda: written() > 0)
        session.store({"id": ROWS, "note": NOTE})
        session.start_commit()
        session.acknowledge()
        assert session.finish().status == 0
    table = ledger_table(tmp_path)
    assert sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == list(range(ROWS + 1))
