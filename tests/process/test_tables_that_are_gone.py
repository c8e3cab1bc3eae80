"""A table is renamed by another engine while rows are staged for it: what the errors advise works, step by step."""

from pathlib import Path

import pytest

from support.engines.readers import readers_catalog
from support.sessions.runtime import Runtime

pytestmark = pytest.mark.spark
TABLE, AWAY, SPARE = ("shop", "ledger"), ("shop", "away"), ("shop", "spare")
GONE = "table shop.ledger is gone, and the task's state names 2 rows"
IN_THE_WAY = "first rename or drop the table that is named shop.ledger now, then bring the old table back"


class Shop:
    """A task with two rows staged, and its catalog."""

    def __init__(self, directory: Path, *, tells_apply_state: bool) -> None:
        self.runtime = Runtime(directory)
        self.runtime.tells_apply_state = tells_apply_state
        with self.runtime.open(publish=True) as session:
            session.stage_and_die({"id": 1}, {"id": 2})
        self.catalog = readers_catalog(directory / "warehouse")

    def refuses_to_open(self, message: str) -> None:
        outcome = self.runtime.open_and_fail()
        assert outcome.status == 1
        assert message in outcome.last_log_line

    def refuses_to_be_published(self, message: str) -> None:
        outcome = self.runtime.apply_and_fail()
        assert outcome.status == 1
        assert message in outcome.last_log_line

    def lands(self, *ids: int) -> None:
        with self.runtime.open() as session:
            session.transaction(*({"id": each} for each in ids))
            assert session.finish().status == 0

    def ids(self) -> list[int]:
        return sorted(self.catalog.load_table(TABLE).scan().to_arrow()["id"].to_pylist())


def test_the_table_is_brought_back_and_has_its_rows_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path, tells_apply_state=True)
    shop.catalog.rename_table(TABLE, AWAY)
    shop.refuses_to_open(GONE)
    shop.refuses_to_be_published(GONE)
    assert not shop.catalog.table_exists(TABLE)

    shop.catalog.rename_table(AWAY, TABLE)
    shop.runtime.apply()
    shop.lands(3)
    assert shop.ids() == [1, 2, 3]


@pytest.mark.slow  # four sessions: tests/iceberg/test_bound_table.py has the error
def test_a_table_for_which_nothing_is_staged_is_brought_back(tmp_path: Path) -> None:
    shop = Shop(tmp_path, tells_apply_state=True)
    shop.lands(3)
    shop.catalog.rename_table(TABLE, AWAY)
    shop.refuses_to_open("table shop.ledger does not exist. If it was dropped or renamed, bring it back")
    shop.catalog.rename_table(AWAY, TABLE)
    shop.lands(4)
    assert shop.ids() == [1, 2, 3, 4]


@pytest.mark.slow  # three sessions for what an operator may do by mistake
def test_where_apply_is_told_no_state_the_new_table_is_moved_out_of_the_way(tmp_path: Path) -> None:
    shop = Shop(tmp_path, tells_apply_state=False)
    shop.catalog.rename_table(TABLE, AWAY)
    shop.runtime.apply()
    assert shop.ids() == []
    shop.refuses_to_open(IN_THE_WAY)

    shop.catalog.rename_table(TABLE, SPARE)
    shop.catalog.rename_table(AWAY, TABLE)
    shop.lands(3)
    assert shop.ids() == [1, 2, 3]


@pytest.mark.slow  # sessions of a backfill are in test_updates.py, and its plans in tests/rpc
@pytest.mark.parametrize(("is_in_the_way", "tells_apply_state"), [(False, True), (True, False)])
def test_the_binding_is_backfilled_and_goes_on(tmp_path: Path, is_in_the_way: bool, tells_apply_state: bool) -> None:
    shop = Shop(tmp_path, tells_apply_state=tells_apply_state)
    shop.catalog.rename_table(TABLE, AWAY)
    if is_in_the_way:
        Runtime(tmp_path).apply()
        shop.refuses_to_open(IN_THE_WAY)

    shop.runtime.backfill()
    shop.runtime.apply()
    shop.lands(1, 2, 3)
    assert shop.ids() == [1, 2, 3]


@pytest.mark.slow  # tests/iceberg has the error, and each session here publishes its task first
def test_a_table_that_was_never_made_is_made_by_publishing_the_task(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    assert "has never made it, publish the task again" in runtime.open_and_fail().last_log_line
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
