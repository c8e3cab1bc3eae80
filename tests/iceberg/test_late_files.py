"""Rows that were staged before a column of theirs was converted land with their values."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.table.update import AddSortOrderUpdate, SetDefaultSortOrderUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

from connector.host.errors import UnfitCommitError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from support.bindings import PATH
from support.rows.staged_rows import WRITER, staged
from support.snapshots import check_text
from support.tables.altered_tables import ID, entries, filled_table, fit, rows, wanted
from support.tables.local_tables import local_catalog
from support.tables.planted_faults import do_first, plant, refuse

QTY = NestedField(2, "qty", LongType())
NOTE = NestedField(3, "note", StringType())
AS_TEXT = (wanted("id", LongType()), wanted("qty", StringType()), wanted("note", StringType()))
AS_DOUBLE = (wanted("id", LongType()), wanted("qty", DoubleType()), wanted("note", StringType()))


def row(number: int, qty: Any) -> dict[str, Any]:
    return {"id": number, "qty": qty, "note": f"n{number}"}


def test_what_was_staged_before_a_conversion_lands_with_its_values(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE, rows=[[row(1, 10)]])
    first = staged(catalog, row(2, 20), row(3, None))
    fit(catalog, *AS_TEXT)
    second = staged(catalog, row(4, "40"), after=first)
    commit_all_or_raise(catalog, [first, second])
    assert rows(catalog) == [row(1, "10"), row(2, "20"), row(3, None), row(4, "40")]
    commit_all_or_raise(catalog, [first, second])
    assert len(rows(catalog)) == 4


def test_it_lands_with_its_values_however_often_the_column_was_converted(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE, rows=[[row(1, 10)]])
    late = staged(catalog, row(2, 20))
    fit(catalog, *AS_TEXT)
    between = staged(catalog, row(3, "30"), after=late)
    fit(catalog, *AS_DOUBLE)
    commit_all_or_raise(catalog, [late, between])
    assert rows(catalog) == [row(1, 10.0), row(2, 20.0), row(3, 30.0)]


def test_it_lands_with_its_values_whatever_the_order_of_schemas_in_the_metadata(catalog: Catalog) -> None:
    """Servers that are written in Rust keep schemas in a hash map."""
    filled_table(catalog, ID, NestedField(2, "qty", IntegerType()), NOTE)
    fit(catalog, wanted("id", LongType()), wanted("qty", LongType()), wanted("note", StringType()))
    late = staged(catalog, row(2, 2**40))
    fit(catalog, *AS_TEXT)
    metadata = Path(catalog.load_table(PATH).metadata_location.removeprefix("file://"))
    content = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**content, "schemas": content["schemas"][::-1]}))
    commit_all_or_raise(catalog, [late])
    assert rows(catalog) == [row(2, str(2**40))]


def test_it_lands_without_its_values_if_the_new_column_was_dropped(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    late = staged(catalog, row(2, 20))
    fit(catalog, *AS_TEXT)
    with catalog.load_table(PATH).update_schema() as update:
        update.delete_column("qty")
    commit_all_or_raise(catalog, [late])
    assert rows(catalog) == [{"id": 2, "note": "n2"}]


def test_a_converted_late_file_stays_in_its_partition(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "note"))
    filled_table(catalog, ID, QTY, NOTE, spec=spec)
    late = staged(catalog, row(2, 20), row(3, 30))
    fit(catalog, *AS_TEXT)
    commit_all_or_raise(catalog, [late])
    assert rows(catalog) == [row(2, "20"), row(3, "30")]
    assert catalog.load_table(PATH).scan("note = 'n3'").to_arrow().to_pylist() == [row(3, "30")]


@pytest.mark.parametrize("history", [[], [row(1, 10)]])
def test_a_conversion_in_the_middle_of_a_commit_is_noticed(
    catalog: Catalog, tmp_path: Path, history: list[Any]
) -> None:
    filled_table(catalog, ID, QTY, NOTE, rows=[history] if history else [])
    late = staged(catalog, row(2, 20))
    plant(catalog, [do_first(lambda: fit(local_catalog(tmp_path), *AS_TEXT))])
    commit_all_or_raise(catalog, [late])
    assert rows(catalog) == [{**each, "qty": str(each["qty"])} for each in [*history, row(2, 20)]]


@pytest.mark.parametrize(("column", "is_kept"), [(2, False), (3, True)], ids=["converted", "another"])
def test_a_converted_late_file_is_sorted_unless_the_order_was_that_of_the_old_values(
    catalog: Catalog, column: int, is_kept: bool
) -> None:
    catalog.create_namespace(PATH[0])
    order = SortOrder(SortField(column, IdentityTransform()))
    [order_id] = catalog.create_table(PATH, Schema(ID, QTY, NOTE), sort_order=order).sort_orders()
    late = staged(catalog, row(2, 9), row(3, 10))
    assert late.sort_order_id == order_id
    table = catalog.load_table(PATH)
    unsorted = AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER), SetDefaultSortOrderUpdate(sort_order_id=0)
    catalog.commit_table(table, (), unsorted)
    fit(catalog, *AS_TEXT)
    commit_all_or_raise(catalog, [late])
    assert [entry.data_file.sort_order_id for entry in entries(catalog)] == [order_id if is_kept else None]
    assert rows(catalog) == [row(2, "9"), row(3, "10")]


def test_the_files_that_did_not_land_are_collected(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    late = staged(catalog, row(2, 20))
    fit(catalog, *AS_TEXT)
    commit_all_or_raise(catalog, [late])
    assert remove_task_orphans(catalog, PATH, WRITER, []) == 1
    assert rows(catalog) == [row(2, "20")]


def test_all_attempts_of_a_commit_use_the_same_converted_files(catalog: Catalog, tmp_path: Path) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    late = staged(catalog, row(2, 20))
    fit(catalog, *AS_TEXT)
    plant(catalog, [refuse(CommitFailedException("another writer was faster"))])
    commit_all_or_raise(catalog, [late])
    assert len([*tmp_path.rglob("*.parquet")]) == 2, "the late file and the one it was converted into"
    assert rows(catalog) == [row(2, "20")]


def test_a_value_without_an_equivalent_is_never_added_as_another(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE)
    late = staged(catalog, row(2, 2**53 + 1))
    fit(catalog, *AS_DOUBLE)
    with pytest.raises(UnfitCommitError) as error:
        commit_all_or_raise(catalog, [late])
    check_text("apply_errors", "rows were staged before a conversion that they do not go along with", str(error.value))
    assert rows(catalog) == []


def test_what_was_staged_before_its_column_was_set_aside_lands_in_that(catalog: Catalog) -> None:
    filled_table(catalog, ID, QTY, NOTE, rows=[[row(1, 10)]])
    late = staged(catalog, row(2, 20))
    fit(catalog, wanted("id", LongType()), wanted("qty", DateType()), wanted("note", StringType()))
    commit_all_or_raise(catalog, [late])
    assert [each["qty_before_date"] for each in rows(catalog)] == [10, 20]
