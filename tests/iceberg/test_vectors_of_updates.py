"""Standard updates of tables of format version 3: a data file has one deletion vector, with all that was deleted."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from connector.iceberg.commits import delete_files
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.maintenance.table_health import read_health
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.row_lineage import find_manifest_key
from connector.iceberg.metadata.table_updates import find_next_row_id
from connector.model.state import StagedCommit, WriterId
from support.bindings import PATH
from support.engines.foreign_deletes import delete_position
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import BY_PART, land, make_table, stage_updates, values_of
from support.tables.altered_tables import current_manifests, fit, wanted
from support.tables.local_tables import local_catalog, upgrade_to_version_3
from support.tables.planted_faults import do_first, plant, refuse
from support.tables.vectors import Listed, check_totals, read_positions

OTHER = WriterId("acme/other", "orders.v0", WRITER.key_range)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    upgrade_to_version_3(catalog, PATH)
    return catalog


@pytest.fixture
def shared_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a commit to many data files."""
    monkeypatch.setattr(delete_files, "MOST_VECTOR_FILES", 1)


def summary(catalog: Catalog) -> dict[str, str]:
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    return snapshot.summary.additional_properties


def read_with(duckdb_reader: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[int, Any]:
    location = catalog.load_table(PATH).metadata_location
    rows = duckdb_reader.sql(f"SELECT id, doc->'value' FROM iceberg_scan('{location}')").fetchall()
    assert len(dict(rows)) == len(rows), "two rows for a key"
    return {number: None if value is None else int(value) for number, value in sorted(rows)}


def test_each_vector_has_a_puffin_file_for_itself(catalog: Catalog, tmp_path: Path) -> None:
    for number in range(3):
        land(catalog, {10 * number + each: "a" for each in range(10)})
    land(catalog, {0: "b", 1: "b", 10: "b", 25: "b"})
    found = Listed.of(catalog, PATH).vectors
    assert len({vector.path for vector in found.values()}) == len(found) == len(list(tmp_path.rglob("*.puffin"))) == 3
    positions = [read_positions(catalog.load_table(PATH), vector.path) for vector in found.values()]
    assert sorted(rows for of_file in positions for rows in of_file.values()) == [[0], [0, 1], [5]]
    assert [[*of_file] for of_file in positions] == [[path] for path in found]
    check_totals(catalog, PATH)


@pytest.mark.usefixtures("shared_files")
def test_vectors_of_many_data_files_share_a_puffin_file(catalog: Catalog, tmp_path: Path) -> None:
    for number in range(3):
        land(catalog, {10 * number + each: "a" for each in range(10)})
    land(catalog, {0: "b", 1: "b", 10: "b", 25: "b"})
    found = Listed.of(catalog, PATH)
    assert sorted(vector.rows for vector in found.vectors.values()) == [1, 1, 2]
    [only] = {vector.path for vector in found.vectors.values()}
    assert only.endswith("-deletes.puffin")
    assert len(list(tmp_path.rglob("*-deletes.*"))) == 1
    assert {name: number for name, number in summary(catalog).items() if "delete" in name or "dvs" in name} == {
        "added-delete-files": "3",
        "added-dvs": "3",
        "added-position-deletes": "4",
        "flow.deleted-rows": "4",
        "total-delete-files": "3",
        "total-equality-deletes": "0",
        "total-position-deletes": "4",
    }
    check_totals(catalog, PATH)


def test_manifests_of_vectors_take_no_row_ids(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {2: "b", 3: "b", 4: "b"})
    table = catalog.load_table(PATH)
    first_ids = [(manifest.content, find_manifest_key(manifest)[1]) for manifest in current_manifests(table)]
    assert sorted(first_ids, key=str) == [
        (ManifestContent.DATA, 0),
        (ManifestContent.DATA, 2),
        (ManifestContent.DELETES, None),
    ]
    assert find_next_row_id(table) == 5


@pytest.mark.usefixtures("shared_files")
def test_data_files_of_each_partition_spec_have_a_puffin_file(
    tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """DuckDB would take one vector for another if two manifests named one Puffin file."""
    catalog = local_catalog(tmp_path)
    make_table(catalog, BY_PART)
    upgrade_to_version_3(catalog, PATH)
    values = {10 * file + number: 10 * file for file in range(1, 5) for number in range(9)}
    for file in range(1, 5):
        if file == 3:
            with catalog.load_table(PATH).update_spec() as update:
                update.remove_field("part")
                update.add_field("id", BucketTransform(1), "bucket")
        land(catalog, {number: value for number, value in values.items() if value == 10 * file})
    removed = {10, 21, 32, 43}
    land(catalog, {}, removed)
    vectors = Listed.of(catalog, PATH).vectors.values()
    assert len({(vector.path, vector.manifest) for vector in vectors}) == len({vector.path for vector in vectors}) == 2
    remaining = {number: value for number, value in values.items() if number not in removed}
    assert values_of(catalog) == read_with(duckdb_reader, catalog) == remaining
    check_totals(catalog, PATH)


@pytest.mark.usefixtures("shared_files")
def test_a_vector_replaces_the_one_before_and_has_its_rows_too(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, dict.fromkeys(range(20, 30), "a"))
    land(catalog, {3: "b", 23: "b"})
    before = Listed.of(catalog, PATH).vectors
    land(catalog, {5: "c"})
    after = Listed.of(catalog, PATH).vectors
    [changed] = [path for path, vector in before.items() if after[path].vector != vector.vector]
    assert read_positions(catalog.load_table(PATH), after[changed].path) == {changed: [3, 5]}
    assert {before[path].path for path in before.keys() - {changed}} == {before[changed].path}, "that file stays"
    assert {name: summary(catalog)[name] for name in ("added-dvs", "removed-dvs", "removed-position-deletes")} == {
        "added-dvs": "1", "removed-dvs": "1", "removed-position-deletes": "1",
    }  # fmt: skip
    check_totals(catalog, PATH)
    assert values_of(catalog) == {
        number: {3: "b", 23: "b", 5: "c"}.get(number, "a") for number in (*range(10), *range(20, 30))
    }


def test_a_data_file_whose_last_row_is_deleted_leaves_with_its_vector(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {3: "a", 4: "a"})
    land(catalog, {1: "b", 3: "b"})
    land(catalog, {2: "c"})
    found = Listed.of(catalog, PATH)
    assert (len(found.data), len(found.vectors)) == (3, 1)
    assert {name: summary(catalog)[name] for name in ("deleted-data-files", "removed-dvs")} == {
        "deleted-data-files": "1", "removed-dvs": "1",
    }  # fmt: skip
    check_totals(catalog, PATH)
    assert values_of(catalog) == {1: "b", 2: "c", 3: "b", 4: "a"}


def test_manifests_without_live_files_do_not_gather(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(20), "a"))
    for number in range(8):
        land(catalog, {number: "b"})
    manifests = current_manifests(catalog.load_table(PATH))
    assert sum(not (each.added_files_count or each.existing_files_count) for each in manifests) <= 1


def test_vectors_are_of_the_partitions_of_their_data_files(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    make_table(catalog, BY_PART)
    upgrade_to_version_3(catalog, PATH)
    land(catalog, {number: "ab"[number % 2] for number in range(10)})
    land(catalog, {number: "ba"[number % 2] for number in range(4)})
    found = Listed.of(catalog, PATH)
    assert len(found.vectors) == 2
    for path, vector in found.vectors.items():
        assert vector.partition == found.data[path].partition
    assert values_of(catalog) == {number: "ba"[number % 2] if number < 4 else "ab"[number % 2] for number in range(10)}
    assert values_of(catalog, condition="part = 'a'").keys() == {1, 3, 4, 6, 8}


def test_a_retry_merges_with_the_vector_that_another_writer_has_committed(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {0: "b"})
    mine, theirs = stage_updates(catalog, {1: "c"}), stage_updates(catalog, {2: "d"}, writer=OTHER)
    plant(catalog, [do_first(lambda: commit_all_or_raise(catalog, [theirs]))])
    commit_all_or_raise(catalog, [mine])
    [vector] = Listed.of(catalog, PATH).vectors.values()
    assert vector.rows == 3
    check_totals(catalog, PATH)
    expected = dict.fromkeys(range(10), "a") | {0: "b", 1: "c", 2: "d"}
    assert values_of(catalog) == expected
    assert len(list(tmp_path.rglob("*.puffin"))) == 4, "that of the refused attempt, too"
    assert remove_task_orphans(catalog, PATH, WRITER, []) > 0
    assert len(list(tmp_path.rglob("*.puffin"))) == 3
    assert values_of(catalog) == expected


def test_an_attempt_that_was_refused_leaves_its_vectors_to_the_next_one(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})

    plant(catalog, [refuse(CommitFailedException("branch main has changed"))])
    commit_all_or_raise(catalog, [staged])
    assert len(list(tmp_path.rglob("*.puffin"))) == 1
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_position_deletes_of_before_an_upgrade_become_vectors(tmp_path: Path) -> None:
    catalog = local_catalog(tmp_path)
    make_table(catalog)
    for number in range(12):
        land(catalog, {10 * number + each: "a" for each in range(10)})
    land(catalog, {10 * number: "b" for number in range(12)})  # one file for all data files
    first, *_ = sorted(Listed.of(catalog, PATH).data)
    for position in (5, 6):
        delete_position(catalog.load_table(PATH), first, position)
    expected = values_of(catalog)
    upgrade_to_version_3(catalog, PATH)
    assert len(Listed.of(catalog, PATH).others) == 3
    touched = next(number for number in expected if expected[number] == "a")
    land(catalog, {touched: "c"})
    found = Listed.of(catalog, PATH)
    assert len(found.vectors) == 12
    assert sum(file.rows for file in found.vectors.values()) + sum(file.rows for file in found.others) == 15
    assert values_of(catalog) == expected | {touched: "c"}
    health = read_health(catalog.load_table(PATH), ManifestCache().list_files(catalog.load_table(PATH)))
    assert (health.deleted_rows, health.visible_rows) == (15, len(expected))


def test_a_transaction_that_was_staged_before_an_upgrade_is_committed_with_vectors(tmp_path: Path) -> None:
    """In this case between two attempts of the same commit."""
    catalog = local_catalog(tmp_path)
    make_table(catalog)
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {0: "b"})
    staged = stage_updates(catalog, {1: "c"})
    plant(catalog, [do_first(lambda: upgrade_to_version_3(catalog, PATH))])
    commit_all_or_raise(catalog, [staged])
    found = Listed.of(catalog, PATH)
    assert [vector.rows for vector in found.vectors.values()] == [2]
    assert not found.others
    assert values_of(catalog) == dict.fromkeys(range(10), "a") | {0: "b", 1: "c"}


@pytest.mark.usefixtures("shared_files")
def test_vectors_that_were_replaced_are_deleted_when_their_snapshots_expire(catalog: Catalog, tmp_path: Path) -> None:
    """A Puffin file stays as long as one of its vectors is needed."""
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, dict.fromkeys(range(20, 30), "a"))
    land(catalog, {0: "b", 20: "b"})
    for number in range(1, 5):
        land(catalog, {number: "b"})
    assert len(list(tmp_path.rglob("*.puffin"))) == 5
    expected = values_of(catalog)
    kept = {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "1"}
    catalog.commit_table(catalog.load_table(PATH), (), (SetPropertiesUpdate(updates=kept),))
    assert expire_snapshots(catalog, PATH) > 0
    assert remove_task_orphans(catalog, PATH, WRITER, []) > 0, "located rows"
    left = {f"file://{path}" for path in tmp_path.rglob("*.puffin")}
    assert left == {vector.path for vector in Listed.of(catalog, PATH).vectors.values()}
    assert len(left) == 2
    assert values_of(catalog) == expected


def test_a_conversion_removes_the_vectors_of_the_files_that_it_rewrites(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a", 3: "a"})
    land(catalog, {4: "a", 5: "a"})
    land(catalog, {1: "b", 4: "b"}, removed=[2])
    assert len(Listed.of(catalog, PATH).vectors) == 2
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    assert not Listed.of(catalog, PATH).vectors
    check_totals(catalog, PATH)
    documents = catalog.load_table(PATH).scan().to_arrow().to_pylist()
    assert sorted((row["id"], json.loads(row["doc"])["value"]) for row in documents) == [
        ("1", "b"), ("3", "a"), ("4", "b"), ("5", "a"),
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_random_transactions_leave_the_rows_of_a_dictionary(
    catalog: Catalog, seed: int, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Transactions wait, land in parts, and are repeated, while another writer updates other keys."""
    chance = random.Random(seed)
    expected: dict[int, Any] = {}
    pending: list[StagedCommit] = []
    land(catalog, dict.fromkeys(range(100, 110), -1), writer=OTHER)
    expected = dict.fromkeys(range(100, 110), -1)
    for number in range(20):
        ids = chance.sample(range(20), chance.randint(1, 8))
        removed = {each for each in ids if each in expected and chance.random() < 0.3}
        values = {each: number for each in ids if each not in removed}
        pending.append(stage_updates(catalog, values, removed, after=pending))
        expected = {key: value for key, value in expected.items() if key not in removed} | values
        if chance.random() < 0.5:
            if chance.random() < 0.5:
                others = dict.fromkeys(chance.sample(range(100, 110), 2), number)
                theirs = stage_updates(catalog, others, writer=OTHER)
                plant(catalog, [do_first(partial(commit_all_or_raise, catalog, [theirs]))])
                expected |= others
            commit_all_or_raise(catalog, pending[: chance.randint(1, len(pending))])
            for _ in range(2):
                commit_all_or_raise(catalog, pending)
            pending = []
            Listed.of(catalog, PATH)
            check_totals(catalog, PATH)
            assert values_of(catalog) == dict(sorted(expected.items()))
    commit_all_or_raise(catalog, pending)
    assert values_of(catalog) == read_with(duckdb_reader, catalog) == dict(sorted(expected.items()))
