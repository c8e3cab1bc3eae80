"""Which columns have the key of a table's rows: a property of the table says it, for each task with standard updates.

Another engine may drop a key column and add a new one of its name, or give its name to another column. Older rows have
no keys there. A Load would find none of them, and each key would get a second row. Data files do not tell: a compaction
leaves out the values of a column that was dropped.
"""

from collections.abc import Mapping, Sequence

import msgspec
from pyiceberg.table import Table
from pyiceberg.types import StringType

from connector.host.errors import BACKFILL, UserError
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import (
    KEY_COLUMNS_PREFIX,
    KeyColumns,
    find_newest_column,
    has_rows,
    name_table_in_errors,
)
from connector.model.binding import Binding
from connector.model.state import StagedCommit, WriterId


def record_key_columns(table: Table, staged: Sequence[StagedCommit]) -> dict[str, str]:
    """Return the table property that records the key columns of these commits of one writer. It has those of the newest
    one, and each part that is inexact in any of them, or in an earlier row. `table` is as their task has it."""
    newest = staged[-1]
    assert newest.updates, "with delta updates, rows are not found by keys"
    columns = {part.pointer: part.column_id for part in newest.updates.parts}
    parts = (part for commit in staged if commit.updates for part in commit.updates.parts)
    inexact = {
        *find_inexact_parts(table, newest.writer, newest.table_uuid, columns),
        *(part.pointer for part in parts if not part.is_exact),
    }
    recorded = KeyColumns(newest.table_uuid, columns, tuple(sorted(inexact & columns.keys())))
    return {_property_name(newest.writer): msgspec.json.encode(recorded).decode()}


def check_key_columns(table: Table, writer: WriterId, generation: str, binding: Binding) -> None:
    """Raise UserError if older rows of the table have their keys in other columns than those of the binding, or if the
    property was changed by hand.

    What another key had does not count: it is changed on purpose.
    """
    recorded = _read_recorded(table, writer)
    if recorded is None or recorded.generation != generation:
        return
    assert binding.updates, "a binding with delta updates has no keys to find"
    for column, part in zip(binding.keys, binding.updates.parts, strict=True):
        before = recorded.columns.get(part.pointer, part.column_id)
        if before != part.column_id and find_newest_column(table, before) != part.column_id:
            raise UserError(
                f"table {binding.table}: column {column.name!r} does not have this part of the key in older rows: "
                "another engine has dropped or renamed columns. These rows cannot be found by their keys any more. "
                f"Give the columns their names back, or {BACKFILL}."
            )


def find_inexact_parts(table: Table, writer: WriterId, generation: str, columns: Mapping[str, int]) -> set[str]:
    """Return the parts of the key for which older rows may have one value for different keys. `table` is as the task of
    the generation has it, and `columns` are the ids of the key's columns by pointers.

    A schema that is narrowed does not tell: a row of 7, from before, has "7" in its column of text. So it is recorded.
    Rows from before a field was part of the key may have had any values there. An older image has recorded nothing of
    this: then columns of text count.
    """
    if not has_rows(table):
        return set()
    recorded = _read_recorded(table, writer)
    if recorded and recorded.generation == generation and recorded.inexact is not None:
        return {*recorded.inexact, *(columns.keys() - recorded.columns.keys())}
    texts = {column.field_id for column in table.schema().fields if column.field_type == StringType()}
    return {part for part, column in columns.items() if column in texts}


def _property_name(writer: WriterId) -> str:
    return f"{KEY_COLUMNS_PREFIX}{fence.materialization_hash(writer.materialization)}"


def _read_recorded(table: Table, writer: WriterId) -> KeyColumns | None:
    name = _property_name(writer)
    text = table.properties.get(name)
    if text is None:
        return None
    with name_table_in_errors(table):
        try:
            return msgspec.json.decode(text, type=KeyColumns)
        except msgspec.DecodeError as error:
            raise ValueError(f"{name} is {text!r}; it must be as the connector wrote it") from error
