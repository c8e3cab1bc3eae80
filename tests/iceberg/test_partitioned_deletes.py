"""In partitioned tables, a delete file has the spec and the partition of the data files that it is for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.transforms import BucketTransform

from connector.iceberg.commits import delete_files, delete_merging
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache, PositionDeletes
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.engines.delete_partitions import find_misplaced
from support.engines.foreign_deletes import delete_position
from support.engines.readers import duckdb_rows
from support.engines.spark_sql import SparkSql, spark_rows
from support.rows.updated_rows import BY_PART, land, make_table, row, stage_updates, values_of
from support.tables.altered_tables import append, entries

MOST = 4
FEW = 2
EQUAL: Any = EqualTo  # its constructor has no types


@pytest.fixture
def catalog(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(delete_merging, "MAX_PARTITION_SCOPED", MOST)
    monkeypatch.setattr(delete_files, "FILE_SCOPED_UP_TO", FEW)
    make_table(catalog, BY_PART)
    return catalog


def listed(catalog: Catalog, content: DataFileContent = DataFileContent.POSITION_DELETES) -> list[DataFile]:
    return [entry.data_file for entry in entries(catalog) if entry.data_file.content is content]


def check(catalog: Catalog, values: dict[int, Any]) -> None:
    assert values_of(catalog) == values
    assert not find_misplaced(catalog.load_table(PATH))


def fill(catalog: Catalog, files: int, letters: str = "abc") -> dict[int, Any]:
    """Commit a number of data files in each partition, with two rows each."""
    values: dict[int, Any] = {}
    for file in range(files):
        new = {100 * file + 10 * place + each: letter for place, letter in enumerate(letters) for each in range(2)}
        land(catalog, new)
        values |= new
    return values


def test_the_delete_of_a_row_that_moves_goes_to_its_old_partition(catalog: Catalog) -> None:
    values = fill(catalog, 1)
    land(catalog, {0: "b", 10: "b", 20: "a"})
    assert sorted(str(file.partition) for file in listed(catalog)) == ["Record[a]", "Record[b]", "Record[c]"]
    check(catalog, values | {0: "b", 10: "b", 20: "a"})


def test_pending_commits_delete_in_the_partitions_of_the_ones_before(catalog: Catalog) -> None:
    pending: list[StagedCommit] = []
    for values in ({1: "a", 2: "a", 3: "b"}, {1: "b", 4: "b"}, {1: "c", 4: "a"}):
        pending.append(stage_updates(catalog, values, after=pending))
    commit_all_or_raise(catalog, pending)
    check(catalog, {1: "c", 2: "a", 3: "b", 4: "a"})


def test_many_data_files_get_a_delete_file_for_each_partition(catalog: Catalog) -> None:
    values = fill(catalog, 3)
    changed = {number: "d" for number in values if number % 10 == 0}
    land(catalog, changed)
    assert len(changed) == 9
    assert sorted(str(file.partition) for file in listed(catalog)) == ["Record[a]", "Record[b]", "Record[c]"]
    check(catalog, values | changed)


def test_a_few_data_files_get_a_delete_file_each(catalog: Catalog) -> None:
    values = fill(catalog, 2)
    land(catalog, {0: "d", 100: "d"})
    assert [str(file.partition) for file in listed(catalog)] == ["Record[a]", "Record[a]"]
    check(catalog, values | {0: "d", 100: "d"})


def test_delete_files_are_merged_in_the_partition_that_has_too_many(catalog: Catalog) -> None:
    values: dict[int, Any] = {}
    for file in range(FEW + 1):
        new = {100 * file + number: "ab"[number // 10] for number in range(20)}
        land(catalog, new)
        values |= new
    changed = {100 * file + 10: "d" for file in range(FEW + 1)}
    land(catalog, changed)  # one delete file in b
    for number in range(2):
        more = {100 * file + number: "d" for file in range(FEW + 1)}
        land(catalog, more)
        changed |= more
    assert sorted(str(file.partition) for file in listed(catalog)) == ["Record[a]", "Record[a]", "Record[b]"]
    land(catalog, {9: "d"})
    of_a = [file for file in listed(catalog) if str(file.partition) == "Record[a]"]
    assert [file.record_count for file in of_a] == [2 * (FEW + 1) + 1]
    assert [file.record_count for file in listed(catalog) if file not in of_a] == [FEW + 1], "nothing to merge in b"
    check(catalog, values | changed | {9: "d"})


def test_a_data_file_without_rows_leaves_its_partition(catalog: Catalog) -> None:
    values = fill(catalog, 1)
    land(catalog, {0: "b", 1: "b"})
    assert not listed(catalog)
    assert "Record[a]" not in {str(file.partition) for file in listed(catalog, DataFileContent.DATA)}
    check(catalog, values | {0: "b", 1: "b"})


def test_deletes_of_other_engines_are_honoured_and_merged(catalog: Catalog) -> None:
    append(catalog, *(row(number, "a") for number in range(10)), *(row(number, "b") for number in range(10, 20)))
    of_a = next(file for file in listed(catalog, DataFileContent.DATA) if str(file.partition) == "Record[a]")
    for position in range(MOST + 1):
        delete_position(catalog.load_table(PATH), of_a.file_path, position)
    land(catalog, {0: "b", 9: "b"})
    [merged] = listed(catalog)
    assert (str(merged.partition), merged.record_count) == ("Record[a]", MOST + 2)
    check(catalog, {0: "b", **dict.fromkeys(range(MOST + 1, 9), "a"), **dict.fromkeys(range(9, 20), "b")})


def test_deletes_of_another_partition_are_not_applied(catalog: Catalog) -> None:
    fill(catalog, 1)
    land(catalog, {0: "b"})
    files = ManifestCache().list_files(catalog.load_table(PATH))
    data = {file.partition.text: file for file in files if file.content is DataFileContent.DATA}
    [delete] = [file for file in files if file.content is DataFileContent.POSITION_DELETES]

    def applied(to: ListedFile) -> list[ListedFile]:
        return PositionDeletes([replace(delete, bounds=None)]).find_all([to])[to.path]

    older = {text: replace(file, sequence_number=1) for text, file in data.items()}
    assert [text for text, file in older.items() if applied(file)] == ["['a']"]
    partition = replace(older["['a']"].partition, spec_id=1)
    assert not applied(replace(older["['a']"], partition=partition))


def test_deletes_follow_the_spec_of_the_data_file_after_the_spec_has_changed(catalog: Catalog) -> None:
    values = fill(catalog, FEW + 1, "ab")
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    land(catalog, {number: "c" for number in values if number % 10 == 0})
    assert {file.spec_id for file in listed(catalog)} == {0}
    assert {file.spec_id for file in listed(catalog, DataFileContent.DATA)} == {0, 1}
    land(catalog, {0: "e"}, removed=[1])
    check(
        catalog,
        {number: "c" if number % 10 == 0 else value for number, value in values.items() if number != 1} | {0: "e"},
    )


def evolved(catalog: Catalog) -> dict[int, Any]:
    """Commit rows under two specs, and change rows of both. Return the values."""
    values = fill(catalog, FEW + 1)
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    changed = {number: "b" for number in values if number % 10 == 0}
    land(catalog, changed)
    again = {0: "c", 10: "c", 20: "c", 100: "b"}
    land(catalog, again)
    return values | changed | again


def test_pyiceberg_finds_the_rows_of_a_partition(catalog: Catalog) -> None:
    values = evolved(catalog)
    for letter in "abc":
        scan = catalog.load_table(PATH).scan(row_filter=EQUAL("part", letter))
        assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(n for n, value in values.items() if value == letter)
        assert len(list(scan.plan_files())) < len(listed(catalog, DataFileContent.DATA))


def test_duckdb_finds_the_rows_of_a_partition(catalog: Catalog, duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    values = evolved(catalog)
    rows = duckdb_rows(duckdb_reader, catalog.load_table(PATH).metadata_location, "id")
    assert {row["id"]: row["part"] for row in rows} == values
    assert len(rows) == len(values)
    location = catalog.load_table(PATH).metadata_location
    found = duckdb_reader.sql("SELECT id FROM iceberg_scan($1) WHERE part = 'c'", params=[location]).fetchall()
    assert sorted(found) == sorted((number,) for number, value in values.items() if value == "c")


@pytest.mark.spark
def test_java_finds_the_rows_of_a_partition(catalog: Catalog, tmp_path: Path, spark_reader: SparkSql) -> None:
    values = evolved(catalog)
    everything, of_c, partitions = spark_rows(
        spark_reader,
        tmp_path,
        "SELECT id, part FROM local.shop.orders",
        "SELECT id FROM local.shop.orders WHERE part = 'c'",
        "SELECT partition.part AS part, spec_id, file_count FROM local.shop.orders.partitions",
    )
    assert sorted((row["id"], row["part"]) for row in everything) == sorted(values.items())
    assert sorted(row["id"] for row in of_c) == sorted(number for number, value in values.items() if value == "c")
    assert {(row["part"], row["spec_id"]) for row in partitions} >= {("a", 0), ("b", 1), ("c", 1)}
