"""The field ids of a file's columns. Other writers' files may have none: then a table's name mapping says which column
has which names in such files, as Iceberg's specification has it ("Column Projection")."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from connector.encoding.values.column_types import FIELD_ID, LIST_TYPES, NO_ID, column_id
from connector.host.errors import UnreadableFileError


@dataclass(frozen=True)
class MappedField:
    """The names that a field has in files without field ids."""

    id: int | None  # None: the table has no such field
    names: frozenset[str]
    fields: "NameMapping"  # within it


NameMapping: TypeAlias = tuple[MappedField, ...]
NO_MAPPING: Final[NameMapping] = ()


def identify_columns(schema: pa.Schema, path: str, mapping: NameMapping) -> pa.Schema:
    """Return a file's schema with field ids: its own, or those of the mapping if it has none. Columns whose names are
    not mapped get none. Raises UnreadableFileError if it stays unknown which column is which."""
    own = {column_id(field) for field in schema}
    if NO_ID not in own:
        return schema
    if own == {NO_ID} and mapping:
        identified = pa.schema(_add_ids(schema, mapping))
        found = [number for field in identified if (number := column_id(field)) != NO_ID]
        if len(found) == len({*found}):  # otherwise several columns have names of one
            return identified
    raise explain_missing_ids(path)


def find_columns(schema: pa.Schema) -> dict[int, int]:
    """Return the indexes of an identified schema's columns, by their field ids."""
    ids = {column_id(field): index for index, field in enumerate(schema)}
    ids.pop(NO_ID, None)
    return ids


def has_nested_ids(arrow_type: pa.DataType) -> bool:
    """Return whether all fields within a type have ids."""
    is_map = pa.types.is_map(arrow_type)  # its only field in Arrow is not one of the specification
    nested = (
        [arrow_type.key_field, arrow_type.item_field] if is_map else map(arrow_type.field, range(arrow_type.num_fields))
    )
    return all(column_id(field) != NO_ID and has_nested_ids(field.type) for field in nested)


def explain_missing_ids(path: str) -> UnreadableFileError:
    """Return the error of a file whose fields cannot be told apart."""
    return UnreadableFileError(
        path,
        f"{path} has columns without Iceberg's field ids, so the connector cannot tell which column is which. Set or "
        "complete the table property schema.name-mapping.default, which names the columns of such files. (In Spark, "
        "CALL system.rewrite_data_files takes them by their places.)",
    )


def _add_ids(fields: Iterable[pa.Field], mapping: NameMapping) -> list[pa.Field]:
    by_name = {name: each for each in mapping for name in each.names}
    return [_add_id(field, by_name.get(field.name)) for field in fields]


def _add_id(field: pa.Field, mapped: MappedField | None) -> pa.Field:
    if mapped is None or mapped.id is None:
        return field
    nested = _add_nested_ids(field.type, mapped.fields)
    return field.with_type(nested).with_metadata({FIELD_ID: str(mapped.id)})


def _add_nested_ids(arrow_type: pa.DataType, mapping: NameMapping) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct(_add_ids(arrow_type, mapping))
    # Files have any names for the fields of lists and maps, and the mapping has those of the specification.
    names = {name: each for each in mapping for name in each.names}
    if isinstance(arrow_type, LIST_TYPES):
        return pa.list_(_add_id(arrow_type.value_field, names.get("element")))
    if pa.types.is_map(arrow_type):
        key, value = arrow_type.key_field, arrow_type.item_field
        return pa.map_(_add_id(key, names.get("key")), _add_id(value, names.get("value")))
    return arrow_type
