"""A rewritten file has the partition spec, the partition and the sort order of the file whose rows it has."""

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.engines.foreign_deletes import delete_position
from support.rows.staged_rows import staged
from support.tables.altered_tables import ID, entries, filled_table, fit, rows, wanted

QTY = NestedField(2, "qty", LongType())
PART = NestedField(3, "part", StringType())
AS_TEXT = (wanted("id", LongType()), wanted("qty", StringType()), wanted("part", StringType()))


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    filled_table(catalog, ID, QTY, PART, spec=PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part")))
    return catalog


def row(number: int, part: str | None, qty: Any = 5) -> dict[str, Any]:
    return {"id": number, "qty": qty, "part": part}


def sort_by(catalog: Catalog, column: str) -> None:
    with catalog.load_table(PATH).update_sort_order() as update:
        update.asc(column, IdentityTransform())


def add_bucket(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_spec() as update:
        update.add_field("id", BucketTransform(4), "bucket")


def arrangements(catalog: Catalog) -> list[tuple[int | None, str, int | None]]:
    files = [entry.data_file for entry in entries(catalog) if entry.data_file.content is DataFileContent.DATA]
    return sorted((file.spec_id, str(file.partition), file.sort_order_id) for file in files)


def stage_two_specs(catalog: Catalog) -> list[StagedCommit]:
    sort_by(catalog, "id")
    first = staged(catalog, row(1, "a"), row(2, None))
    add_bucket(catalog)
    return [first, staged(catalog, row(3, "a"), after=first)]


def test_files_of_a_converted_column_keep_their_arrangement(catalog: Catalog) -> None:
    commit_all_or_raise(catalog, stage_two_specs(catalog))
    before = arrangements(catalog)
    assert [order for _, _, order in before] == [1, 1, 1]
    fit(catalog, *AS_TEXT)
    assert arrangements(catalog) == before
    assert rows(catalog) == [row(1, "a", "5"), row(2, None, "5"), row(3, "a", "5")]


def test_late_files_keep_their_arrangement(catalog: Catalog) -> None:
    late = stage_two_specs(catalog)
    fit(catalog, *AS_TEXT)
    commit_all_or_raise(catalog, late)
    [of_a, of_null, bucketed] = arrangements(catalog)
    assert (of_a, of_null) == ((0, "Record[None]", 1), (0, "Record[a]", 1))
    assert bucketed[0] == 1
    assert bucketed[1].startswith("Record[a, ")
    assert rows(catalog) == [row(1, "a", "5"), row(2, None, "5"), row(3, "a", "5")]


@pytest.mark.parametrize("is_late", [False, True])
def test_files_are_in_no_order_once_its_column_was_converted(catalog: Catalog, is_late: bool) -> None:
    """As texts, 10 is before 9."""
    sort_by(catalog, "qty")
    commit = staged(catalog, row(1, "a", 9), row(2, "a", 10))
    sort_by(catalog, "id")  # a column of the current order would not be converted
    if not is_late:
        commit_all_or_raise(catalog, [commit])
    fit(catalog, *AS_TEXT)
    commit_all_or_raise(catalog, [commit])
    assert arrangements(catalog) == [(0, "Record[a]", None)]
    assert [each["qty"] for each in rows(catalog)] == ["9", "10"]


def test_deletes_of_the_partition_are_applied_to_rewritten_rows(catalog: Catalog) -> None:
    commit_all_or_raise(catalog, [staged(catalog, *(row(number, "ab"[number % 2]) for number in range(6)))])
    for entry in entries(catalog):
        delete_position(catalog.load_table(PATH), entry.data_file.file_path, 1)
    fit(catalog, *AS_TEXT)
    assert [each["id"] for each in rows(catalog)] == [0, 1, 4, 5]
