"""Tables with partitions and a sort order, through the real process and Spark: what lands, in how many files."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.engines.readers import ledger_table
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

ARRANGED = replace(
    LEDGER, settings={"partition_by": "truncate(100, id)", "sort_by": "note desc", "delta_updates": True}
)


def test_a_transaction_makes_one_sorted_file_for_each_partition(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, [ARRANGED])
    with runtime.open(publish=True) as session:
        for first in (0, 250):
            session.transaction(*({"id": n, "note": f"{n * 7919 % 1000:04}"} for n in range(first, first + 250)))
        assert session.finish().status == 0

    files = [task.file for task in ledger_table(tmp_path).scan().plan_files()]
    # The second transaction begins in the middle of the third partition.
    assert sorted(file.partition[0] for file in files) == [0, 100, 200, 200, 300, 400]
    for file in files:
        rows = pq.read_table(file.file_path.removeprefix("file://"))
        assert {number // 100 * 100 for number in rows["id"].to_pylist()} == {file.partition[0]}
        notes = rows["note"].to_pylist()
        assert notes == sorted(notes, reverse=True)
    ids = ledger_table(tmp_path).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(500))
