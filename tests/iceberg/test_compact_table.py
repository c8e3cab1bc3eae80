"""A compacted table has the same rows, whatever happens between the plan and the commit."""

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from posixpath import basename
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, StringType

from connector.host.errors import UserError
from connector.iceberg.commits import delete_files as delete_files_module
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.fences.file_names import CompactionOrigin
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.model.table_identifier import Generation
from support.bindings import PATH
from support.engines.foreign_deletes import delete_equal, delete_position, list_delete_file
from support.engines.foreign_files import list_data_file
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import BY_PART, land, make_table, row, stage_updates, values_of
from support.snapshots import check_text
from support.tables.altered_tables import ID, QTY, append, current_manifests, entries, filled_table, fit, rows, wanted
from support.tables.compacting import EAGER, compact
from support.tables.eager_compaction import delete_files, files, make_eager, stored
from support.tables.local_tables import upgrade_to_version_3

pytestmark = pytest.mark.long
SOME_UUID: Final = "6b1f1c1e-93d5-4d0e-8b7e-0f5b6a3c2d10"


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_eager(catalog)
    return catalog


def test_small_files_become_one(catalog: Catalog) -> None:
    for number in range(6):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH)
    assert (result.files_before, result.files_after, result.rows, result.commits) == (6, 1, 6, 1)
    assert values_of(catalog) == dict.fromkeys(range(6), "a")
    [file] = files(catalog)
    assert CompactionOrigin.of(basename(file))
    assert compact(catalog, PATH).commits == 0, "nothing is left to do"


@pytest.mark.parametrize("list_file", [list_data_file, list_delete_file])
def test_rows_of_files_in_another_kind_of_store_are_not_copied(
    catalog: Catalog, list_file: Callable[[Table, str], None]
) -> None:
    for number in range(6):
        land(catalog, {number: "a"})
    list_file(catalog.load_table(PATH), "s3://payroll/salaries.parquet")
    before = files(catalog)
    with pytest.raises(UserError, match=r"s3://payroll/salaries\.parquet is in another kind of store"):
        compact(catalog, PATH)
    assert files(catalog) == before


def test_deleted_rows_and_their_delete_files_go(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {3: "b", 4: "b"}, removed=[5])
    result = compact(catalog, PATH)
    assert (result.deleted_rows, result.delete_files) == (3, 1)
    assert values_of(catalog) == {number: "b" if number in (3, 4) else "a" for number in range(10) if number != 5}
    assert not delete_files(catalog)


def test_the_summary_counts_what_the_table_has(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, {3: "b"})
    compact(catalog, PATH, lambda: land(catalog, {4: "c"}))
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    summary = snapshot.summary.additional_properties
    held = [entry.data_file for entry in entries(catalog)]
    data = [file for file in held if file.content is DataFileContent.DATA]
    deletes = [file for file in held if file.content is not DataFileContent.DATA]
    assert snapshot.summary.operation is Operation.REPLACE
    assert summary["total-data-files"] == str(len(data))
    assert summary["total-records"] == str(sum(file.record_count for file in data))
    assert summary["total-files-size"] == str(sum(file.file_size_in_bytes for file in held))
    assert summary["total-delete-files"] == str(len(deletes)) == "1"
    assert summary["total-position-deletes"] == str(sum(file.record_count for file in deletes)) == "1"
    assert summary["flow.compaction"] == "1"


def test_a_transaction_that_commits_meanwhile_loses_no_update(catalog: Catalog) -> None:
    """Its deletes are carried over. Deletes that it has merged with older ones are not applied twice."""
    land(catalog, dict.fromkeys(range(10), "a"))
    land(catalog, dict.fromkeys(range(20, 30), "a"))
    land(catalog, {1: "b", 21: "b"}, removed=[2])
    result = compact(catalog, PATH, lambda: land(catalog, {3: "c", 22: "c"}, removed=[4, 9]))
    assert result.commits == 1
    expected = dict.fromkeys((*range(10), *range(20, 30)), "a") | {1: "b", 21: "b", 3: "c", 22: "c"}
    assert values_of(catalog) == {number: value for number, value in expected.items() if number not in (2, 4, 9)}
    assert len(delete_files(catalog)) == 1
    compact(catalog, PATH)
    assert values_of(catalog) == {number: value for number, value in expected.items() if number not in (2, 4, 9)}
    assert not delete_files(catalog)


def test_a_row_that_was_found_before_a_compaction_is_deleted_after_it(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    land(catalog, {3: "a"})
    staged = stage_updates(catalog, {2: "b"}, removed=[3])
    compact(catalog, PATH)
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "a", 2: "b"}


def test_files_that_came_meanwhile_stay(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    compact(catalog, PATH, lambda: land(catalog, {7: "new"}), lambda: append(catalog, row(8, "foreign")))
    assert values_of(catalog) == {0: "a", 1: "a", 2: "a", 7: "new", 8: "foreign"}


def test_rows_that_another_engine_deletes_meanwhile_stay_deleted(catalog: Catalog) -> None:
    for first in (0, 3, 6):
        land(catalog, dict.fromkeys(range(first, first + 3), "a"))
    second = files(catalog)[1]
    result = compact(catalog, PATH, lambda: delete_position(catalog.load_table(PATH), second, 2))
    assert (result.commits, len(files(catalog)), len(values_of(catalog))) == (1, 1, 8)


def test_deletes_of_rows_that_a_source_does_not_have_delete_no_row_of_the_next_source(catalog: Catalog) -> None:
    """Another engine's delete file may have wrong positions. Readers ignore them."""
    for first in (0, 3, 6):
        land(catalog, dict.fromkeys(range(first, first + 3), "a"))
    first_file = files(catalog)[0]
    result = compact(catalog, PATH, lambda: delete_position(catalog.load_table(PATH), first_file, 3))
    assert (result.commits, len(files(catalog)), len(values_of(catalog))) == (1, 1, 9)


def test_rows_are_still_deleted_if_only_some_of_their_delete_files_were_merged_into_a_new_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit merges the delete file of a single data file. One of several data files stays."""
    monkeypatch.setattr(delete_files_module, "FILE_SCOPED_UP_TO", 1)
    for first in (0, 10):
        land(catalog, dict.fromkeys(range(first, first + 10), "a"))
    land(catalog, {0: "b", 10: "b"})
    land(catalog, {1: "b"})
    result = compact(catalog, PATH, lambda: land(catalog, {2: "b"}))
    assert (result.commits, result.dropped) == (1, 0)
    assert values_of(catalog) == {number: "b" if number in (0, 1, 2, 10) else "a" for number in range(20)}


def test_a_delete_file_that_also_deletes_elsewhere_stays(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(3000), "large"))
    [large] = files(catalog)
    for number in range(5000, 5004):
        land(catalog, {number: "a"})
    delete_position(catalog.load_table(PATH), large, 7)
    delete_position(catalog.load_table(PATH), large, 8)
    result = compact(catalog, PATH)
    assert (result.files_before, result.files_after, result.delete_files) == (4, 1, 0)
    assert len(values_of(catalog)) == 3002


def test_a_delete_file_of_several_files_stays_for_the_ones_that_are_not_compacted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_files_module, "FILE_SCOPED_UP_TO", 1)
    land(catalog, dict.fromkeys(range(3000), "large"))
    [large] = files(catalog)
    land(catalog, dict.fromkeys(range(5000, 5002), "a"))
    land(catalog, {}, removed=[7, 5000])
    for number in range(6000, 6004):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH)
    assert (result.commits, result.delete_files) == (1, 0)
    assert large in files(catalog)
    assert values_of(catalog).keys() == {*range(3000), 5001, *range(6000, 6004)} - {7}


def test_rows_that_another_engine_deletes_by_their_values_stay_deleted(catalog: Catalog) -> None:
    """Then the files are left alone, and what was written for nothing is deleted."""
    for number in range(3):
        land(catalog, {number: "a"})
    before = stored(catalog)
    result = compact(catalog, PATH, lambda: delete_equal(catalog.load_table(PATH), 1))
    assert (result.commits, result.dropped) == (0, 1)
    assert not any(name.startswith("compact-") for name in stored(catalog) - before)
    land_after = [each for each in entries(catalog) if each.data_file.content is DataFileContent.EQUALITY_DELETES]
    assert len(land_after) == 1


def test_new_files_are_as_old_as_the_snapshot_that_was_planned_from(catalog: Catalog) -> None:
    """A later delete by value applies to them, also if it was committed before them."""
    for number in range(3):
        land(catalog, {number: "a"})
    newest = catalog.load_table(PATH).current_snapshot()
    assert newest
    assert newest.sequence_number
    append(catalog, row(8, "foreign"))
    compact(catalog, PATH, lambda: append(catalog, row(9, "foreign")))
    [new] = [entry for entry in entries(catalog) if CompactionOrigin.of(basename(entry.data_file.file_path))]
    assert new.sequence_number == newest.sequence_number + 1


def test_files_that_another_engine_has_rewritten_are_given_up(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})

    def rewrite() -> None:
        table = catalog.load_table(PATH)
        table.overwrite(table.scan().to_arrow())

    before = stored(catalog)
    result = compact(catalog, PATH, rewrite)
    assert (result.commits, result.dropped) == (0, 1)
    assert result.debt == 0, "nothing of it is left for another run"
    assert values_of(catalog) == dict.fromkeys(range(3), "a")
    assert not [name for name in stored(catalog) - before if name.startswith("compact-")]


def test_rows_that_another_engine_restores_meanwhile_stay(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    """It takes the table back to the snapshot before they were deleted."""
    land(catalog, dict.fromkeys(range(5), "a"))
    first = catalog.load_table(PATH).current_snapshot()
    assert first
    land(catalog, {}, removed=[1, 2])

    def roll_back() -> None:
        catalog.load_table(PATH).manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()

    caplog.set_level(logging.INFO, "connector")
    result = compact(catalog, PATH, roll_back)
    assert (result.commits, result.dropped) == (0, 1)
    check_text("compaction_errors", "given up: restored", given_up(caplog))
    assert values_of(catalog) == dict.fromkeys(range(5), "a")


def test_rows_that_another_engine_restores_stay_if_it_deletes_as_many_others(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(5), "a"))
    first = catalog.load_table(PATH).current_snapshot()
    assert first
    [file] = files(catalog)
    land(catalog, {}, removed=[1, 2])

    def delete_others() -> None:
        catalog.load_table(PATH).manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        for position in (3, 4):
            delete_position(catalog.load_table(PATH), file, position)

    assert compact(catalog, PATH, delete_others).dropped == 1
    assert values_of(catalog) == dict.fromkeys(range(3), "a")


def test_a_compaction_of_files_without_rows_is_given_up_if_they_are_gone(catalog: Catalog) -> None:
    for number in range(2):
        land(catalog, {number: "a"})
    for file in files(catalog):
        delete_position(catalog.load_table(PATH), file, 0)
    result = compact(catalog, PATH, lambda: catalog.load_table(PATH).delete())
    assert (result.commits, result.dropped) == (0, 1)


def test_rows_of_a_file_that_is_gone_do_not_come_back(catalog: Catalog) -> None:
    """A transaction drops a file of which it deletes all rows."""
    for number in range(10):
        land(catalog, {number: "a"})
    before = set(files(catalog))
    result = compact(catalog, PATH, lambda: land(catalog, {3: "b"}, removed=[4]))
    assert (result.commits, result.dropped) == (1, 0)
    assert len(before & set(files(catalog))) == 0
    assert values_of(catalog) == {number: "b" if number == 3 else "a" for number in range(10) if number != 4}


@pytest.mark.parametrize(("gone", "commits"), [(3, 1), (4, 0)])
def test_a_compaction_is_given_up_if_many_of_its_rows_are_gone(catalog: Catalog, gone: int, commits: int) -> None:
    """Its files would soon be compacted again."""
    for number in range(10):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH, lambda: land(catalog, {}, removed=range(gone)))
    assert (result.commits, result.dropped) == (commits, 1 - commits)
    assert values_of(catalog) == dict.fromkeys(range(gone, 10), "a")


@pytest.mark.parametrize(
    ("case", "happen"),
    [
        ("files", lambda catalog: catalog.load_table(PATH).overwrite(catalog.load_table(PATH).scan().to_arrow())),
        ("values", lambda catalog: delete_equal(catalog.load_table(PATH), 99)),
        ("columns", lambda catalog: add_column(catalog)),
        ("table", lambda catalog: catalog.drop_table(PATH)),
    ],
)
def test_the_log_says_why_a_compaction_was_given_up(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, case: str, happen: Callable[[Catalog], object]
) -> None:
    caplog.set_level(logging.INFO, "connector")
    for number in range(4):
        land(catalog, {number: "a"})
    assert compact(catalog, PATH, lambda: happen(catalog)).dropped == 1
    check_text("compaction_errors", f"given up: {case}", given_up(caplog))


def given_up(caplog: pytest.LogCaptureFixture) -> str:
    [message] = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    return message


def add_column(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_schema() as update:
        update.add_column("more", LongType())


def test_deletes_in_a_file_that_is_no_parquet_are_not_carried_over(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "connector")
    land(catalog, dict.fromkeys(range(9), "a"))
    for number in range(10, 14):
        land(catalog, {number: "a"})

    def delete_elsewhere() -> None:
        land(catalog, {}, removed=[10])
        listed = ManifestCache.list_files

        def as_avro(reader: ManifestCache, table: Table) -> list[ListedFile]:
            return [
                each if each.content is DataFileContent.DATA else replace(each, format=FileFormat.AVRO)
                for each in listed(reader, table)
            ]

        monkeypatch.setattr(ManifestCache, "list_files", as_avro)

    land(catalog, {10: "b", 20: "b"})
    assert compact(catalog, PATH, delete_elsewhere).dropped == 1
    check_text("compaction_errors", "given up: no Parquet", given_up(caplog))


def test_a_converted_column_makes_a_compaction_void(catalog: Catalog) -> None:
    catalog.drop_table(PATH)
    filled_table(catalog, ID, QTY, rows=[[{"id": number, "qty": number}] for number in range(3)])
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)
    text = wanted("qty", StringType())
    result = compact(catalog, PATH, lambda: fit(catalog, wanted("id", LongType()), text))
    assert (result.commits, result.dropped) == (0, 1)
    assert rows(catalog) == [{"id": number, "qty": str(number)} for number in range(3)]


def test_a_table_that_was_dropped_or_replaced_gets_nothing(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH, lambda: catalog.drop_table(PATH))
    assert (result.commits, result.dropped) == (0, 1)

    def replace_table() -> None:
        catalog.drop_table(PATH)
        make_table(catalog)
        append(catalog, row(9, "other"))

    make_eager(catalog)
    for number in range(3):
        land(catalog, {number: "a"})
    assert compact(catalog, PATH, replace_table).dropped == 1
    assert values_of(catalog) == {9: "other"}


def test_a_table_whose_rows_a_backfill_replaces_is_left_alone(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH, lambda: begin_backfill(catalog))
    assert (result.commits, result.dropped) == (0, 1)
    assert compact(catalog, PATH).commits == 0, "the rows are about to be replaced"
    assert values_of(catalog) == dict.fromkeys(range(3), "a")


def test_a_compaction_is_given_up_when_its_table_is_upgraded_and_a_later_one_is_not(catalog: Catalog) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    result = compact(catalog, PATH, lambda: upgrade_to_version_3(catalog, PATH))
    assert (result.commits, result.dropped) == (0, 1)
    assert compact(catalog, PATH).files_after == 1
    assert values_of(catalog) == dict.fromkeys(range(3), "a")


def begin_backfill(catalog: Catalog) -> None:
    table = catalog.load_table(PATH)
    awaited = replace(Generation.of(str(table.metadata.table_uuid), {}, WRITER.materialization), uuid=SOME_UUID)
    with table.transaction() as transaction:
        transaction.set_properties(replace(awaited, materialization=WRITER.materialization, schema_id=0).encode())


def test_partitions_stay_apart(catalog: Catalog) -> None:
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a", number + 10: "b"})
    result = compact(catalog, PATH, lambda: land(catalog, {1: "b", 11: "c"}))
    assert (result.files_before, result.files_after) == (6, 2), "the transaction has removed two"
    expected = dict.fromkeys((0, 2, 3), "a") | dict.fromkeys((1, 10, 12, 13), "b") | {11: "c"}
    assert values_of(catalog) == dict(sorted(expected.items()))
    for part, ids in ("a", [0, 2, 3]), ("b", [1, 10, 12, 13]), ("c", [11]):
        found = catalog.load_table(PATH).scan(row_filter=f"part = '{part}'").to_arrow()["id"].to_pylist()
        assert sorted(found) == ids, "readers skip other partitions"


def test_files_of_a_former_spec_stay_in_it(catalog: Catalog) -> None:
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for number in range(4):
        land(catalog, {number: "a"})
    with catalog.load_table(PATH).update_spec() as update:
        update.remove_field("part")
    for number in range(4, 8):
        land(catalog, {number: "b"})
    assert compact(catalog, PATH).files_after == 2
    manifests = current_manifests(catalog.load_table(PATH))
    assert sorted(each.partition_spec_id for each in manifests if each.added_files_count) == [0, 1]
    assert values_of(catalog) == dict.fromkeys(range(4), "a") | dict.fromkeys(range(4, 8), "b")


def test_manifests_stay_few(catalog: Catalog) -> None:
    for number in range(12):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    manifests = current_manifests(catalog.load_table(PATH))
    assert len(manifests) == 1, "it has the new file and the removed ones"
    land(catalog, {20: "a"})
    land(catalog, {21: "a"})
    land(catalog, {22: "a"})
    compact(catalog, PATH)
    listed = [each for each in current_manifests(catalog.load_table(PATH)) if each.content is ManifestContent.DATA]
    assert len(listed) == 1
    assert values_of(catalog) == dict.fromkeys((*range(12), 20, 21, 22), "a")


def test_manifests_of_files_that_stay_are_merged_too(catalog: Catalog) -> None:
    land(catalog, {100: random.Random(1).randbytes(50_000).hex()})
    for number in range(4):
        land(catalog, {number: "a"})
    [large] = files(catalog)[-1:]
    compact(catalog, PATH)
    assert large in files(catalog)
    assert len(current_manifests(catalog.load_table(PATH))) == 1
    land(catalog, {5: "a"})
    assert len(current_manifests(catalog.load_table(PATH))) == 2
    assert files(catalog).count(large) == 1


def test_a_table_without_merging_keeps_its_manifests(catalog: Catalog) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "false"})
    land(catalog, {100: random.Random(1).randbytes(50_000).hex()})
    for number in range(4):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    assert len(current_manifests(catalog.load_table(PATH))) == 2, "only those of files that were removed are written"
