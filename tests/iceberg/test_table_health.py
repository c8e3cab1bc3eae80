"""The health of a table: what readers pay for its files, in figures that the rows themselves confirm."""

from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType

from connector.host.errors import UserError
from connector.iceberg.maintenance.rewrite_manifests import rewrite_manifests
from connector.iceberg.maintenance.table_health import TableHealth, read_health
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.iceberg.metadata.table_directories import BUCKET_SUFFIX
from connector.iceberg.table_status import TableSize, read_status
from connector.model.table_identifier import Owner
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import BY_PART, land, make_table, values_of
from support.tables.altered_tables import ID, QTY, QTY_AS_TEXT, filled_table, fit
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import local_catalog, upgrade_to_version_3

TARGET: Final = "write.target-file-size-bytes"


def make_catalog(directory: Path, spec: PartitionSpec | None) -> Catalog:
    catalog = local_catalog(directory)
    make_table(catalog, spec)
    set_properties(catalog, EAGER)
    return catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return make_catalog(tmp_path, None)


def set_properties(catalog: Catalog, properties: dict[str, str]) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(properties)


def list_files(catalog: Catalog) -> list[ListedFile]:
    return ManifestCache().list_files(catalog.load_table(PATH))


def health_of(catalog: Catalog) -> TableHealth:
    table = catalog.load_table(PATH)
    return read_health(table, ManifestCache().list_files(table))


def test_an_empty_table_has_nothing_to_pay_for(catalog: Catalog) -> None:
    health = health_of(catalog)
    assert (health.small_files, health.deleted_rows, health.visible_rows) == (0, 0, 0)
    assert (health.debt.size, health.last_compaction, health.metadata.manifests) == (0, None, 0)
    assert health.metadata.metadata_bytes > 0


@pytest.mark.parametrize("spec", [None, BY_PART], ids=["plain", "partitioned"])
def test_deleted_rows_are_not_visible_and_a_compaction_pays_the_debt(
    tmp_path: Path, spec: PartitionSpec | None
) -> None:
    catalog = make_catalog(tmp_path, spec)
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {3: "ab", 4: "ab"}, removed=[5])
    land(catalog, {3: "ac"})
    before = health_of(catalog)
    assert (before.deleted_rows, before.visible_rows) == (4, len(values_of(catalog)))
    assert (before.small_files, before.debt.files, before.last_compaction) == (3, 2, None)
    result = compact(catalog, PATH)
    after = health_of(catalog)
    assert (after.deleted_rows, after.visible_rows, after.debt.files) == (0, len(values_of(catalog)), 0)
    last = after.last_compaction
    assert last
    assert (last.files_before, last.files_after) == (result.files_before + result.delete_files, result.files_after)
    assert (last.bytes_before > before.debt.size == result.bytes_before, last.bytes_after) == (True, result.bytes_after)
    land(catalog, {11: "a"})
    assert health_of(catalog).last_compaction == last


def test_a_table_that_the_connector_does_not_compact_has_no_debt(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {3: "ab"})
    table = catalog.load_table(PATH)
    listed = ManifestCache().list_files(table)
    assert read_health(table, listed).debt.files == 1
    table.metadata = table.metadata.model_copy(update={"location": f"file://orders{BUCKET_SUFFIX}"})
    assert read_health(table, listed).debt.files == 0, "S3 Tables compacts it"
    with catalog.load_table(PATH).update_schema() as change:
        change.add_column("_row_id", LongType())
    assert health_of(catalog).debt.files == 1
    upgrade_to_version_3(catalog, PATH)
    assert health_of(catalog).debt.files == 0, "its rows would lose their ids"


def test_a_file_is_small_below_half_of_the_target(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    [file] = list_files(catalog)
    for target, small in ((2 * file.size, 0), (2 * file.size + 1, 1)):
        set_properties(catalog, {TARGET: str(target)})
        assert (health_of(catalog).target_size, health_of(catalog).small_files) == (target, small)


def test_deletes_of_files_that_are_gone_do_not_count(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    [file] = list_files(catalog)
    delete_position(catalog.load_table(PATH), file.path, 3)
    assert (health_of(catalog).deleted_rows, health_of(catalog).visible_rows) == (1, 9)
    catalog.load_table(PATH).delete("id >= 0")
    assert any(file.content is DataFileContent.POSITION_DELETES for file in list_files(catalog))
    assert (health_of(catalog).deleted_rows, health_of(catalog).visible_rows) == (0, 0)


def test_rows_that_are_deleted_by_value_are_not_counted(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    delete_equal(catalog.load_table(PATH), 3)
    assert health_of(catalog).visible_rows is None


def test_the_manifests_are_measured(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    table = catalog.load_table(PATH)
    metadata, snapshot = health_of(catalog).metadata, table.current_snapshot()
    assert snapshot
    assert metadata.manifests == 3
    assert metadata.manifest_bytes == sum(
        len(table.io.new_input(m.manifest_path)) for m in snapshot.manifests(table.io)
    )
    assert metadata.metadata_bytes == len(table.io.new_input(table.metadata_location))


def test_an_invalid_property_is_named(catalog: Catalog) -> None:
    set_properties(catalog, {"flow.compaction.min-input-files": "1"})
    with pytest.raises(UserError, match="min-input-files is '1'"):
        health_of(catalog)


def test_the_newest_compaction_is_shown_and_no_other_rewriting(catalog: Catalog) -> None:
    for number in range(-4, 0):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    first = health_of(catalog).last_compaction
    for number in range(4):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    second = health_of(catalog).last_compaction
    assert first
    assert second
    assert second.at > first.at
    owner = Owner(WRITER.materialization, WRITER.state_key)
    land(catalog, {9: "a"})
    assert rewrite_manifests(catalog, PATH, owner).groups
    assert health_of(catalog).last_compaction == second


@pytest.mark.parametrize("count", ["²", "-1", "", "9" * 20])
def test_a_count_of_another_engine_that_is_no_number_does_not_count(catalog: Catalog, count: str) -> None:
    for number in range(4):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    table = catalog.load_table(PATH)
    listed = ManifestCache().list_files(table)
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    for name in ("removed-files-size", "total-records"):
        assert name in snapshot.summary.additional_properties
        snapshot.summary.additional_properties[name] = count
    compaction = read_health(table, listed).last_compaction
    assert compaction
    assert (compaction.files_before, compaction.bytes_before) == (4, 0)
    assert read_status(PATH, table, None, None).size == TableSize()


def test_a_conversion_of_columns_is_no_compaction(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    filled_table(catalog, ID, QTY, rows=[[{"id": 1, "qty": 1}]])
    fit(catalog, *QTY_AS_TEXT)
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary.operation is Operation.REPLACE
    assert health_of(catalog).last_compaction is None
