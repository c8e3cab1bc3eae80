"""Which statistics of columns manifests have, by the table's properties. Key columns always have all."""

from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType

from connector.encoding.search.key_bounds import KeyValues
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.table_properties import (
    KEY_COLUMNS_PREFIX,
    MOST_WITH_STATISTICS,
    STATISTICS,
    STATISTICS_OF_COLUMN,
    KeyColumns,
    find_missing_statistics,
)
from connector.iceberg.table_view import ViewFactory
from support.bindings import PATH
from support.rows.staged_rows import staged
from support.rows.updated_rows import make_table, stage_updates
from support.tables.altered_tables import ID, QTY, QTY_AS_TEXT, entries, filled_table, fit
from support.tables.compacting import EAGER, compact

A, B, C = NestedField(1, "a", LongType()), NestedField(2, "b", StringType()), NestedField(3, "c", LongType())
ROW: Final = {"a": 1, "b": "x", "c": 2}
OF_B, OF_C = f"{STATISTICS_OF_COLUMN}b", f"{STATISTICS_OF_COLUMN}c"


def set_properties(catalog: Catalog, properties: Mapping[str, str]) -> Table:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(dict(properties))
    return catalog.load_table(PATH)


def describe(catalog: Catalog) -> dict[int, str]:
    """What the newest data file says about each column, by its id."""
    file = max(entries(catalog), key=lambda entry: entry.sequence_number or 0).data_file
    counted, nulls = file.value_counts or {}, file.null_value_counts or {}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    assert counted.keys() == nulls.keys() >= lower.keys() == upper.keys()
    sizes = file.column_sizes or {}
    return {each: "bounds" if each in lower else "counts" if each in counted else "size" for each in sizes}


def bounds_of(catalog: Catalog, column_id: int) -> tuple[bytes | None, bytes | None]:
    """A column's bounds in the newest data file."""
    file = max(entries(catalog), key=lambda entry: entry.sequence_number or 0).data_file
    return (file.lower_bounds or {}).get(column_id), (file.upper_bounds or {}).get(column_id)


@pytest.mark.parametrize(
    ("properties", "a", "b", "c"),
    [
        ({}, "bounds", "bounds", "bounds"),
        ({STATISTICS: "none"}, "size", "size", "size"),
        ({STATISTICS: "Counts"}, "counts", "counts", "counts"),
        ({STATISTICS: "none", OF_B: "truncate(8)", OF_C: "full"}, "size", "bounds", "bounds"),
        ({OF_B: "none", OF_C: "counts"}, "bounds", "size", "counts"),
        ({MOST_WITH_STATISTICS: "2"}, "bounds", "bounds", "size"),
        ({MOST_WITH_STATISTICS: "2", STATISTICS: "full"}, "bounds", "bounds", "bounds"),
        ({MOST_WITH_STATISTICS: "0", OF_C: "counts"}, "size", "size", "counts"),
        ({MOST_WITH_STATISTICS: "-1", STATISTICS: "some", OF_B: "truncate(0)"}, "bounds", "bounds", "bounds"),
        ({STATISTICS: "none", OF_B: "truncate(0)"}, "size", "size", "size"),
    ],
)
def test_the_properties_say_which_statistics_a_column_has(
    catalog: Catalog, properties: Mapping[str, str], a: str, b: str, c: str
) -> None:
    filled_table(catalog, A, B, C)
    set_properties(catalog, {**EAGER, **properties})
    for _ in range(3):
        commit_all_or_raise(catalog, [staged(catalog, ROW)])
        assert describe(catalog) == {1: a, 2: b, 3: c}
    assert compact(catalog, PATH).commits == 1
    assert {number: each for number, each in describe(catalog).items() if number <= 3} == {1: a, 2: b, 3: c}


def test_the_first_hundred_columns_have_statistics(catalog: Catalog) -> None:
    table = filled_table(catalog, *(NestedField(number, f"c{number}", LongType()) for number in range(1, 103)))
    missing = find_missing_statistics(table)
    assert missing.bounds == missing.counts == {101, 102}
    keys = {f"{KEY_COLUMNS_PREFIX}0": msgspec.json.encode(KeyColumns("a", {"/c102": 102})).decode()}
    missing = find_missing_statistics(set_properties(catalog, keys))
    assert missing.bounds == missing.counts == {101}, "another task's updates look for keys in the files of all tasks"


@pytest.mark.parametrize(("properties", "c"), [({}, "bounds"), ({OF_C: "none"}, "size")])
def test_columns_of_the_sort_order_have_statistics_unless_a_property_names_them(
    catalog: Catalog, properties: Mapping[str, str], c: str
) -> None:
    filled_table(catalog, A, B, C)
    table = set_properties(catalog, {STATISTICS: "none", **properties})
    with table.update_sort_order() as update:
        update.asc("c", IdentityTransform())
    commit_all_or_raise(catalog, [staged(catalog, ROW)])
    assert describe(catalog) == {1: "size", 2: "size", 3: c}


@pytest.mark.parametrize(
    ("mode", "value", "lower", "upper"),
    [
        ("full", "x" * 15, b"x" * 15, b"x" * 15),
        ("full", "é" * 16, None, None),
        ("full", "x" * 17, None, None),
        ("full", b"x" * 15, b"x" * 15, b"x" * 15),
        ("full", b"x" * 17, None, None),
        ("truncate(20)", "x" * 17, b"x" * 16, b"x" * 15 + b"y"),
    ],
)
def test_full_asks_for_bounds_that_are_values(
    catalog: Catalog, mode: str, value: str | bytes, lower: bytes | None, upper: bytes | None
) -> None:
    """Older versions of Iceberg take them for the least and the greatest value. Loads need the bounds of keys."""
    filled_table(catalog, A, B if isinstance(value, str) else NestedField(2, "b", BinaryType()), C)
    set_properties(catalog, {**EAGER, OF_B: mode})
    for _ in range(3):
        commit_all_or_raise(catalog, [staged(catalog, {**ROW, "b": value})])
        assert bounds_of(catalog, 2) == (lower, upper)
        assert None not in bounds_of(catalog, 1)
    assert compact(catalog, PATH).commits == 1
    assert bounds_of(catalog, 2) == (lower, upper)
    assert not find_missing_statistics(catalog.load_table(PATH), keys={2}).cut_bounds


def test_loads_skip_files_whatever_the_properties_say(catalog: Catalog) -> None:
    """In files of transactions and of compactions, the key columns have bounds."""
    make_table(catalog)
    set_properties(catalog, {**EAGER, STATISTICS: "none", f"{STATISTICS_OF_COLUMN}id": "none"})
    for number in (1, 2, 3):
        commit_all_or_raise(catalog, [stage_updates(catalog, {number: "a"})])
        assert describe(catalog) == {1: "bounds", 2: "size"}
    key = KeyValues({1: LongType()}, pa.table({"1": pa.array([2], pa.int64())}))
    assert len(ViewFactory(ManifestCache()).make(catalog.load_table(PATH), (), keys=key).files) == 1
    compact(catalog, PATH)
    assert len(entries(catalog)) == 1
    assert describe(catalog)[1] == "bounds"


@pytest.mark.parametrize(
    ("properties", "of_id"), [({}, "size"), ({f"{KEY_COLUMNS_PREFIX}0": ""}, "size"), (None, "bounds")]
)
def test_files_with_a_converted_column_have_the_same_statistics(
    catalog: Catalog, properties: Mapping[str, str] | None, of_id: str
) -> None:
    """The property of keys names the column, is absent, or was changed by hand."""
    if properties is None:
        properties = {f"{KEY_COLUMNS_PREFIX}0": msgspec.json.encode(KeyColumns("a", {"/id": 1})).decode()}
    filled_table(catalog, ID, QTY, rows=[[{"id": 1, "qty": 10}]])
    set_properties(catalog, {STATISTICS: "none", **properties})
    fit(catalog, *QTY_AS_TEXT)
    assert describe(catalog)[1] == of_id
