"""A large transaction is written while it is still being read."""

from pathlib import Path
from random import Random

import pytest

from support.engines.readers import ledger_table
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark

ROWS = 1500
NOTES = Random(1)


def new_note() -> str:
    """A note of 100 kB, of which a file has half. So many of them are more than a writer holds back."""
    return NOTES.randbytes(50_000).hex()


def test_data_files_grow_before_the_last_store_is_read(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()

    def written() -> int:
        return sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))

    with runtime.open() as session:
        session.flush()
        for number in range(ROWS):
            session.store({"id": number, "note": new_note()})
        assert wait_until(lambda: written() > 0)
        session.store({"id": ROWS, "note": new_note()})
        session.start_commit()
        session.acknowledge()
        assert session.finish().status == 0
    table = ledger_table(tmp_path)
    assert sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == list(range(ROWS + 1))
