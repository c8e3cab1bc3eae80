"""A table that is rearranged has the same rows, each in a file of the table's partition spec and sort order."""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePartitionSpecsUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import NestedField, StringType, StructType

from connector.encoding.parquet.file_options import TARGET_SIZE
from connector.encoding.rewriting import arranged_compaction, group_compaction
from connector.encoding.rewriting.file_groups import Compact, GroupOutcome
from connector.encoding.runs import run_merging
from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance import compact_table, rearrangement_plan
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.compaction_plan import plan_compaction
from connector.iceberg.maintenance.compaction_thresholds import MAX_FILE_SIZE
from connector.iceberg.maintenance.rearrangement_plan import plan_rearrangement
from connector.iceberg.maintenance.table_health import FileCount, read_health
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.model.state import StagedCommit
from connector.model.table_identifier import Generation
from support.bindings import PATH
from support.engines.delete_partitions import find_misplaced
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import BY_PART, DOCUMENT, PART, land, make_table, row, stage_updates, values_of
from support.snapshots import check_text
from support.tables import compacting
from support.tables.altered_tables import ID, append, filled_table
from support.tables.compacting import EAGER
from support.tables.local_tables import local_catalog, upgrade_to_version_3
from support.tables.vectors import Listed, check_totals

pytestmark = pytest.mark.long

SOME_UUID: Final = "6b1f1c1e-93d5-4d0e-8b7e-0f5b6a3c2d10"
# Values by id, in two partitions.
FIRST: Final = dict.fromkeys(range(6), "a1") | dict.fromkeys(range(6, 12), "b1")

rearrange = partial(compacting.compact, plan=plan_rearrangement)


@pytest.fixture(params=[2, 3], ids=["version 2", "version 3"])
def catalog(catalog: Catalog, request: pytest.FixtureRequest) -> Catalog:
    """A table of both format versions, without partitions, that has a row in each partition of the later spec."""
    table = filled_table(catalog, ID, DOCUMENT, PART)
    with table.transaction() as transaction:
        transaction.set_properties(EAGER)
    if request.param == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, FIRST)
    return catalog


def partition_by_part(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("part", IdentityTransform(), "part")


def data_files(catalog: Catalog) -> list[ListedFile]:
    listed = ManifestCache().list_files(catalog.load_table(PATH))
    return [file for file in listed if file.content is DataFileContent.DATA]


def ids_by_partition(catalog: Catalog) -> dict[str, list[int]]:
    """The ids in the files of each partition, in the order of the files and of their rows."""
    found: dict[str, list[int]] = {}
    for file in data_files(catalog):
        ids = pq.read_table(file.path.removeprefix("file://"))["id"].to_pylist()
        found.setdefault(file.partition.text, []).extend(ids)
    return found


def check(catalog: Catalog, expected: dict[int, Any]) -> None:
    """Readers skip partitions that a filter rules out. Each delete file has the partition of its data file."""
    assert values_of(catalog) == dict(sorted(expected.items()))
    for part in "ab":
        of_part = {number: value for number, value in sorted(expected.items()) if value.startswith(part)}
        assert values_of(catalog, PATH, f"part = '{part}'") == of_part
    table = catalog.load_table(PATH)
    assert not find_misplaced(table)
    if table.format_version > 2:
        Listed.of(catalog, PATH)
    check_totals(catalog, PATH)


def test_each_row_gets_into_its_partition(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    partition_by_part(catalog)
    assert plan_compaction(*loaded(catalog)).groups == (), "a compaction leaves the file as it is"
    assert read_health(*loaded(catalog)).old == FileCount(1, data_files(catalog)[0].size)
    result = rearrange(catalog, PATH)
    assert (result.commits, result.files_before, result.files_after, result.rows, result.debt) == (1, 1, 2, 12, 0)
    assert ids_by_partition(catalog) == {"['a']": [*range(6)], "['b']": [*range(6, 12)]}
    check(catalog, FIRST)
    location = catalog.load_table(PATH).metadata_location
    assert duckdb_reader.sql(f"SELECT count(*) FROM iceberg_scan('{location}') WHERE part = 'b'").fetchall() == [(6,)]
    assert read_health(*loaded(catalog)).old == FileCount(0, 0)
    assert rearrange(catalog, PATH).commits == 0, "nothing is left to do"


def loaded(catalog: Catalog) -> tuple[Table, list[ListedFile]]:
    table = catalog.load_table(PATH)
    return table, ManifestCache().list_files(table)


def test_rows_that_are_deleted_before_and_meanwhile_stay_deleted(catalog: Catalog) -> None:
    """Deletes that come while files are written are carried over to the new partitions."""
    land(catalog, {1: "b2", 7: "b2"}, removed=[2])
    partition_by_part(catalog)
    result = rearrange(catalog, PATH, lambda: land(catalog, {3: "b3", 8: "a3"}, removed=[4, 9]))
    assert (result.commits, result.dropped) == (1, 0)
    expected = {**FIRST, 1: "b2", 7: "b2", 3: "b3", 8: "a3"}
    expected = {number: value for number, value in expected.items() if number not in (2, 4, 9)}
    check(catalog, expected)
    assert {file.partition.spec_id for file in data_files(catalog)} == {1}
    compacting.compact(catalog, PATH)
    check(catalog, expected)


@pytest.mark.parametrize("catalog", [3], indirect=True)
def test_rows_keep_their_ids(catalog: Catalog) -> None:
    ids = row_ids(catalog)
    partition_by_part(catalog)
    rearrange(catalog, PATH)
    assert row_ids(catalog) == ids


def row_ids(catalog: Catalog) -> dict[int, int]:
    found: dict[int, int] = {}
    for file in data_files(catalog):
        rows = pq.read_table(file.path.removeprefix("file://"))
        assert file.first_row_id is not None
        inherited = range(file.first_row_id, file.first_row_id + file.rows)
        own = rows["_row_id"].to_pylist() if "_row_id" in rows.column_names else [None] * file.rows
        ids = [given if number is None else number for number, given in zip(own, inherited, strict=True)]
        found |= dict(zip(rows["id"].to_pylist(), ids, strict=True))
    assert found
    return found


def test_a_table_that_is_no_longer_partitioned_has_files_without_partitions(catalog: Catalog) -> None:
    partition_by_part(catalog)
    rearrange(catalog, PATH)
    land(catalog, {20: "b1"})
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("part")
    result = rearrange(catalog, PATH, lambda: land(catalog, {3: "b3"}, removed=[20]))
    assert (result.commits, result.dropped) == (1, 0)
    check(catalog, {**FIRST, 3: "b3"})
    specs = catalog.load_table(PATH).specs()
    assert {specs[file.partition.spec_id].is_unpartitioned() for file in data_files(catalog)} == {True}


def test_files_get_a_sort_order_that_came_later(catalog: Catalog) -> None:
    land(catalog, {12: "a1", 13: "b1"})
    table = catalog.load_table(PATH)
    with table.update_sort_order() as update:
        update.desc("id", IdentityTransform())
    assert rearrange(catalog, PATH).commits == 1
    [file] = data_files(catalog)
    assert file.sort_order_id == catalog.load_table(PATH).sort_order().order_id
    assert ids_by_partition(catalog) == {"": [*range(13, -1, -1)]}
    assert rearrange(catalog, PATH).commits == 0
    check(catalog, {**FIRST, 12: "a1", 13: "b1"})


def test_many_runs_are_merged_partition_by_partition(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arranged_compaction, "RUN_SIZE", 400)
    monkeypatch.setattr(arranged_compaction, "MOST_RUNS", 3)
    expected = {**FIRST, **{number: f"{'ab'[number % 2]}{number}" for number in range(100, 400)}}
    land(catalog, {number: value for number, value in expected.items() if number >= 100})
    partition_by_part(catalog)
    with catalog.load_table(PATH).update_sort_order() as update:
        update.desc("id", IdentityTransform())
    meanwhile = partial(land, catalog, dict.fromkeys(range(150, 350, 7), "b!"), removed=range(151, 350, 7))
    assert rearrange(catalog, PATH, meanwhile).commits == 1
    expected |= dict.fromkeys(range(150, 350, 7), "b!")
    for number in range(151, 350, 7):
        del expected[number]
    check(catalog, expected)
    rearrange(catalog, PATH)
    check(catalog, expected)
    assert set(ids_by_partition(catalog)) == {"['a']", "['b']"}


def test_groups_are_larger_than_files_and_new_files_have_the_target_size(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of several files are sorted together, and become several files."""
    monkeypatch.setattr(group_compaction, "ROW_GROUP_SIZE", 8_000)
    monkeypatch.setattr(run_merging, "_COPIED_AT_ONCE", 4_000)
    target = 20_000
    random = Random(1)
    for first in range(0, 600, 60):
        land(catalog, {number: f"a{random.randbytes(100).hex()}" for number in range(1000 + first, 1060 + first)})
    table = catalog.load_table(PATH)
    with table.transaction() as transaction:
        transaction.set_properties({TARGET_SIZE: str(target), MAX_FILE_SIZE: "1000000000"})
    with catalog.load_table(PATH).update_sort_order() as update:
        update.desc("id", IdentityTransform())
    expected = values_of(catalog)
    sizes = [group.size for group in plan_rearrangement(*loaded(catalog)).groups]
    assert target < max(sizes) <= 8 * target
    rearrange(catalog, PATH)
    assert max(file.size for file in data_files(catalog)) < 2 * target
    check(catalog, expected)


def test_a_file_without_its_partition_column_has_the_value_of_its_partition(tmp_path: Path) -> None:
    """Other engines may leave out the columns that rows are partitioned by."""
    catalog = local_catalog(tmp_path)
    make_table(catalog, BY_PART, **EAGER)
    append(catalog, row(1, "a"), row(2, "b"))
    for file in data_files(catalog):
        place = file.path.removeprefix("file://")
        pq.write_table(pq.read_table(place).drop_columns(["part"]), place)
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("part")
        update.add_field("part", TruncateTransform(1), "letter")
    assert rearrange(catalog, PATH).commits == 1
    current = catalog.load_table(PATH).spec().spec_id
    assert {(file.partition.spec_id, file.partition.text) for file in data_files(catalog)} == {
        (current, "['a']"),
        (current, "['b']"),
    }
    check(catalog, {1: "a", 2: "b"})


def test_the_spec_may_change_again_meanwhile(catalog: Catalog) -> None:
    partition_by_part(catalog)

    def change_again() -> None:
        with catalog.load_table(PATH).update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")

    assert rearrange(catalog, PATH, change_again).commits == 1
    assert {file.partition.spec_id for file in data_files(catalog)} == {1}
    check(catalog, FIRST)
    rearrange(catalog, PATH)
    assert {file.partition.spec_id for file in data_files(catalog)} == {2}
    check(catalog, FIRST)


def beside_a_session(catalog: Catalog, later: list[StagedCommit]) -> Compact:
    """Compacts, and after each job a session commits the next of these transactions."""

    def compact(*arguments: Any) -> Generator[GroupOutcome, None, None]:
        yield from list(compacting.compact_here(*arguments))
        assert later, "it goes on"
        commit_all_or_raise(catalog, [later.pop(0)])

    return compact


def test_it_ends_although_a_session_goes_on_with_the_old_spec(catalog: Catalog) -> None:
    """A session keeps the spec that it began with, also if another engine changes it."""
    later: list[StagedCommit] = []
    for number in range(100, 108):
        later.append(stage_updates(catalog, {number: "a2"}, after=later))
    partition_by_part(catalog)
    compactor = TableCompactor(catalog, beside_a_session(catalog, later), catalog.load_table, plan=plan_rearrangement)
    assert compactor.compact(PATH).commits == 1
    assert {file.partition.spec_id for file in data_files(catalog)} == {0, 1}
    check(catalog, {**FIRST, 100: "a2"})
    assert compactor.compact(PATH).files_before == 1, "another call takes it"
    check(catalog, {**FIRST, 100: "a2", 101: "a2"})


def test_the_table_is_compacted_also_if_a_session_goes_on_with_the_old_spec(catalog: Catalog) -> None:
    later: list[StagedCommit] = []
    for number in range(100, 108):
        later.append(stage_updates(catalog, {number: "b2"}, after=later))
    partition_by_part(catalog)
    for number in range(20, 24):
        land(catalog, {number: "a1"}, writer=replace(WRITER, materialization="acme/other"))

    TableCompactor(catalog, beside_a_session(catalog, later), catalog.load_table, plan=plan_rearrangement).compact(PATH)
    new = [file for file in data_files(catalog) if file.partition.text == "['a']"]
    assert len(new) == 1, "those of four transactions, and of the rearrangement"
    check(catalog, values_of(catalog))


def test_files_that_came_before_it_are_taken_together_with_later_ones(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit does not take all of them, and their groups change meanwhile."""
    monkeypatch.setattr(rearrangement_plan, "_LARGER", 1)
    monkeypatch.setattr(compact_table, "COMMIT_SECONDS", 0.0)
    for number in range(20, 24):
        land(catalog, {number: "a1"})
    old = data_files(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({TARGET_SIZE: str(2 * old[0].size), MAX_FILE_SIZE: "1000000000"})
    later: list[StagedCommit] = []
    for number in range(100, 140):
        later.append(stage_updates(catalog, {number: "a2"}, after=later))
    partition_by_part(catalog)

    TableCompactor(catalog, beside_a_session(catalog, later), catalog.load_table, plan=plan_rearrangement).compact(PATH)
    assert {file.path for file in old}.isdisjoint(file.path for file in data_files(catalog))


def test_if_another_engine_removes_the_spec_the_files_stay(catalog: Catalog) -> None:
    partition_by_part(catalog)

    def remove_spec() -> None:
        table = catalog.load_table(PATH)
        catalog.commit_table(table, (), (SetDefaultSpecUpdate(spec_id=0), RemovePartitionSpecsUpdate(spec_ids=[1])))

    result = rearrange(catalog, PATH, remove_spec)
    assert (result.commits, result.dropped) == (0, 1)
    check(catalog, FIRST)


def test_nothing_is_planned_while_a_backfill_waits_for_its_rows(catalog: Catalog) -> None:
    partition_by_part(catalog)
    table = catalog.load_table(PATH)
    awaited = replace(Generation.of(str(table.metadata.table_uuid), {}, WRITER.materialization), uuid=SOME_UUID)
    with table.transaction() as transaction:
        transaction.set_properties(replace(awaited, materialization=WRITER.materialization, schema_id=0).encode())
    assert plan_rearrangement(*loaded(catalog)).groups == ()


def test_partitions_of_values_within_structs_are_left_to_other_engines(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    inner = NestedField(3, "country", StringType())
    filled_table(catalog, ID, NestedField(2, "address", StructType(inner)), rows=[[{"id": 1, "address": None}]])
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("address.country", IdentityTransform(), "country")
    with pytest.raises(UserError) as raised:
        plan_rearrangement(*loaded(catalog))
    check_text("compaction_errors", "a partition of a value within a struct", str(raised.value))
    assert read_health(*loaded(catalog)).old.files == 1, "another engine can rewrite it"
