"""A catalog is restored from an older copy while its task is stopped: the task does not continue without the rows that
its tables have lost."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from connector.cli.commands.fence_command import FenceArguments, reset, show
from connector.cli.flow.flow_files import ConfigFile
from connector.host.errors import UserError
from connector.iceberg.commits.reset import Decision
from fixtures.collection import Collection
from fixtures.conversation import CONFIG, Row
from support.engines.readers import readers_catalog
from support.repository import REPOSITORY
from support.sessions.runtime import LEDGER, Runtime, Session

pytestmark = pytest.mark.spark
OTHER: Final = Collection("acmeCo/journal", "journal", LEDGER.fields)
WHOLE: Final = "00000000-ffffffff"
IMPATIENT: Final = "support.sessions.impatient_connector"  # each older table is read again for a while
PATHS: Final = {"PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "tests")))}


class Shop:
    """A task of two tables. The first one gets a row a day; the second one also gets the last transaction of each day.
    So the state names no staged commit of the first one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runtime = Runtime(
            directory, (LEDGER, OTHER), environment=PATHS, shards_share_state=True, module=(IMPATIENT,)
        )

    @contextmanager
    def opened(self) -> Iterator[Session]:
        """The first session. Its catalog is copied before and after the first day."""
        with self.runtime.open(publish=True) as session:
            self.copy("empty")
            self.day(session, 1)
            self.copy("day-1")
            yield session

    def day(self, session: Session, number: int) -> None:
        for rows in ((Row(0, {"id": number}), Row(1, {"id": number})), (Row(1, {"id": number + 100}),)):
            session.flush()
            session.store_rows(*rows)
            session.start_commit()
            session.acknowledge()

    def copy(self, name: str) -> None:
        with closing(sqlite3.connect(self._catalog)) as catalog, closing(sqlite3.connect(self._place(name))) as copy:
            catalog.backup(copy)

    def restore(self, name: str) -> None:
        shutil.copy(self._place(name), self._catalog)

    @property
    def _catalog(self) -> Path:
        return self.directory / "warehouse" / "catalog.db"

    def _place(self, copy: str) -> Path:
        return self.directory / f"{copy}.db"

    def ids(self, table: str = "ledger") -> list[int]:
        rows = readers_catalog(self.directory / "warehouse").load_table(("shop", table)).scan().to_arrow()
        return sorted(rows["id"].to_pylist())

    def place(self, table: str) -> FenceArguments:
        config, state = self.directory / "config.json", self.directory / "state.json"
        catalog = {"catalog_type": "Local", "warehouse": str(self.directory / "warehouse")}
        config.write_text(json.dumps({**CONFIG, "catalog": catalog}))
        state.write_text(json.dumps(self.runtime.log))
        return FenceArguments(ConfigFile(str(config)), f"shop.{table}", "acmeCo/task", str(state))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def live_for_two_days(shop: Shop) -> None:
    with shop.opened() as session:
        shop.day(session, 2)
        shop.day(session, 3)
        assert session.finish().status == 0


def test_the_task_does_not_continue_on_an_older_table_until_an_operator_gives_the_rows_up(shop: Shop) -> None:
    live_for_two_days(shop)
    before = shop.runtime.log
    for copy, ids in (("empty", []), ("day-1", [1])):
        shop.restore(copy)
        error = shop.runtime.open_and_fail().last_log_line
        assert f"table shop.ledger lacks the last {3 - len(ids)} transaction(s) of acmeCo/task" in error, copy
        assert ("is absent" in error) is (not ids)
        assert shop.runtime.log == before
        assert shop.ids() == ids
    give_the_rows_up(shop)
    with shop.runtime.open() as session:
        shop.day(session, 4)
        assert session.finish().status == 0
    with shop.runtime.open() as session:
        shop.day(session, 5)
    assert shop.ids() == [1, 4, 5]
    assert shop.ids("journal") == [1, 4, 5, 101, 104, 105]


def give_the_rows_up(shop: Shop) -> None:
    assert "2 transaction(s), up to 00000003" in show(shop.place("ledger"), as_json=False)
    writer = ("shop%2Fledger.v0", WHOLE)
    with pytest.raises(UserError, match="has lost 2 transaction"):
        reset(shop.place("ledger"), writer, Decision.ADD, "a backup", is_confirmed=True)
    told = reset(shop.place("ledger"), writer, Decision.SKIP, "a backup", is_confirmed=True)
    assert "has lost the rows of 2 transaction(s)" in told
    reset(shop.place("journal"), ("shop%2Fjournal.v0", WHOLE), Decision.SKIP, "a backup", is_confirmed=True)


@pytest.mark.slow  # tests/session/test_restored_tables.py compares the same tables without a process
def test_rows_that_are_staged_on_lost_ones_are_not_added_without_these(shop: Shop) -> None:
    with shop.opened() as session:
        shop.day(session, 2)
        session.stage_and_die({"id": 3}, {"id": 4})
    shop.restore("day-1")
    error = shop.runtime.open_and_fail().last_log_line
    assert "table shop.ledger lacks the last 1 transaction(s) of acmeCo/task" in error
    assert "1 transaction(s), up to 00000002" in show(shop.place("ledger"), as_json=False)
    writer = ("shop%2Fledger.v0", WHOLE)
    with pytest.raises(UserError, match="has lost 1 transaction"):
        reset(shop.place("ledger"), writer, Decision.ADD, "a backup", is_confirmed=True)
    told = reset(shop.place("ledger"), writer, Decision.SKIP, "a backup", is_confirmed=True)
    assert "has lost the rows of 1 transaction(s)" in told
    assert "2 row(s) of 1 staged transaction(s) are in no snapshot" in told
    reset(shop.place("journal"), ("shop%2Fjournal.v0", WHOLE), Decision.SKIP, "a backup", is_confirmed=True)
    with shop.runtime.open() as session:
        shop.day(session, 5)
    assert shop.ids() == [1, 5]


@pytest.mark.slow  # tests/catalogs/test_backfills.py has backfills of any table
def test_a_backfill_replaces_the_older_table(shop: Shop) -> None:
    live_for_two_days(shop)
    shop.restore("day-1")
    shop.runtime.backfill()
    shop.runtime.apply()
    with shop.runtime.open() as session:
        for number in (1, 2, 3, 4):
            shop.day(session, number)
    assert shop.ids() == [1, 2, 3, 4]


@pytest.mark.slow  # so does this, in four sessions
def test_a_copy_of_before_a_backfill_is_noticed(shop: Shop) -> None:
    with shop.opened() as session:
        assert session.finish().status == 0
    shop.runtime.backfill()
    with shop.runtime.open(publish=True) as session:
        shop.day(session, 1)
        session.stage_and_die({"id": 2})
    shop.copy("newest")
    refuse_older_copy(shop)  # with a staged transaction
    shop.restore("newest")
    with shop.runtime.open() as session:
        assert session.finish().status == 0
    refuse_older_copy(shop)


def refuse_older_copy(shop: Shop) -> None:
    shop.restore("day-1")
    assert "shop.ledger is older than the backfill" in shop.runtime.open_and_fail().last_log_line
