"""Compaction of tables of format version 3: it leaves out what vectors delete, and carries new deletes as vectors."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent

from connector.encoding.values.arrays import Positions
from connector.iceberg.commits import delete_merging
from connector.iceberg.commits.compaction_changes import _Table
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.storage.file_io import WrittenFile
from support.bindings import PATH
from support.rows.updated_rows import land, make_table, values_of
from support.tables import compacted_tables
from support.tables.compacting import EAGER, compact
from support.tables.eager_compaction import files
from support.tables.local_tables import local_catalog, upgrade_to_version_3
from support.tables.vectors import Listed, check_totals


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog, None, **EAGER)
    upgrade_to_version_3(catalog, PATH)
    return catalog


def test_rows_that_are_deleted_while_files_are_written_get_a_vector_of_the_new_file(
    catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {20: "a", 21: "a"})
    land(catalog, {1: "b"}, (2,))
    result = compact(catalog, PATH, lambda: land(catalog, {3: "c"}, (4, 20)))
    assert (result.commits, result.dropped) == (1, 0)
    found = Listed.of(catalog, PATH)
    carried = [vector for path, vector in found.vectors.items() if "/compact-" in path]
    assert sum(vector.rows for vector in carried) > 0
    assert {"/compact-" in vector.path for vector in carried} == {True}
    assert {vector.path.endswith("-deletes.puffin") for vector in carried} == {True}
    check_totals(catalog, PATH)
    expected = {**dict.fromkeys(range(10), "a"), 1: "b", 3: "c", 21: "a"}
    del expected[2], expected[4]
    assert values_of(catalog) == dict(sorted(expected.items()))
    location = catalog.load_table(PATH).metadata_location
    rows = duckdb_reader.sql(f"SELECT id FROM iceberg_scan('{location}')").fetchall()
    assert sorted(number for (number,) in rows) == sorted(expected)
    assert compact(catalog, PATH).commits == 1
    assert not Listed.of(catalog, PATH).vectors
    check_totals(catalog, PATH)
    assert values_of(catalog) == dict(sorted(expected.items()))


def test_a_vector_that_did_not_reach_the_store_is_sent_by_the_next_attempt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {20: "a", 21: "a"})
    land(catalog, {1: "b"}, (2,))
    write, failed = WrittenFile._write, list[str]()

    def fail_once(file: WrittenFile) -> None:
        if file.location.endswith("-deletes.puffin") and "/compact-" in file.location and not failed:
            failed.append(file.location)
            raise OSError("the store does not answer")
        write(file)

    monkeypatch.setattr(WrittenFile, "_write", fail_once)
    result = compact(catalog, PATH, lambda: land(catalog, {3: "c"}, (4, 20)))
    assert (result.commits, result.dropped, len(failed)) == (1, 0, 1)
    expected = {**dict.fromkeys(range(10), "a"), 1: "b", 3: "c", 21: "a"}
    del expected[2], expected[4]
    assert values_of(catalog) == expected


def test_compactions_and_transactions_of_a_partitioned_table_meet(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    compacted_tables.check_compactions(catalog, PATH, prepare=lambda: upgrade_to_version_3(catalog, PATH))
    Listed.of(catalog, PATH)
    check_totals(catalog, PATH)


def test_vectors_that_another_engine_has_left_without_their_data_files_are_removed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a compaction stands for the other engine."""
    land(catalog, dict.fromkeys(range(4), "a"))
    land(catalog, {1: "b"})
    with monkeypatch.context() as patch:
        patch.setattr(_Table, "list_removed", lambda table, gone: [table._live[path] for path in gone])
        assert compact(catalog, PATH).commits == 1
    left = [file for file in ManifestCache().list_files(catalog.load_table(PATH)) if file.vector]
    assert len(left) == 1
    land(catalog, {2: "c"})
    assert len(Listed.of(catalog, PATH).vectors) == 1
    check_totals(catalog, PATH)
    assert values_of(catalog) == {0: "a", 1: "b", 2: "c", 3: "a"}


def test_shared_position_deletes_of_files_with_vectors_are_removed(tmp_path: Path) -> None:
    """Other engines leave them in an upgraded table, and write vectors that have their rows."""
    catalog = local_catalog(tmp_path)
    make_table(catalog, None, **EAGER)
    land(catalog, dict.fromkeys(range(1000, 4000), "a"))
    [large] = files(catalog)
    for number in range(9):
        land(catalog, {10 * number + each: "a" for each in range(2)})
    land(catalog, {1000: "b"} | {10 * number: "b" for number in range(9)})  # one file for all data files
    table = catalog.load_table(PATH)
    [shared] = [file for file in ManifestCache().list_files(table) if file.content is not DataFileContent.DATA]
    upgrade_to_version_3(catalog, PATH)
    with pytest.MonkeyPatch.context() as patch:  # the connector stands for the other engine
        perform = delete_merging.DeleteMerger.perform
        patch.setattr(delete_merging.DeleteMerger, "perform", lambda merge: keep(*perform(merge), shared.path))
        land(catalog, {1001: "c"})
    found = Listed.of(catalog, PATH)
    assert [file.path for file in found.others] == [shared.path]
    expected = values_of(catalog)
    assert compact(catalog, PATH).commits == 1
    assert large in files(catalog), "it is too large to be compacted with the others"
    assert not Listed.of(catalog, PATH).others
    check_totals(catalog, PATH)
    assert values_of(catalog) == expected


def keep(positions: dict[str, Positions], removed: list[ListedFile], path: str) -> tuple[Any, list[ListedFile]]:
    return positions, [file for file in removed if file.path != path]
