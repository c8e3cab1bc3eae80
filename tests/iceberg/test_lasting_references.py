"""Some catalogs do not remove branches and tags. The other snapshots expire nevertheless."""

import logging
import time
from collections.abc import Sequence

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from connector.host import facts
from connector.host.errors import UserError
from connector.host.interruption import NEVER
from connector.iceberg.commits.commit_outcomes import Committed
from connector.iceberg.maintenance.background import BackgroundMaintenance
from connector.iceberg.maintenance.expire_snapshots import expire_all_snapshots
from connector.iceberg.metadata.retention import MAX_AGE
from support.bindings import PATH
from support.engines.snapshot_refs import tag
from support.rows.staged_files import land, stage
from support.rows.staged_rows import WRITER
from support.snapshots import check_text
from support.tables.expiring_tables import head, ids_at
from support.tables.local_tables import foreign_table, table_of
from support.tables.outcomes import try_commits
from support.tables.planted_faults import Send, plant_always

HOUR = str(3_600_000)  # milliseconds


class RemovesNoTags:
    """A catalog that refuses to remove branches and tags, or answers as if it did."""

    def __init__(self, catalog: Catalog, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error
        plant_always(catalog, self._take)

    def _take(self, send: Send) -> object:
        *arguments, updates = send.args
        others = tuple(each for each in updates if not isinstance(each, RemoveSnapshotRefUpdate))
        if others == updates:
            return send()
        self.asked += 1
        if self._error:
            raise self._error
        return send.func(*arguments, others)


def make_tagged(catalog: Catalog, max_age: str) -> int:
    """A table with three snapshots, the first of which has a tag at its maximum age. Returns the id of the first."""
    foreign_table(catalog, PATH, properties={MAX_AGE: max_age})
    land(catalog, 1)
    first = head(catalog)
    tag(catalog, PATH, "release", first, max_ref_age_ms=1)
    land(catalog, 2)
    land(catalog, 3)
    time.sleep(0.01)
    return first


def land_in(maintenance: BackgroundMaintenance, catalog: Catalog, number: int) -> None:
    [outcome] = try_commits(catalog, [stage(catalog, PATH, WRITER, number)])
    assert isinstance(outcome, Committed)
    maintenance.note_outcome(outcome)
    maintenance.finish()
    maintenance.run()


def warnings(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("error", [BadRequestError("no such update"), ForbiddenError("not allowed")])
def test_a_catalog_that_refuses_to_remove_tags_is_asked_once_and_told_of_once(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    first = make_tagged(catalog, "0")
    refusing, maintenance = RemovesNoTags(catalog, error), BackgroundMaintenance(catalog)
    for number in (4, 5):
        land_in(maintenance, catalog, number)
        assert [each.snapshot_id for each in table_of(catalog).snapshots()] == [first, head(catalog)]
    assert ids_at(catalog, table_of(catalog).refs()["release"].snapshot_id) == [1]
    assert refusing.asked == 1
    [warning] = warnings(caplog)
    check_text("maintenance_errors", f"expire: tags stay after {type(error).__name__}", warning)


def test_a_catalog_that_ignores_that_tags_are_removed_is_asked_once_and_told_of_once(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each commit would be followed by one that changes nothing."""
    expiries = list[bool]()

    def note(fact: facts.Fact) -> None:
        if isinstance(fact, facts.MaintenanceRun) and fact.action == facts.EXPIRE_SNAPSHOTS:
            expiries.append(fact.has_failed)

    monkeypatch.setattr(facts, "report", note)
    make_tagged(catalog, HOUR)
    tag(catalog, PATH, "release", head(catalog), max_ref_age_ms=1)
    time.sleep(0.01)
    ignoring, maintenance = RemovesNoTags(catalog), BackgroundMaintenance(catalog)
    for number in (4, 5):
        land_in(maintenance, catalog, number)
    assert "release" in table_of(catalog).refs()
    assert (ignoring.asked, expiries) == (1, [False])
    [warning] = warnings(caplog)
    check_text("maintenance_errors", "expire: tags stay silently", warning)


def test_a_command_expires_the_snapshots_that_no_tag_keeps(catalog: Catalog) -> None:
    first = make_tagged(catalog, "0")
    RemovesNoTags(catalog, BadRequestError("no such update"))
    expired = expire_all_snapshots(catalog, PATH, NEVER)
    assert (expired.count, expired.references) == (1, [])
    assert [each.snapshot_id for each in table_of(catalog).snapshots()] == [first, head(catalog)]
    with pytest.raises(UserError, match="no such update"):
        expire_all_snapshots(catalog, PATH, NEVER)


def test_a_catalog_that_refuses_every_commit_is_not_told_of_as_one_that_keeps_tags(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    make_tagged(catalog, "0")

    def forbid(_: Send) -> object:
        raise ForbiddenError("not allowed")

    plant_always(catalog, forbid)
    with pytest.raises(UserError, match="not allowed"):
        expire_all_snapshots(catalog, PATH, NEVER)
    assert not warnings(caplog)
