"""The files of a table too wide for the connector state are named by an object beside them."""

from pathlib import Path

import orjson
import pytest

from connector.spark.jobs.write_job import LONGEST_IN_STATE
from fixtures.collection import Collection, Field
from fixtures.conversation import Row
from support.engines.readers import ledger_ids, ledger_table
from support.sessions.processes import wait_until
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark


def wide(columns: int, table: str = "ledger") -> Collection:
    readings = (Field(f"reading_{number}", f"/reading_{number}", ("integer",)) for number in range(columns))
    fields = (Field("id", "/id", ("integer",), exists="MUST", is_key=True), *readings)
    return Collection(f"acmeCo/{table}", table, fields)


def lists(directory: Path) -> list[Path]:
    return sorted((directory / "warehouse").rglob("*-files.json"))


def wide_row(number: int) -> dict[str, int]:
    return {"id": number} | {f"reading_{column}": 10**17 + column for column in range(1500)}


def test_a_list_too_long_for_the_state_is_followed_by_the_successor_and_then_deleted(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, [wide(1500)])
    with runtime.open(publish=True) as session:
        session.stage_and_die(wide_row(1), wide_row(2))
    assert len(orjson.dumps(runtime.log)) < 1000 < LONGEST_IN_STATE < lists(tmp_path)[0].stat().st_size
    assert ledger_ids(tmp_path) == []
    with runtime.open() as session:
        assert ledger_ids(tmp_path) == [1, 2]
        session.transaction(wide_row(3), wide_row(4))
        session.transaction(wide_row(5), wide_row(6))
        assert wait_until(lambda: len(lists(tmp_path)) == 1)  # that of the last commit, which the state still names
    assert ledger_ids(tmp_path) == [1, 2, 3, 4, 5, 6]
    statistics = ledger_table(tmp_path).inspect.files()["column_sizes"].to_pylist()
    assert [len(sizes) for sizes in statistics] == [1502, 1502, 1502]
    with runtime.open():
        assert wait_until(lambda: lists(tmp_path) == [])


@pytest.mark.slow  # tests/spark/test_write_job.py has the rooms
def test_a_shard_with_few_keys_has_little_room_for_lists_in_the_state(tmp_path: Path) -> None:
    """All shards share the state. Each of the two lists is short enough by itself."""
    runtime = Runtime(tmp_path, [wide(1000), wide(1000, "visits")], shards_share_state=True)
    with runtime.open({"keyEnd": 0xFFFF, "rClockEnd": 0xFFFFFFFF}, publish=True) as session:
        session.flush()
        session.store_rows(Row(0, wide_row(1)), Row(1, wide_row(2)))
        staged = session.start_commit()
        session.acknowledge()
        assert [list_.stat().st_size < LONGEST_IN_STATE for list_ in lists(tmp_path)] == [True]
    assert LONGEST_IN_STATE / 2 < len(orjson.dumps(staged)) < LONGEST_IN_STATE
    assert ledger_ids(tmp_path) == [1]
