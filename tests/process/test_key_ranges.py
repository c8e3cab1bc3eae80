"""A shard that holds a part of the key range, and the runtimes on which it may."""

from pathlib import Path
from typing import Any

import pytest

from support.engines.readers import ledger_table
from support.sessions.runtime import Runtime
from support.snapshots import check_text

pytestmark = pytest.mark.spark

LEFT = {"keyEnd": 0x7FFFFFFF, "rClockEnd": 0xFFFFFFFF}
RIGHT = {"keyBegin": 0x80000000, "keyEnd": 0xFFFFFFFF, "rClockEnd": 0xFFFFFFFF}


@pytest.mark.parametrize(
    ("held", "part"),
    [
        (LEFT, "a part of the keys"),
        pytest.param({"keyEnd": 0xFFFFFFFF, "rClockEnd": 0x7FFFFFFF}, "a part of the r-clock", marks=pytest.mark.slow),
    ],
)
def test_a_part_of_the_range_is_refused_where_each_shard_keeps_a_state_of_its_own(
    tmp_path: Path, held: Any, part: str
) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()
    outcome = runtime.open_and_fail(held)
    assert outcome.status == 1
    check_text("session_errors", part, outcome.last_log_line.partition(" error ")[2])


def test_two_shards_append_to_one_table_side_by_side(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, shards_share_state=True)
    with runtime.open(LEFT, publish=True) as left, runtime.open(RIGHT) as right:
        left.transaction({"id": 1})
        right.transaction({"id": 2})
        left.transaction({"id": 3})
    table = ledger_table(tmp_path)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    ranges = {name.rpartition(".")[2] for name in table.properties if name.startswith("flow.fence.")}
    assert ranges == {"00000000-7fffffff", "80000000-ffffffff"}
