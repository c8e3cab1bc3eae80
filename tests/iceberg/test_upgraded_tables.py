"""Tables that another engine has upgraded from format version 1. Their old manifests and manifest lists do not say that
they list data files, because that version knows no others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.avro_files import AvroFileWriter, AvroSchema
from connector.iceberg.metadata.listed_files import ManifestCache
from support.bindings import PATH
from support.engines.snapshot_refs import point
from support.rows.updated_rows import DOCUMENT, land, row, stage_updates, values_of
from support.tables.altered_tables import ID, append, current_manifests
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import local_catalog, table_of, upgrade_to_version_3

FIRST_LIST: Final = MANIFEST_LIST_FILE_SCHEMAS[1]
NEWEST_LIST: Final = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields]
OF_BEFORE: Final = dict.fromkeys((*range(6), *range(10, 16)), "a")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table of format version 2, with six files of when it had version 1."""
    catalog = local_catalog(tmp_path)
    catalog.create_namespace(PATH.namespace)
    catalog.create_table(PATH, Schema(ID, DOCUMENT), properties={**EAGER, "format-version": "1"})
    for number in range(6):
        append(catalog, row(number, "a"), row(number + 10, "a"))
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.upgrade_table_version(2)
    return catalog


def test_rows_of_before_are_found_and_replaced(catalog: Catalog) -> None:
    land(catalog, {0: "b", 12: "b"}, removed=[11])
    found = values_of(catalog)
    assert 11 not in found
    assert {**found, 11: "a"} == OF_BEFORE | {0: "b", 12: "b"}


def test_rows_of_before_that_come_back_after_a_rollback_are_replaced(catalog: Catalog) -> None:
    """Their snapshots have no sequence numbers."""
    *_, before, newest = catalog.load_table(PATH).metadata.snapshots
    point(catalog, PATH, MAIN_BRANCH, before.snapshot_id)
    staged = stage_updates(catalog, {5: "b"})
    point(catalog, PATH, MAIN_BRANCH, newest.snapshot_id)
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == OF_BEFORE | {5: "b"}


def test_files_of_before_are_compacted(catalog: Catalog) -> None:
    staged = stage_updates(catalog, {1: "b"})
    assert compact(catalog, PATH).files_before == 6
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == OF_BEFORE | {1: "b"}


def test_manifests_of_before_are_merged_as_those_of_data_files(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2"})
    land(catalog, {20: "b"})
    manifests = current_manifests(catalog.load_table(PATH))
    assert [manifest.content for manifest in manifests] == [ManifestContent.DATA] * 2
    assert values_of(catalog) == OF_BEFORE | {20: "b"}


def test_rows_of_before_get_ids_in_version_3(catalog: Catalog) -> None:
    upgrade_to_version_3(catalog, PATH)
    land(catalog, {20: "b"})
    listed = ManifestCache().list_files(catalog.load_table(PATH))
    assert sorted(file.first_row_id for file in listed if file.first_row_id is not None) == [0, 1, 3, 5, 7, 9, 11]


def leave_out_counts(table: Table, names: Sequence[str]) -> None:
    """Write the newest manifest list as version 1 allows it: it need not say how many files and rows there are."""
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = current_manifests(table)
    table.io.delete(snapshot.manifest_list)
    schema = AvroSchema.of(FIRST_LIST, "manifest_file")
    with AvroFileWriter(table.io.new_output(snapshot.manifest_list), schema, {"format-version": "1"}) as writer:
        for manifest in manifests:
            values = {each.name: manifest[NEWEST_LIST.index(each.name)] for each in FIRST_LIST.fields}
            writer.write_block([ManifestFile.from_args(1, **values | dict.fromkeys(names))])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("what", [("rows",), ("rows", "files")])
def test_a_manifest_list_of_before_may_not_have_counted_its_files_and_rows(
    catalog: Catalog, what: Sequence[str], version: int
) -> None:
    names = [f"{status}_{each}_count" for status in ("added", "existing", "deleted") for each in what]
    leave_out_counts(table_of(catalog), names)
    if version == 3:
        upgrade_to_version_3(catalog, PATH)
    land(catalog, {20: "b"})
    land(catalog, {0: "b"})
    table = table_of(catalog)
    counts = [(each.added_rows_count, each.added_files_count) for each in current_manifests(table)]
    assert sorted(counts) == [(1, 1)] * 3 + [(2, 1)] * 6
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary["total-records"] == "14"
    ids = [file.first_row_id for file in ManifestCache().list_files(table) if file.first_row_id is not None]
    assert len(ids) == len(set(ids)) == (8 if version == 3 else 0)
