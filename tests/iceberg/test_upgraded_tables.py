"""Tables that another engine has upgraded from format version 1. Their old manifests and manifest lists do not say that
they list data files, because that version knows no others."""

from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ManifestReader
from support.altered_tables import ID, append, current_manifests
from support.bindings import PATH
from support.compacting import EAGER, compact
from support.tables import local_catalog, upgrade_to_version_3
from support.updated_rows import DOCUMENT, land, row, stage_updates, values_of

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
    listed = ManifestReader().list_files(catalog.load_table(PATH))
    assert sorted(file.first_row_id for file in listed if file.first_row_id is not None) == [0, 1, 3, 5, 7, 9, 11]
