"""Without the connector state, only files are orphans that no state can name, and others only if the user asks."""

import gzip
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from posixpath import basename
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import TableProperties
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetPropertiesUpdate

from connector.host.errors import UserError
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.iceberg.fences.file_names import CompactionOrigin
from connector.iceberg.maintenance.files_of_dropped_tables import DroppedTables
from connector.iceberg.maintenance.find_orphan_files import OrphanOptions, find_orphan_files
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.old_metadata import LARGEST_METADATA
from connector.iceberg.metadata.retention import GC_ENABLED
from connector.iceberg.metadata.table_directories import find_directories
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.table_identifier import OWNER_PROPERTY, Generation, Owner, TableIdentifier
from connector.storage.stored_files import StoredFile, delete_all
from support.bindings import PATH
from support.rows.staged_files import land, leave_behind, place_of, stage, write_file
from support.rows.staged_rows import WRITER
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY, foreign_table, ids_of, table_of
from support.tables.planted_faults import do_first, no_fault, plant

OWNED: Final = {OWNER_PROPERTY: Owner(WRITER.materialization, WRITER.state_key).encode()}
NOW: Final = datetime.now(UTC)
LATER: Final = NOW + timedelta(days=1)  # than any file of a test
OURS: Final = OrphanOptions(LATER)
UNKNOWN: Final = OrphanOptions(LATER, has_unknown=True)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties=OWNED)
    return catalog


def locations(files: list[StoredFile]) -> set[str]:
    return {file.location for file in files}


def remove(catalog: Catalog, options: OrphanOptions = OURS) -> set[str]:
    """Deletes what is found, and returns it."""
    found = find_orphan_files(catalog, catalog.load_table(PATH), options)
    delete_all(found.table.io, locations(found.deletable))
    return locations(found.deletable)


def make_old(location: str) -> None:
    past = (NOW - timedelta(days=4)).timestamp()
    os.utime(place_of(location), (past, past))


def test_what_a_killed_process_left_is_found_once_its_value_has_passed(catalog: Catalog) -> None:
    left = leave_behind(table_of(catalog), WRITER)
    assert remove(catalog) == set()
    first = land(catalog, 1)
    assert remove(catalog) == {left}
    land(catalog, 2, prev=first.next)
    assert ids_of(catalog, PATH) == [1, 2]


def test_what_a_state_may_name_is_kept_although_a_session_would_delete_it(catalog: Catalog) -> None:
    """A closed value has passed for every session, but the state may name commits that were staged on it."""
    first = land(catalog, 1)
    staged = stage(catalog, PATH, WRITER, 2, prev=first.next)
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({fence.property_name(WRITER): fence.CLOSED + first.next})
    assert remove(catalog) == set()
    commit.commit_all_or_raise(catalog, [replace(staged, is_recovered=True)])
    assert ids_of(catalog, PATH) == [1, 2]
    # With the same state lost, a session deletes such files.
    left = stage(catalog, PATH, WRITER, 3, prev=staged.next)
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({fence.property_name(WRITER): fence.CLOSED + staged.next})
    assert remove(catalog) == set()
    assert remove_task_orphans(catalog, PATH, WRITER, ()) == 1
    assert not place_of(left.locations[0]).exists()


def test_missing_files_of_a_running_session_are_kept(catalog: Catalog) -> None:
    first = land(catalog, 1)
    second = stage(catalog, PATH, WRITER, 2, prev=first.next)
    third = stage(catalog, PATH, WRITER, 3, prev=second.next)
    assert remove(catalog, UNKNOWN) == set()
    commit.commit_all_or_raise(catalog, [second])
    assert remove(catalog, UNKNOWN) == set()
    commit.commit_all_or_raise(catalog, [third])
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_each_writer_has_its_own_value(catalog: Catalog) -> None:
    other = replace(WRITER, materialization="acme/other")
    left = leave_behind(table_of(catalog), other)
    land(catalog, 1)
    assert remove(catalog) == set()
    land(catalog, 2, writer=other)
    assert remove(catalog) == {left}


def begin_generation(catalog: Catalog) -> None:
    """The owner of the table backfills it."""
    table = table_of(catalog)
    before = find_generation(table, WRITER.materialization)
    generation = Generation(str(uuid.uuid4()), (before.uuid, *before.former), WRITER.materialization)
    with table.transaction() as transaction:
        transaction.set_properties(generation.encode())


def test_what_was_staged_before_a_backfill_is_void(catalog: Catalog) -> None:
    first = land(catalog, 1)
    left = leave_behind(table_of(catalog), WRITER, first.next)
    begin_generation(catalog)
    assert remove(catalog) == {left}
    assert ids_of(catalog, PATH) == [1]


def test_what_another_task_staged_before_a_backfill_by_the_owner_is_kept(catalog: Catalog) -> None:
    other = replace(WRITER, materialization="acme/other")
    first = land(catalog, 1, writer=other)
    staged = stage(catalog, PATH, other, 2, prev=first.next)
    begin_generation(catalog)
    assert remove(catalog, UNKNOWN) == set()
    commit.commit_all_or_raise(catalog, [staged])
    assert ids_of(catalog, PATH) == [1, 2]


def test_what_is_staged_after_a_backfill_is_of_no_dropped_table(catalog: Catalog) -> None:
    land(catalog, 1)
    begin_generation(catalog)
    staged = stage(catalog, PATH, WRITER, 2)
    assert remove(catalog, OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True)) == set()
    commit.commit_all_or_raise(catalog, [staged])
    assert ids_of(catalog, PATH) == [1, 2]


def test_a_file_that_only_an_older_snapshot_has_is_kept(catalog: Catalog) -> None:
    first = land(catalog, 1)
    older = table_of(catalog).metadata.current_snapshot_id
    table_of(catalog).delete("id = 1")
    land(catalog, 2, prev=first.next)
    assert remove(catalog, UNKNOWN) == set()
    assert table_of(catalog).scan(snapshot_id=older).to_arrow()["id"].to_pylist() == [1]


def test_unknown_files_are_found_if_they_are_old(catalog: Catalog) -> None:
    land(catalog, 1)
    old, young = (write_file(table_of(catalog), name, 7) for name in ("part-0.parquet", "part-1.parquet"))
    beside = f"{table_of(catalog).location()}/notes.txt"
    place_of(beside).write_text("not of the table")
    make_old(old)
    make_old(beside)
    assert remove(catalog) == set()
    assert remove(catalog, OrphanOptions(NOW - timedelta(days=3), has_unknown=True)) == {old, beside}
    assert place_of(young).exists()


def test_unknown_files_outside_of_the_table_s_location_are_kept(catalog: Catalog) -> None:
    """Tables may share `write.data.path`, and nothing beside a table's data files says which table has them."""
    shared = f"{table_of(catalog).location()}-shared"
    foreign_table(catalog, TableIdentifier("shop", "other"), properties={TableProperties.WRITE_DATA_PATH: shared})
    other = catalog.load_table(("shop", "other"))
    other.append(pa.table({"id": [1]}, schema=other.schema().as_arrow()))
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({TableProperties.WRITE_DATA_PATH: shared})
    beside = f"{table_of(catalog).location()}/notes.txt"
    place_of(beside).write_text("not of the table")
    left = leave_behind(table_of(catalog), WRITER)
    void = place_of(left).rename(place_of(shared) / basename(left))
    land(catalog, 2, prev=land(catalog, 1).next)
    assert remove(catalog, UNKNOWN) == {f"file://{void}", beside}
    assert len(other.scan().to_arrow()) == 1


def test_files_of_other_engines_that_the_table_refers_to_are_kept(catalog: Catalog) -> None:
    table = table_of(catalog)
    table.append(pa.table({"id": [1]}, schema=table.schema().as_arrow()))
    statistics, of_partitions = (f"{table.location()}/metadata/{name}" for name in ("1.stats", "1-partitions.parquet"))
    place_of(statistics).write_text("")
    place_of(of_partitions).write_text("")
    snapshot = table_of(catalog).current_snapshot()
    assert snapshot
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1", snapshot_id=snapshot.snapshot_id, sequence_number=1, fields=[1]
    )
    file = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=statistics,
        file_size_in_bytes=0,
        file_footer_size_in_bytes=0,
        blob_metadata=[blob],
    )
    with table_of(catalog).update_statistics() as update:
        update.set_statistics(file)
    assert remove(catalog, UNKNOWN) == {of_partitions}
    place_of(of_partitions).write_text("")
    added = PartitionStatisticsFile(
        snapshot_id=snapshot.snapshot_id, statistics_path=of_partitions, file_size_in_bytes=0
    )
    update_statistics = SetPartitionStatisticsUpdate(partition_statistics=added)
    catalog.commit_table(table_of(catalog), (), (update_statistics,))
    assert remove(catalog, UNKNOWN) == set()
    assert ids_of(catalog, PATH) == [1]


def test_a_live_file_is_no_orphan_however_its_name_ends(catalog: Catalog) -> None:
    live = write_file(table_of(catalog), "part-0", 7)
    table_of(catalog).add_files([live])
    assert remove(catalog, UNKNOWN) == set()
    assert ids_of(catalog, PATH) == [7]


def test_metadata_that_lost_a_race_is_void_once_the_table_names_newer_ones_only(catalog: Catalog) -> None:
    names_few = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties(names_few)
    stale = table_of(catalog)
    land(catalog, 1)
    before = files_of(catalog, lambda _: True)
    with pytest.raises(CommitFailedException):
        catalog.commit_table(stale, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    [lost] = files_of(catalog, lambda _: True) - before
    assert f"file://{lost}" not in remove(catalog)
    for number in range(2, 5):
        land(catalog, number)
    assert f"file://{lost}" in remove(catalog)
    assert ids_of(catalog, PATH) == [1, 2, 3, 4]


def test_a_table_that_forbids_garbage_collection_keeps_its_files(catalog: Catalog) -> None:
    leave_behind(table_of(catalog), WRITER)
    land(catalog, 1)
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({GC_ENABLED: "false"})
    for options in (UNKNOWN, OrphanOptions(LATER, DroppedTables(catalog))):
        with pytest.raises(UserError) as error:
            find_orphan_files(catalog, catalog.load_table(PATH), options)
        check_text("maintenance_errors", "orphans: a table that forbids garbage collection", str(error.value))
    assert remove(catalog) == set()
    assert find_orphan_files(catalog, table_of(catalog), OURS).must_stay


def test_files_stay_if_garbage_collection_is_neither_allowed_nor_forbidden(catalog: Catalog) -> None:
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({GC_ENABLED: "maybe"})
    for options in OURS, UNKNOWN:
        with pytest.raises(ValueError, match=r"^gc\.enabled is 'maybe'; it must be true or false$"):
            find_orphan_files(catalog, catalog.load_table(PATH), options)


@pytest.fixture
def replaced(catalog: Catalog) -> str:
    """The table of an earlier version's backfill: dropped, and made again at the same location. Its UUID."""
    land(catalog, 1, 2)
    dropped = str(table_of(catalog).metadata.table_uuid)
    catalog.drop_table(PATH)
    foreign_table(catalog, PATH, properties=OWNED)
    land(catalog, 3)
    return dropped


def files_of(catalog: Catalog, is_wanted: Callable[[str], bool]) -> set[Path]:
    root = place_of(table_of(catalog).location())
    return {path for path in root.rglob("*") if path.is_file() and is_wanted(path.name)}


def test_files_of_a_dropped_table_are_deleted_if_the_user_asks(catalog: Catalog, replaced: str) -> None:
    own = str(table_of(catalog).metadata.table_uuid)
    found = find_orphan_files(catalog, catalog.load_table(PATH), OURS)
    assert (found.deletable, [*found.others]) == ([], [replaced])
    before = files_of(catalog, lambda _: True)
    deleted = remove(catalog, OrphanOptions(LATER, DroppedTables(catalog)))
    after = files_of(catalog, lambda _: True)
    assert {place_of(location) for location in deleted} == before - after
    assert not any(replaced in path.name for path in after)
    # Its data file, its manifest and manifest list, and its metadata files, too.
    assert len(deleted) == 5
    assert all(own in path.name or own in path.read_text() for path in after if path.suffix in (".parquet", ".json"))
    assert ids_of(catalog, PATH) == [3]


def test_a_table_with_a_young_file_does_not_count_as_dropped(catalog: Catalog, replaced: str) -> None:
    files = files_of(catalog, lambda name: replaced in name)
    [first, *others] = sorted(files)
    for path in others:
        make_old(path.as_uri())
    found = find_orphan_files(
        catalog, catalog.load_table(PATH), OrphanOptions(NOW - timedelta(days=3), DroppedTables(catalog))
    )
    assert (found.dropped, [*found.others]) == ([], [replaced])
    assert first.exists()


@pytest.mark.parametrize("namespace", ["shop", "archive", "archive.within"])
def test_a_table_that_was_renamed_keeps_its_files(catalog: Catalog, namespace: str) -> None:
    land(catalog, 1, 2)
    renamed = TableIdentifier(namespace, "former_orders")
    catalog.create_namespace_if_not_exists(namespace)
    catalog.rename_table(PATH, renamed)
    foreign_table(catalog, PATH, properties=OWNED)
    land(catalog, 3)
    unknown = write_file(catalog.load_table(renamed), "of-another-engine.parquet", 4)
    assert remove(catalog, OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True)) == set()
    assert ids_of(catalog, renamed) == [1, 2]
    assert place_of(unknown).exists()


def test_a_table_that_was_renamed_keeps_its_files_of_before_and_after_each_backfill(catalog: Catalog) -> None:
    land(catalog, 1)
    for number in (2, 3):
        begin_generation(catalog)
        land(catalog, number)
    renamed = TableIdentifier("shop", "former_orders")
    catalog.rename_table(PATH, renamed)
    foreign_table(catalog, PATH, properties=OWNED)
    land(catalog, 4)
    assert remove(catalog, OrphanOptions(LATER, DroppedTables(catalog))) == set()
    assert ids_of(catalog, renamed) == [1, 2, 3]


@pytest.mark.parametrize(("log", "name"), [("_delta_log", "00000000000000000000.json"), (".hoodie", "1.commit")])
def test_only_void_files_are_orphans_beside_the_log_of_another_table_format(
    catalog: Catalog, tmp_path: Path, log: str, name: str
) -> None:
    """Unity Catalog keeps Iceberg's metadata below a table's root, which has Delta's log and the data files."""
    catalog.drop_table(PATH)
    root = f"file://{tmp_path}/unity"
    properties = {**OWNED, TableProperties.WRITE_DATA_PATH: root}

    def add_table() -> str:
        table = catalog.create_table(PATH, ID_ONLY, location=f"{root}/_iceberg", properties=properties)
        return str(table.metadata.table_uuid)

    dropped = add_table()
    land(catalog, 1)
    catalog.drop_table(PATH)
    add_table()
    void = leave_behind(table_of(catalog), WRITER)
    land(catalog, 2)
    entry = tmp_path / "unity" / log / name
    entry.parent.mkdir()
    entry.write_text("{}")
    entry.with_name("part-0.parquet").write_text("a checkpoint, or rows")
    write_file(table_of(catalog), "part-1.parquet", 3)
    options = OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True)
    found = find_orphan_files(catalog, table_of(catalog), options)
    assert locations(found.deletable) == {void}
    assert (found.foreign_log, [*found.others]) == (f"{root}/{log}", [dropped])


@pytest.mark.parametrize("mark", ["#", "?"])
def test_a_file_whose_location_would_mean_another_one_is_no_orphan(catalog: Catalog, mark: str) -> None:
    land(catalog, 1)
    [live] = files_of(catalog, lambda name: name.endswith(".parquet"))
    beside = live.with_name(f"{live.name}{mark}copy")
    beside.write_bytes(b"")
    assert remove(catalog, UNKNOWN) == set()
    assert live.exists()
    assert beside.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_file_whose_name_is_no_text_is_no_orphan(catalog: Catalog) -> None:
    directory = place_of(table_of(catalog).location()) / "data"
    directory.mkdir(exist_ok=True)
    (directory / "left.parquet").touch()
    os.close(os.open(os.fsencode(directory) + b"/\xff.parquet", os.O_CREAT))
    assert {basename(location) for location in remove(catalog, UNKNOWN)} == {"left.parquet"}


def write_metadata(catalog: Catalog, name: str, changes: dict[str, Any], encode: Callable[[bytes], bytes]) -> Path:
    """Write a metadata file as of another table in the directory of this one."""
    current = place_of(table_of(catalog).metadata_location)
    metadata = json.loads(current.read_text()) | changes
    file = current.with_name(name)
    file.write_bytes(encode(json.dumps({key: value for key, value in metadata.items() if value is not None}).encode()))
    return file


@pytest.mark.parametrize("name", ["v1.metadata.json.gz", "v1.gz.metadata.json"])
def test_unknown_files_stay_beside_compressed_metadata_of_another_table(catalog: Catalog, name: str) -> None:
    unknown = write_file(table_of(catalog), "part-0.parquet", 4)
    other = str(uuid.uuid4())
    write_metadata(catalog, name, {"table-uuid": other}, gzip.compress)
    assert [*find_orphan_files(catalog, catalog.load_table(PATH), UNKNOWN).others] == [other]
    assert remove(catalog, UNKNOWN) == set()
    assert place_of(unknown).exists()


@pytest.mark.parametrize("table_uuid", [None, "not a UUID"])
def test_a_table_without_a_uuid_does_not_count_as_dropped(catalog: Catalog, table_uuid: str | None) -> None:
    unknown = write_file(table_of(catalog), "part-0.parquet", 4)
    metadata = write_metadata(catalog, "00001-a.metadata.json", {"table-uuid": table_uuid}, bytes)
    assert remove(catalog, OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True)) == set()
    assert place_of(unknown).exists()
    assert metadata.exists()


@pytest.mark.parametrize("encode", [bytes, gzip.compress], ids=["plain", "compressed"])
@pytest.mark.parametrize(("filler", "length"), [(b" ", LARGEST_METADATA), (b"[", 100_000)], ids=["large", "deep"])
def test_metadata_that_is_too_large_or_nested_too_deeply_counts_as_of_no_dropped_table(
    catalog: Catalog, filler: bytes, length: int, encode: Callable[[bytes], bytes]
) -> None:
    unknown = write_file(table_of(catalog), "part-0.parquet", 4)
    metadata = place_of(table_of(catalog).metadata_location).with_name("00001-a.metadata.json")
    other = str(uuid.uuid4()).encode()
    metadata.write_bytes(encode(b'{"table-uuid": "%s", "properties": %s{}}' % (other, filler * length)))
    assert remove(catalog, OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True)) == set()
    assert place_of(unknown).exists()
    assert metadata.exists()


def test_unknown_files_beside_those_of_a_dropped_table_are_deleted_with_them(catalog: Catalog, replaced: str) -> None:
    unknown = write_file(table_of(catalog), "of-another-engine.parquet", 4)
    assert remove(catalog, UNKNOWN) == set()
    deleted = remove(catalog, OrphanOptions(LATER, DroppedTables(catalog), has_unknown=True))
    assert unknown in deleted
    assert not any(
        replaced in location
        for location in locations(find_orphan_files(catalog, catalog.load_table(PATH), UNKNOWN).deletable)
    )


def test_a_file_that_is_added_while_files_are_listed_is_kept(catalog: Catalog) -> None:
    left = write_file(table_of(catalog), "part-0.parquet", 7)
    plant(catalog, [no_fault, do_first(lambda: table_of(catalog).add_files([left]))], "load_table")
    assert find_orphan_files(catalog, catalog.load_table(PATH), UNKNOWN).deletable == []


def test_a_file_of_a_compaction_is_kept_as_long_as_it_may_be_committed(catalog: Catalog) -> None:
    """It is committed within an hour, if it is; and it is ours, so it is not unknown."""
    table = table_of(catalog)
    day, now = 86_400_000, time.time_ns() // 1_000_000
    names = {
        age: f"{CompactionOrigin(now - age, str(table.metadata.table_uuid)).file_prefix}-{uuid.uuid4()}.parquet"
        for age in (0, day - 60_000, day + 60_000)
    }
    young, almost, old = (write_file(table, name, 7) for name in names.values())
    assert remove(catalog, UNKNOWN) == set()  # the table has no snapshot, which a commit would have loaded
    land(catalog, 1)
    assert remove(catalog, UNKNOWN) == {old}
    assert place_of(young).exists()
    assert place_of(almost).exists()


def test_a_file_of_a_compaction_of_a_dropped_table_is_deleted_with_the_others(catalog: Catalog) -> None:
    origin = CompactionOrigin(0, str(table_of(catalog).metadata.table_uuid))
    left = write_file(table_of(catalog), f"{origin.file_prefix}-{uuid.uuid4()}.parquet", 7)
    catalog.drop_table(PATH)
    foreign_table(catalog, PATH, properties=OWNED)
    land(catalog, 1)
    assert remove(catalog, UNKNOWN) == set()
    assert left in remove(catalog, OrphanOptions(LATER, DroppedTables(catalog)))


def test_a_file_in_a_directory_that_is_spelled_in_two_ways_is_found_once(catalog: Catalog) -> None:
    data = place_of(table_of(catalog).location()) / "data"
    with table_of(catalog).transaction() as transaction:
        transaction.set_properties({TableProperties.WRITE_DATA_PATH: str(data)})
    data.mkdir(exist_ok=True)
    (data / "left.parquet").touch()
    found = find_orphan_files(catalog, catalog.load_table(PATH), UNKNOWN).deletable
    assert [basename(file.location) for file in found] == ["left.parquet"]


@pytest.mark.parametrize(
    ("location", "properties", "directories"),
    [
        ("s3://lake/t", {}, ["s3://lake/t"]),
        ("s3a://lake/t/", {}, ["s3a://lake/t"]),
        ("s3://lake/t", {TableProperties.WRITE_DATA_PATH: "s3a://lake/t/data"}, ["s3://lake/t"]),
        ("s3a://lake/t", {TableProperties.WRITE_METADATA_PATH: "s3n://lake/t"}, ["s3a://lake/t"]),
        ("s3a://lake/t", {TableProperties.WRITE_DATA_PATH: "s3://lake/tt"}, ["s3://lake/tt", "s3a://lake/t"]),
        ("s3://lake/t", {TableProperties.WRITE_DATA_PATH: "s3a://other/t"}, ["s3://lake/t", "s3a://other/t"]),
        ("hdfs://a/t", {TableProperties.WRITE_DATA_PATH: "hdfs://b/t/data"}, ["hdfs://a/t", "hdfs://b/t/data"]),
    ],
)
def test_a_bucket_has_the_same_directories_in_each_spelling(
    catalog: Catalog, location: str, properties: dict[str, str], directories: list[str]
) -> None:
    table = table_of(catalog)
    table.metadata = table.metadata.model_copy(update={"location": location, "properties": properties})
    assert find_directories(table) == directories


def test_a_live_file_is_no_orphan_if_the_metadata_spell_its_directory_otherwise(catalog: Catalog) -> None:
    land(catalog, 1)
    table = table_of(catalog)
    live = place_of(table.location()) / "elsewhere" / "live.parquet"
    live.parent.mkdir()
    pq.write_table(pa.table([pa.array([2])], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])), live)
    table.add_files([str(live)])  # a path without a scheme, and listed files have one
    assert remove(catalog, UNKNOWN) == set()
