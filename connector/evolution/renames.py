"""The columns whose fields want another name for them: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from connector.evolution.table_change import NewColumn, Path, RenameColumn, matching_columns


@dataclass(frozen=True)
class Renames:
    """By the former name of a field's column."""

    changes: Mapping[str, RenameColumn] = field(default_factory=dict)
    circle: frozenset[str] = frozenset()  # of columns each of which waits for another one's name


def renames(schema: Schema, path: Path, wanted: Sequence[NewColumn]) -> Renames:
    """What of the columns that fields had before is to be renamed."""
    existing = matching_columns(schema, (column.former for column in wanted))
    pending = {
        column.former: column.name
        for column in wanted
        if column.former in existing and column.former.lower() != column.name.lower()
    }
    names = [column.name.lower() for column in schema.fields]
    changes: dict[str, RenameColumn] = {}
    while ready := next((former for former, name in pending.items() if name.lower() not in names), None):
        changes[ready] = RenameColumn(path, existing[ready].name, pending.pop(ready))
        names[names.index(ready.lower())] = changes[ready].new_name.lower()
    # The others' new names are taken: by a column that waits for another name itself, or by one that a crash left renamed.
    waiting = {former.lower() for former in pending}
    return Renames(changes, frozenset(former for former, name in pending.items() if name.lower() in waiting))
