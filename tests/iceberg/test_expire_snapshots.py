"""Expired snapshots go with what only they referred to; whatever else anybody can reach stays, whoever is faster."""

import json
import logging
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPartitionStatisticsUpdate,
    update_table_metadata,
)

from connector.config.catalog import RestCatalog
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.host.logs import FIELDS
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.fences import fence
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots, plan_expiry
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata import copied_metadata, old_metadata
from connector.iceberg.metadata.old_metadata import DELETE_OLD_METADATA
from connector.iceberg.metadata.retention import GC_ENABLED, Expired
from connector.model.state import WriterId
from support.bindings import PATH
from support.engines.snapshot_refs import tag
from support.jars import jars
from support.rows.staged_files import land, place_of, stage, write_file
from support.rows.staged_rows import WRITER
from support.servers.rest_catalog import rest_catalog_server
from support.snapshots import check_text
from support.tables.expiring_tables import (
    NOTHING_OLD,
    check_history_after_expiries,
    files,
    head,
    ids_at,
    left,
    referred_to,
    rows,
)
from support.tables.local_tables import foreign_table, ids_of, local_catalog, record_property, table_of


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties=NOTHING_OLD)
    return catalog


def test_all_but_the_current_snapshot_and_its_files_go(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(5):
        newest = land(catalog, number)
    deleted = expire_snapshots(catalog, PATH)
    assert deleted > 0
    told = {"event": "expired", "table": "shop.orders", "snapshots": 4, "files": deleted}
    assert getattr(caplog.records[-1], FIELDS) == told
    assert [snapshot.snapshot_id for snapshot in table_of(catalog).snapshots()] == [head(catalog)]
    assert left(catalog) == referred_to(catalog)
    assert ids_of(catalog, PATH) == list(range(5))
    assert fence.read_value(table_of(catalog).properties, WRITER) == newest.next
    assert expire_snapshots(catalog, PATH) == 0


def test_a_tag_goes_at_the_age_that_it_says_and_so_do_the_files_that_only_it_needs(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    land(catalog, 0)
    old = head(catalog)
    table_of(catalog).overwrite(rows(1))
    tag(catalog, PATH, "release", old, 1)
    tag(catalog, PATH, "audit", old, 3_600_000)
    expire_snapshots(catalog, PATH)
    assert ("release" in table_of(catalog).refs(), ids_at(catalog, old)) == (False, [0]), "the other tag keeps it"
    assert "table shop.orders: removed branches or tags at their maximum age: release" in caplog.messages

    tag(catalog, PATH, "audit", old, 1)
    planned = plan_expiry(table_of(catalog))
    assert planned.references == ["audit"]
    assert expire_snapshots(catalog, PATH) == len(planned.locations) > 0
    assert set(table_of(catalog).refs()) == {MAIN_BRANCH}
    assert left(catalog) == referred_to(catalog)


def test_statistics_go_with_the_snapshots_that_had_them(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number)
    kept, expired = table_of(catalog).snapshots()[-1:], table_of(catalog).snapshots()[:-1]
    for snapshot in (*kept, *expired):
        location = f"{table_of(catalog).location()}/metadata/{snapshot.snapshot_id}.stats"
        place_of(location).write_bytes(b"")
        with table_of(catalog).update_statistics() as update:
            update.set_statistics(
                StatisticsFile(
                    snapshot_id=snapshot.snapshot_id,
                    statistics_path=location,
                    file_size_in_bytes=0,
                    file_footer_size_in_bytes=0,
                    blob_metadata=[],
                )
            )
    planned = plan_expiry(table_of(catalog)).locations
    assert {Path(location).name for location in planned} >= {f"{each.snapshot_id}.stats" for each in expired}
    assert expire_snapshots(catalog, PATH) == len(planned)
    assert files(catalog, "metadata", "*.stats") == {f"{each.snapshot_id}.stats" for each in kept}


def test_statistics_of_partitions_go_with_the_snapshots_that_had_them(catalog: Catalog) -> None:
    expire_with_statistics_of_partitions(catalog)


@pytest.mark.catalog
def test_statistics_of_partitions_go_from_a_rest_catalog(tmp_path: Path) -> None:
    """Its server removes them with the snapshots."""
    with (
        rest_catalog_server(jars("rest-catalog"), tmp_path) as server,
        open_rest(RestCatalog(server.uri, str(server.warehouse)), {}) as catalog,
    ):
        foreign_table(catalog, PATH, properties=NOTHING_OLD)
        expire_with_statistics_of_partitions(catalog)


def expire_with_statistics_of_partitions(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, number)
    *expired, kept = [snapshot.snapshot_id for snapshot in table_of(catalog).snapshots()]
    for snapshot_id in (*expired, kept):
        location = f"{table_of(catalog).location()}/metadata/{snapshot_id}-partitions.parquet"
        place_of(location).write_bytes(b"")
        file = PartitionStatisticsFile(snapshot_id=snapshot_id, statistics_path=location, file_size_in_bytes=0)
        added = SetPartitionStatisticsUpdate(partition_statistics=file)
        catalog.commit_table(table_of(catalog), (), (added,))
    planned = plan_expiry(table_of(catalog)).locations
    assert {f"{each}-partitions.parquet" for each in expired} <= {Path(location).name for location in planned}
    assert expire_snapshots(catalog, PATH) == len(planned)
    assert files(catalog, "metadata", "*-partitions.parquet") == {f"{kept}-partitions.parquet"}
    assert [file.snapshot_id for file in table_of(catalog).metadata.partition_statistics] == [kept]


@pytest.mark.parametrize(
    "content",
    [b"", b'{"format-version": 2, "table-uuid": "x', b'{"format-version": ' + b"[" * 100_000],
    ids=["empty", "cut short", "nested too deeply"],
)
def test_a_metadata_file_that_cannot_be_read_stops_no_expiry(catalog: Catalog, content: bytes) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({DELETE_OLD_METADATA: "true", "write.metadata.previous-versions-max": "2"})
    for number in range(5):
        land(catalog, number)
    place_of(table_of(catalog).metadata_location).with_name(f"00000-{uuid.uuid4()}.metadata.json").write_bytes(content)
    assert expire_snapshots(catalog, PATH) > 0
    assert left(catalog) == referred_to(catalog)


def test_an_invalid_property_for_old_metadata_stops_no_expiry(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_metadata, "_warn_of_property", cache(old_metadata._warn_of_property.__wrapped__))
    for number in range(5):
        land(catalog, number)
    record_property(table_of(catalog), DELETE_OLD_METADATA, "ja")
    assert expire_snapshots(catalog, PATH) > 0
    assert left(catalog) == referred_to(catalog)
    [warning] = [record.message for record in caplog.records if DELETE_OLD_METADATA in record.message]
    check_text("maintenance_errors", "an invalid property for old metadata files", warning)


def test_a_table_that_forbids_it_keeps_everything(catalog: Catalog) -> None:
    with table_of(catalog).transaction() as change:
        change.set_properties({GC_ENABLED: "false"})
    for number in range(5):
        land(catalog, number)
    assert expire_snapshots(catalog, PATH) == 0
    assert len(table_of(catalog).snapshots()) == 5


def test_files_of_nessie_stay_for_its_branches_and_tags(catalog: Catalog) -> None:
    """Newer versions show earlier snapshots of the same branch."""
    catalog.properties["nessie.is-nessie-catalog"] = "true"
    for number in range(5):
        land(catalog, number)
    before = left(catalog)
    assert not plan_expiry(table_of(catalog)).locations
    assert expire_snapshots(catalog, PATH) == 0
    assert len(table_of(catalog).snapshots()) == 1
    assert left(catalog) == before


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_what_a_tag_or_a_branch_can_reach_is_kept(catalog: Catalog, kind: str) -> None:
    """Manifests that were folded since, and files that another engine has rewritten."""
    for number in range(2):
        land(catalog, number)
    kept, manage = head(catalog), table_of(catalog).manage_snapshots()
    (manage.create_tag(kept, "kept") if kind == "tag" else manage.create_branch(kept, "kept")).commit()
    table_of(catalog).overwrite(rows(100, 101))
    for number in range(2, 6):
        land(catalog, number)
    assert expire_snapshots(catalog, PATH) > 0
    assert {snapshot.snapshot_id for snapshot in table_of(catalog).snapshots()} == {kept, head(catalog)}
    assert [entry.snapshot_id for entry in table_of(catalog).history()] == [head(catalog)]
    assert ids_at(catalog, kept) == [0, 1]
    assert ids_of(catalog, PATH) == [2, 3, 4, 5, 100, 101]
    assert left(catalog) == referred_to(catalog)


def test_time_travel_shows_no_older_rows_in_the_place_of_expired_ones(tmp_path: Path) -> None:
    check_history_after_expiries(local_catalog(tmp_path), PATH)


@pytest.mark.catalog
def test_a_rest_server_keeps_the_same_history(tmp_path: Path) -> None:
    with (
        rest_catalog_server(jars("rest-catalog"), tmp_path) as server,
        open_rest(RestCatalog(server.uri, str(server.warehouse)), {}) as catalog,
    ):
        check_history_after_expiries(catalog, PATH)


@pytest.mark.parametrize("kept_texts", [0, 1 << 20], ids=["written anew", "from memory"])
def test_the_file_has_the_snapshots_that_are_kept_as_they_were(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kept_texts: int
) -> None:
    """Also a parent that has expired: a job that reads what has come since the parent goes on from there."""
    monkeypatch.setattr(copied_metadata, "_TEXTS", kept_texts)
    for number in range(3):
        land(catalog, number)

    def read() -> list[Any]:
        found: list[Any] = json.loads(place_of(table_of(catalog).metadata_location).read_bytes())["snapshots"]
        return found

    *expired, newest = read()
    assert newest["parent-snapshot-id"] == expired[-1]["snapshot-id"]
    assert expire_snapshots(catalog, PATH) > 0
    assert read() == [newest]


def test_pyiceberg_still_leaves_gaps_in_the_log_and_changes_kept_snapshots(catalog: Catalog) -> None:
    """Once it does neither, the connector need not correct what it makes of a removal."""
    for number in range(3):
        land(catalog, number)
    before = table_of(catalog).metadata
    first, second, third = before.snapshots
    after = update_table_metadata(before, (RemoveSnapshotsUpdate(snapshot_ids=[second.snapshot_id]),))
    assert [entry.snapshot_id for entry in after.snapshot_log] == [first.snapshot_id, third.snapshot_id]
    assert (third.parent_snapshot_id, after.snapshots[-1].parent_snapshot_id) == (second.snapshot_id, None)


def test_work_that_is_staged_to_be_audited_is_kept(catalog: Catalog) -> None:
    land(catalog, 1)
    table, writer = table_of(catalog), SnapshotWriter()
    staged = writer.append(table, [stage(catalog, PATH, WriterId("another", "v1", WRITER.key_range), 2)])
    assert staged.summary
    staged.summary["wap.id"] = "monday"
    catalog.commit_table(
        table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (AddSnapshotUpdate(snapshot=staged),)
    )
    land(catalog, 3)
    assert expire_snapshots(catalog, PATH) > 0
    assert ids_at(catalog, staged.snapshot_id) == [1, 2]


def test_files_that_other_engines_have_dropped_go_with_the_last_snapshot_that_had_them(catalog: Catalog) -> None:
    land(catalog, 1, 2)
    land(catalog, 3)
    table_of(catalog).delete("id = 1")
    assert len(files(catalog, "data")) == 3
    assert expire_snapshots(catalog, PATH) > 0
    assert len(files(catalog, "data")) == 2
    assert ids_of(catalog, PATH) == [2, 3]
    assert left(catalog) == referred_to(catalog)


def test_live_files_of_other_engines_stay_however_their_names_end(catalog: Catalog) -> None:
    table = table_of(catalog)
    dropped, live = (write_file(table, f"part-{number}", number) for number in range(2))
    table.add_files([dropped, live])
    table_of(catalog).delete("id = 0")
    assert expire_snapshots(catalog, PATH) > 0
    assert (place_of(dropped).exists(), place_of(live).exists()) == (False, True)
    assert ids_of(catalog, PATH) == [1]


def test_files_of_a_tag_go_once_it_is_dropped(catalog: Catalog) -> None:
    """Everything that followed it has expired before: nothing is left that says that they were dropped."""
    land(catalog, 1)
    table_of(catalog).manage_snapshots().create_tag(head(catalog), "kept").commit()
    table_of(catalog).overwrite(rows(2))
    land(catalog, 3)
    expire_snapshots(catalog, PATH)
    table_of(catalog).manage_snapshots().remove_tag("kept").commit()
    assert expire_snapshots(catalog, PATH) > 0
    assert left(catalog) == referred_to(catalog)
    assert ids_of(catalog, PATH) == [2, 3]


def test_files_from_elsewhere_stay(catalog: Catalog) -> None:
    """They may be another table's too."""
    other = foreign_table(catalog, ("shop", "other"))
    other.append(rows(1))
    [task] = other.scan().plan_files()
    table_of(catalog).add_files([task.file.file_path])
    table_of(catalog).overwrite(rows(2))
    assert expire_snapshots(catalog, PATH) > 0
    assert ids_of(catalog, PATH) == [2]
    assert ids_of(catalog, ("shop", "other")) == [1]


def test_a_commit_of_ours_leaves_the_main_branch_its_own_retention(catalog: Catalog) -> None:
    land(catalog, 0)
    table_of(catalog).manage_snapshots().create_branch(
        head(catalog), "main", max_snapshot_age_ms=1_000_000, min_snapshots_to_keep=4
    ).commit()
    for number in range(1, 3):
        land(catalog, number)
    main = table_of(catalog).refs()["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (1_000_000, 4)
    assert expire_snapshots(catalog, PATH) == 0


def test_what_a_killed_process_leaves_of_an_expiry_is_collected_by_the_next_session(catalog: Catalog) -> None:
    for number in range(5):
        land(catalog, number)
    with pytest.raises(InterruptedMaintenanceError):
        expire_snapshots(catalog, PATH, Interruption(lambda: True))
    assert len(table_of(catalog).snapshots()) == 1
    land(catalog, 5)
    assert left(catalog) > referred_to(catalog)
    assert remove_task_orphans(catalog, PATH, WRITER, []) > 0
    assert left(catalog) == referred_to(catalog)


def test_a_file_of_another_engine_that_a_killed_expiry_leaves_goes_with_the_snapshot_that_dropped_it(
    catalog: Catalog,
) -> None:
    table_of(catalog).append(rows(1))
    [file] = files(catalog, "data")
    land(catalog, 2)
    table_of(catalog).delete("id = 1")
    with pytest.raises(InterruptedMaintenanceError):
        expire_snapshots(catalog, PATH, Interruption(lambda: True))
    land(catalog, 3)
    assert file in files(catalog, "data")
    expire_snapshots(catalog, PATH)
    assert file not in files(catalog, "data")
    assert ids_of(catalog, PATH) == [2, 3]


def test_a_clock_that_is_behind_the_tables_expires_snapshots_and_leaves_readable_metadata(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata that is older than the newest snapshot cannot be read by Java. If nothing expired until the clock is
    right, a table that a wrong clock has dated once would grow for as long as that clock was ahead."""
    an_hour_ahead = time.time_ns() + 3600 * 10**9
    with monkeypatch.context() as ahead:
        ahead.setattr("connector.iceberg.commits.snapshot.time.time_ns", lambda: an_hour_ahead)
        land(catalog, 1)
    land(catalog, 2)
    monkeypatch.setattr(
        "connector.iceberg.maintenance.expire_snapshots.find_due",
        lambda metadata, *_: Expired([metadata.snapshots[0].snapshot_id]),
    )
    assert expire_snapshots(catalog, PATH) > 0
    metadata = table_of(catalog).metadata
    assert len(metadata.snapshots) == 1
    assert metadata.last_updated_ms >= metadata.snapshots[0].timestamp_ms
