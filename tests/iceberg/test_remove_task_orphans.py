"""Of all files around a table only those are deleted that are ours and that no table can ever refer to."""

import json
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table

from connector.host.errors import FencedError
from connector.host.interruption import InterruptedMaintenanceError, Interruption
from connector.host.logs import FIELDS
from connector.iceberg.commits import commit
from connector.iceberg.commits.reset import Decision, perform_reset, plan_reset
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import file_prefix
from connector.iceberg.fences.file_names import FileOrigin
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata import avro_files, snapshot_files
from connector.iceberg.metadata.manifests import manifests_of, read_entries
from connector.iceberg.metadata.retention import GC_ENABLED
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY
from connector.storage.file_io import files_of
from connector.storage.stored_files import files_under
from support.bindings import PATH
from support.plans import meeting
from support.rows.staged_files import land, leave_behind, stage, write_file
from support.rows.staged_rows import WRITER
from support.servers.s3_server import S3Server
from support.tables.local_tables import ID_ONLY, cut_manifest, cut_manifest_list, foreign_table, ids_of, table_of
from support.tables.planted_faults import do_after, do_first, plant

SOME_UUID = "6b1f1c1e-93d5-4d0e-8b7e-0f5b6a3c2d10"
WHOLE, LEFT, RIGHT = (
    replace(WRITER, key_range=key_range)
    for key_range in ("00000000-ffffffff", "00000000-7fffffff", "80000000-ffffffff")
)


def location_of(staged: StagedCommit) -> str:
    [file] = files_of(load_file_io(), staged.files)
    return file.path


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH)
    return catalog


def collect_as(catalog: Catalog, writer: WriterId, *staged: StagedCommit) -> int:
    return remove_task_orphans(catalog, PATH, writer, staged)


def exists(table: Table, location: str) -> bool:
    return table.io.new_input(location).exists()


def test_what_a_killed_process_left_is_deleted_once_its_writer_has_moved_on(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    left = leave_behind(table_of(catalog), WHOLE)
    assert collect_as(catalog, WHOLE) == 0
    first = land(catalog, 1)
    left_later = leave_behind(table_of(catalog), WHOLE, first.next)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table_of(catalog), left)
    land(catalog, 2, prev=first.next)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table_of(catalog), left_later)
    assert ids_of(catalog, PATH) == [1, 2]
    assert getattr(caplog.records[-1], FIELDS) == {"event": "collected", "table": "shop.orders", "files": 1}


def test_a_table_that_forbids_garbage_collection_keeps_its_orphans(catalog: Catalog) -> None:
    left = leave_behind(table_of(catalog), WHOLE)
    land(catalog, 1)
    set_property(catalog, GC_ENABLED, "false")
    assert collect_as(catalog, WHOLE) == 0
    set_property(catalog, GC_ENABLED, "maybe")
    with pytest.raises(ValueError, match=r"^gc\.enabled is 'maybe'; it must be true or false$"):
        collect_as(catalog, WHOLE)
    assert exists(table_of(catalog), left)
    set_property(catalog, GC_ENABLED, "true")
    assert collect_as(catalog, WHOLE) == 1


def set_property(catalog: Catalog, name: str, value: str) -> None:
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({name: value})


def test_a_directory_within_another_one_is_listed_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(catalog)
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": table.location()})
    listed: list[str] = []

    def list_files(io: FileIO, directory: str) -> Iterator[str]:
        for location in files_under(io, directory):
            listed.append(location)
            yield location

    monkeypatch.setattr(f"{remove_task_orphans.__module__}.files_under", list_files)
    left = leave_behind(table_of(catalog), WHOLE)
    land(catalog, 1)
    assert collect_as(catalog, WHOLE) == 1
    assert listed.count(left) == 1
    assert len(listed) == len(set(listed))


def test_snapshots_and_manifests_are_read_several_at_a_time(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of them, and a store needs a while for each."""
    first = land(catalog, 1)
    land(catalog, 2, prev=first.next)

    def read_together(read: Callable[..., Any]) -> Callable[..., Any]:
        together = meeting(2)

        def wait_for_the_other(*arguments: Any) -> Any:
            together.wait()
            return read(*arguments)

        return wait_for_the_other

    for read in manifests_of, read_entries:
        monkeypatch.setattr(snapshot_files, read.__name__, read_together(read))
    left = leave_behind(table_of(catalog), WHOLE)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table_of(catalog), left)
    assert ids_of(catalog, PATH) == [1, 2]


def test_files_of_others_take_no_memory(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def list_files(_: FileIO, directory: str) -> Iterator[str]:
        return (f"{directory}/part={number}/{number:05}-{SOME_UUID}-{SOME_UUID}.parquet" for number in range(10_000))

    collect_as(catalog, WHOLE)
    monkeypatch.setattr(f"{remove_task_orphans.__module__}.files_under", list_files)
    tracemalloc.start()
    try:
        assert collect_as(catalog, WHOLE) == 0
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_the_lost_part_of_a_manifest_lists_is_not_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_files, "BLOCK_SIZE", 1)  # each entry is a block
    first = stage(catalog, PATH, WHOLE, 1)
    second = stage(catalog, PATH, WHOLE, 2, prev=first.next)
    commit.commit_all_or_raise(catalog, [first, second])
    cut_manifest(table_of(catalog))
    with pytest.raises(InvalidMetadataError, match="is damaged"):
        collect_as(catalog, WHOLE)
    assert exists(table_of(catalog), location_of(second))


def test_nothing_is_deleted_if_a_manifest_list_ends_behind_its_header(catalog: Catalog) -> None:
    first = stage(catalog, PATH, WHOLE, 1)
    commit.commit_all_or_raise(catalog, [first])
    cut_manifest_list(table_of(catalog))
    with pytest.raises(InvalidMetadataError, match="is damaged"):
        collect_as(catalog, WHOLE)
    assert exists(table_of(catalog), location_of(first))


def test_rows_that_a_killed_process_left_on_their_way_are_deleted_likewise(catalog: Catalog) -> None:
    table = table_of(catalog)
    name = f"{file_prefix(WHOLE, str(table.metadata.table_uuid), fence.NONE)}-{SOME_UUID}.jsonl"
    left = write_file(table, name, 1)
    assert collect_as(catalog, WHOLE) == 0
    land(catalog, 1)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table, left)


def test_a_frozen_process_cannot_bring_a_deleted_file_into_the_table(catalog: Catalog) -> None:
    frozen = stage(catalog, PATH, WHOLE, 1)
    land(catalog, 2)
    assert collect_as(catalog, WHOLE) == 1
    with pytest.raises(FencedError):
        commit.commit_all_or_raise(catalog, [frozen])
    with pytest.raises(FencedError):
        commit.commit_all_or_raise(catalog, [replace(frozen, is_recovered=True)])
    assert ids_of(catalog, PATH) == [2]


def test_what_waits_behind_a_refused_commit_is_kept_whoever_collects(catalog: Catalog) -> None:
    """An older process, which knows nothing of its successor's state, may still be collecting."""
    first = land(catalog, 1)
    waiting = stage(catalog, PATH, WHOLE, 2, prev=first.next)
    behind = stage(catalog, PATH, WHOLE, 3, prev=waiting.next)
    assert collect_as(catalog, WHOLE) == 0
    commit.commit_all_or_raise(catalog, [waiting, behind])
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_a_file_that_only_an_older_snapshot_has_is_kept_until_that_expires(catalog: Catalog) -> None:
    staged = land(catalog, 1)
    older = table_of(catalog).metadata.current_snapshot_id
    assert older
    table_of(catalog).delete("id = 1")
    land(catalog, 2, prev=staged.next)
    assert collect_as(catalog, WHOLE) == 0
    assert table_of(catalog).scan(snapshot_id=older).to_arrow()["id"].to_pylist() == [1]
    table_of(catalog).maintenance.expire_snapshots().by_id(older).commit()
    collect_as(catalog, WHOLE)
    assert not exists(table_of(catalog), location_of(staged))
    assert ids_of(catalog, PATH) == [2]


def test_a_file_that_only_a_tag_has_is_kept(catalog: Catalog) -> None:
    staged = land(catalog, 1)
    tagged = table_of(catalog).metadata.current_snapshot_id
    assert tagged
    table_of(catalog).manage_snapshots().create_tag(tagged, "kept").commit()
    table_of(catalog).delete("id = 1")
    land(catalog, 2, prev=staged.next)
    assert collect_as(catalog, WHOLE) == 0
    assert exists(table_of(catalog), location_of(staged))


@pytest.mark.parametrize(
    "name",
    [
        "part-00000.parquet",
        f"{SOME_UUID}.parquet",
        f"{fence.writer_hash(WHOLE)}-notes.parquet",
        f"{file_prefix(WHOLE, SOME_UUID, '')}-{SOME_UUID}.parquet",
        f"{file_prefix(replace(WHOLE, materialization='acme/other'), 'TABLE', '')}-{SOME_UUID}.parquet",
        f"{file_prefix(replace(WHOLE, state_key='customers.v1'), 'TABLE', '')}-{SOME_UUID}.parquet",
        f"{file_prefix(WHOLE, 'TABLE', '')}-{SOME_UUID}.parquet.crc",
        f"copy-of-{file_prefix(WHOLE, 'TABLE', '')}-{SOME_UUID}.parquet",
    ],
)
def test_a_file_that_is_not_provably_ours_is_kept(catalog: Catalog, name: str) -> None:
    table = table_of(catalog)
    file = write_file(table, name.replace("TABLE", str(table.metadata.table_uuid)), 666)
    land(catalog, 1)
    assert collect_as(catalog, WHOLE) == 0
    assert exists(table, file)


def test_what_another_materialization_left_in_a_shared_table_is_its_own(catalog: Catalog) -> None:
    other = WriterId("acme/other", "orders.v1", WHOLE.key_range)
    left = leave_behind(table_of(catalog), other)
    land(catalog, 1, writer=other)
    land(catalog, 2)
    assert collect_as(catalog, WHOLE) == 0
    assert collect_as(catalog, other) == 1
    assert not exists(table_of(catalog), left)


def test_what_an_older_state_key_of_ours_left_in_a_table_that_was_retained_is_deleted(catalog: Catalog) -> None:
    older = replace(WHOLE, state_key="orders.v0")
    leave_behind(table_of(catalog), older)
    land(catalog, 1, writer=older)
    land(catalog, 2)
    assert collect_as(catalog, WHOLE) == 1
    assert ids_of(catalog, PATH) == [1, 2]


def test_the_maker_of_a_table_is_known_when_its_snapshots_are_not(catalog: Catalog) -> None:
    older = replace(WHOLE, state_key="orders.v0")
    leave_behind(table_of(catalog), older)
    owner = json.dumps({"materialization": older.materialization, "stateKey": older.state_key})
    properties = {OWNER_PROPERTY: owner, fence.property_name(older): fence.new_value()}
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(properties)
    assert collect_as(catalog, WHOLE) == 1


def test_a_range_that_a_split_has_closed_is_collected_by_the_child_that_it_begins_in(catalog: Catalog) -> None:
    parent = land(catalog, 1)
    left = leave_behind(table_of(catalog), WHOLE, parent.next)
    assert collect_as(catalog, LEFT) == 0
    land(catalog, 2, writer=LEFT)
    assert collect_as(catalog, RIGHT) == 0
    assert collect_as(catalog, LEFT) == 1
    assert not exists(table_of(catalog), left)
    with pytest.raises(FencedError):
        land(catalog, 3, prev=parent.next)


def test_an_open_range_beside_ours_is_its_own_process(catalog: Catalog) -> None:
    leave_behind(table_of(catalog), RIGHT)
    land(catalog, 1, writer=LEFT)
    land(catalog, 2, writer=RIGHT)
    assert collect_as(catalog, LEFT) == 0
    assert collect_as(catalog, RIGHT) == 1


def test_what_the_state_names_of_a_closed_range_is_kept(catalog: Catalog) -> None:
    """Its table refused it when the session opened: a later session may still build on the closed value."""
    parent = land(catalog, 1)
    pending = replace(stage(catalog, PATH, WHOLE, 2, prev=parent.next), is_recovered=True)
    land(catalog, 3, writer=LEFT)
    assert collect_as(catalog, LEFT, pending) == 0
    commit.commit_all_or_raise(catalog, [pending])
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_the_first_transaction_of_a_range_is_still_to_come(catalog: Catalog) -> None:
    land(catalog, 1)
    waiting = stage(catalog, PATH, LEFT, 2)
    land(catalog, 3, writer=RIGHT)
    assert collect_as(catalog, LEFT) == 0
    commit.commit_all_or_raise(catalog, [waiting])
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_what_a_reopened_range_stages_on_its_closed_value_is_kept(catalog: Catalog) -> None:
    parent = land(catalog, 1)
    land(catalog, 2, writer=LEFT)
    closed = fence.read_value(table_of(catalog).properties, WHOLE)
    reopened = stage(catalog, PATH, WHOLE, 3, prev=closed)
    left = leave_behind(table_of(catalog), WHOLE, parent.next)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table_of(catalog), left)
    commit.commit_all_or_raise(catalog, [reopened])
    leave_behind(table_of(catalog), WHOLE, closed)
    assert collect_as(catalog, WHOLE) == 1
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_what_is_staged_after_a_reset_is_not_judged_by_the_value_before_it(catalog: Catalog) -> None:
    first = land(catalog, 1)
    second = land(catalog, 2, prev=first.next)
    land(catalog, 3, prev=second.next)
    after_reset: list[StagedCommit] = []

    def reset_and_stage() -> None:
        table = table_of(catalog)
        perform_reset(table, plan_reset(table, [first], Decision.SKIP), "a test")
        value = fence.read_value(table_of(catalog).properties, WHOLE)
        after_reset.append(stage(catalog, PATH, WHOLE, 4, prev=value))

    plant(catalog, [do_after(reset_and_stage)], "load_table")
    remove_task_orphans(catalog, PATH, WHOLE, [])
    commit.commit_all_or_raise(catalog, after_reset)
    assert ids_of(catalog, PATH) == [1, 2, 3, 4]


def test_what_a_reset_is_to_add_is_kept_whoever_collects(catalog: Catalog) -> None:
    """An older process, which knows nothing of the state that was restored, may still be there."""
    fenced = stage(catalog, PATH, WHOLE, 1)
    land(catalog, 2)
    perform_reset(table_of(catalog), plan_reset(table_of(catalog), [fenced], Decision.ADD), "a test")
    assert collect_as(catalog, WHOLE) == 0
    commit.commit_all_or_raise(catalog, [replace(fenced, is_recovered=True)])
    assert ids_of(catalog, PATH) == [1, 2]
    leave_behind(table_of(catalog), WHOLE)
    assert collect_as(catalog, WHOLE) == 1


def test_what_is_staged_while_something_waits_is_kept_whoever_lands_it(catalog: Catalog) -> None:
    """An older process lands what the state names, and closes the value that its successor has staged on."""
    land(catalog, 1)
    waiting = stage(catalog, PATH, LEFT, 2)
    successor = stage(catalog, PATH, WHOLE, 3, waiting=[replace(waiting, is_recovered=True)])
    commit.commit_all_or_raise(catalog, [waiting])
    assert fence.read_value(table_of(catalog).properties, WHOLE).startswith(fence.CLOSED)
    assert collect_as(catalog, WHOLE) == 0
    commit.commit_all_or_raise(catalog, [successor])
    assert ids_of(catalog, PATH) == [1, 2, 3]


def metadata_files(catalog: Catalog) -> set[str]:
    directory = Path(table_of(catalog).location().removeprefix("file://")) / "metadata"
    return {path.name for path in directory.glob("*.avro")}


def referenced_metadata(catalog: Catalog) -> set[str]:
    table = table_of(catalog)
    lists = {Path(snapshot.manifest_list).name for snapshot in table.snapshots()}
    return lists | {
        Path(manifest.manifest_path).name for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)
    }


def test_the_metadata_of_commits_that_lost_a_race_is_deleted(catalog: Catalog) -> None:
    stale = stage(catalog, PATH, WHOLE, 666)
    successor = stage(catalog, PATH, WHOLE, 1)
    plant(catalog, [do_first(lambda: commit.commit_all_or_raise(catalog, [successor]))])
    with pytest.raises(FencedError):
        commit.commit_all_or_raise(catalog, [stale])
    assert len(metadata_files(catalog) - referenced_metadata(catalog)) == 2  # a manifest and a manifest list
    assert collect_as(catalog, WHOLE) == 3
    assert metadata_files(catalog) == referenced_metadata(catalog)
    assert ids_of(catalog, PATH) == [1]


def test_the_metadata_of_a_commit_that_is_under_way_is_kept(catalog: Catalog) -> None:
    first = land(catalog, 1)
    plant(catalog, [do_first(lambda: collected.append(collect_as(catalog, WHOLE)))])
    collected: list[int] = []
    land(catalog, 2, prev=first.next)
    assert collected == [0]
    assert ids_of(catalog, PATH) == [1, 2]


def test_a_manifest_bears_the_value_that_its_commit_asserts(catalog: Catalog) -> None:
    """One written before the value was closed is written again: on the open value it may be collected."""
    parent = land(catalog, 1)
    pending = replace(stage(catalog, PATH, WHOLE, 2, prev=parent.next), is_recovered=True)
    plant(catalog, [do_first(lambda: land(catalog, 3, writer=RIGHT))])
    commit.commit_all_or_raise(catalog, [pending])
    snapshot = table_of(catalog).current_snapshot()
    assert snapshot
    added = [
        FileOrigin.of(Path(location).name)
        for manifest in snapshot.manifests(table_of(catalog).io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for location in (manifest.manifest_path, snapshot.manifest_list)
    ]
    assert [origin and origin.prev for origin in added] == [f"closed:{parent.next}"] * 2


def test_a_table_that_was_made_anew_is_left_alone(catalog: Catalog) -> None:
    left = leave_behind(table_of(catalog), WHOLE)
    location = table_of(catalog).location()
    land(catalog, 1)
    catalog.drop_table(PATH)
    catalog.create_table(PATH, ID_ONLY, location=location)
    land(catalog, 2)
    assert collect_as(catalog, WHOLE) == 0
    assert exists(table_of(catalog), left)


@pytest.mark.parametrize("manifests", [0, 1])
def test_a_session_that_ends_stops_reading_and_deleting(catalog: Catalog, manifests: int) -> None:
    left = leave_behind(table_of(catalog), WHOLE)
    land(catalog, 1)
    answers = iter([False] * manifests)
    with pytest.raises(InterruptedMaintenanceError):
        remove_task_orphans(catalog, PATH, WHOLE, [], Interruption(lambda: next(answers, True)))
    assert exists(table_of(catalog), left)


def test_a_bucket_is_collected_like_a_directory(s3_server: S3Server, tmp_path: Path) -> None:
    catalog = SqlCatalog(
        "local",
        **{
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://{s3_server.new_bucket()}/lake",
            "s3.endpoint": s3_server.endpoint,
            "s3.region": s3_server.region,
            "s3.access-key-id": s3_server.root.access_key_id,
            "s3.secret-access-key": s3_server.root.secret_access_key,
            "s3.force-virtual-addressing": "false",
        },
    )
    foreign_table(catalog, PATH)
    left = leave_behind(table_of(catalog), WHOLE)
    land(catalog, 1)
    assert collect_as(catalog, WHOLE) == 1
    assert not exists(table_of(catalog), left)
    assert ids_of(catalog, PATH) == [1]
