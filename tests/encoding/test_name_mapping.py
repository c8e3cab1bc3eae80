"""Files without field ids get them from the table's name mapping, and no others do."""

import pyarrow as pa
import pytest

from connector.encoding.values.column_types import column_id
from connector.encoding.values.name_mapping import (
    NO_MAPPING,
    MappedField,
    find_columns,
    has_nested_ids,
    identify_columns,
)
from connector.host.errors import UnreadableFileError

PATH = "s3://lake/a.parquet"
TEXT = pa.string()
MAPPING = (
    MappedField(1, frozenset({"id", "ID"}), NO_MAPPING),
    MappedField(2, frozenset({"pair"}), (MappedField(3, frozenset({"left", "first"}), NO_MAPPING),)),
    MappedField(4, frozenset({"tags"}), (MappedField(5, frozenset({"element"}), NO_MAPPING),)),
    MappedField(None, frozenset({"gone"}), NO_MAPPING),
)


def with_id(name: str, number: int) -> pa.Field:
    return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})


def test_columns_are_found_by_any_of_their_names_in_any_order() -> None:
    schema = pa.schema({"tags": pa.list_(pa.string()), "other": pa.int64(), "gone": pa.int64(), "ID": pa.int64()})
    identified = identify_columns(schema, PATH, MAPPING)
    assert find_columns(identified) == {4: 0, 1: 3}
    assert identified.names == schema.names
    assert column_id(identified.field("tags").type.value_field) == 5


@pytest.mark.parametrize(
    "of_lists",
    [pa.list_(TEXT), pa.large_list(TEXT), pa.list_(TEXT, 2), pa.list_view(TEXT), pa.large_list_view(TEXT)],
    ids=str,
)
def test_fields_within_all_types_of_lists_have_the_same_id(of_lists: pa.DataType) -> None:
    identified = identify_columns(pa.schema({"tags": of_lists}), PATH, MAPPING)
    assert has_nested_ids(identified.field("tags").type)
    assert column_id(identified.field("tags").type.value_field) == 5


def test_a_file_with_field_ids_does_not_go_by_names() -> None:
    schema = pa.schema([with_id("id", 7), with_id("other", 1)])
    assert identify_columns(schema, PATH, MAPPING) is schema
    assert find_columns(schema) == {7: 0, 1: 1}


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([with_id("id", 1), pa.field("pair", pa.int64())]),
        pa.schema([pa.field("id", pa.int64()), pa.field("ID", pa.int64())]),
        pa.schema([pa.field("id", pa.int64()), pa.field("id", pa.int64())]),
    ],
    ids=["some columns have ids", "two names of one column", "the same name twice"],
)
def test_a_file_in_which_it_is_unknown_which_column_is_which_is_refused(schema: pa.Schema) -> None:
    with pytest.raises(UnreadableFileError, match="cannot tell which column is which"):
        identify_columns(schema, PATH, MAPPING)


def test_a_file_without_ids_is_refused_without_a_mapping() -> None:
    with pytest.raises(UnreadableFileError, match="cannot tell which column is which"):
        identify_columns(pa.schema({"id": pa.int64()}), PATH, NO_MAPPING)


@pytest.mark.parametrize(
    ("nested", "are_all_mapped"),
    [
        ({"left": pa.int64()}, True),
        ({"first": pa.int64()}, True),
        ({"left": pa.int64(), "right": pa.int64()}, False),
        ({"id": pa.int64()}, False),
    ],
)
def test_fields_within_a_column_go_by_the_names_within_it(nested: dict[str, pa.DataType], are_all_mapped: bool) -> None:
    identified = identify_columns(pa.schema({"pair": pa.struct(nested)}), PATH, MAPPING)
    assert find_columns(identified) == {2: 0}
    assert has_nested_ids(identified.field("pair").type) is are_all_mapped
