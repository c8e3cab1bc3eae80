"""Finds tables that have the name of a table of the task, and are not that table.

An engine has exchanged the names of two tables of the task, or given the name of one to the other. Or an engine has
dropped or renamed a table, and then another task has created one of its name.

Rows of one binding would get into the table of the other, and with standard updates they would replace rows there. A
backfill of one would replace the rows of the other. A table has the fence values of the bindings that have written it.
So it is renamed if it has those of another binding of the task, and none of its own. A backfill that keeps the rows
begins without a fence value. So its apply names the binding as the table's owner.

A table of another task names that task as its owner. It counts as a table of this task, too, if this task has written
it: with `existing_table`, a binding may have such a table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connector.iceberg.fences import fence
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier

CHOOSE_TABLE: Final = (
    "Choose another table name for the binding, or set `existing_table` to append in its config, which adds rows to "
    "the table. Then publish the task again."
)


@dataclass(frozen=True)
class WrittenTable:
    """A table of a task by its name, and the writer that has written to the table of this name so far."""

    path: TableIdentifier
    writer: WriterId
    properties: Mapping[str, str]


def find_renamed_tables(tables: Sequence[WrittenTable]) -> Iterator[str]:
    """Find the tables with the rows of another one of these, a sentence each. A binding's table comes before that of
    its rejected rows."""
    by_writer: dict[str, TableIdentifier] = {}
    for table in tables:
        by_writer.setdefault(fence.writer_hash(table.writer), table.path)
    for table in tables:
        written = _find_bindings(table.properties)
        if fence.writer_hash(table.writer) in written:
            continue
        others = sorted({by_writer[writer] for writer in written & by_writer.keys()} - {table.path})
        if others:
            yield (
                f"table {table.path} has rows that the task has stored for table {others[0]}, and none of its own: "
                "another program has renamed tables. Nothing was added or changed. Give the tables their names back. "
                "Then start or publish the task again."
            )


def explain_other_owner(table: WrittenTable) -> str:
    """Say which other task has created the table, unless this task has written it; "" otherwise."""
    owner, ours = Owner.of(table.properties), table.writer.materialization
    if owner is None or owner.materialization == ours or fence.has_written(table.properties, ours):
        return ""
    return (
        f"table {table.path} belongs to another task: materialization {owner.materialization} created it, and this "
        "task has never written to it. The table was not changed."
    )


def _find_bindings(properties: Mapping[str, str]) -> set[str]:
    """Return the hashes of the bindings that have written a table, and of one that has begun with its rows."""
    written, owner = fence.find_writer_hashes(properties), Owner.of(properties)
    if owner and owner.has_older_rows:
        written.add(fence.writer_hash(owner))
    return written
