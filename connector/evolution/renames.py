"""Which columns are renamed, because their fields want another name for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from connector.evolution.table_change import NewColumn, Path, RenameColumn, matching_columns


@dataclass(frozen=True)
class Renames:
    """Keyed by the former names of the fields' columns."""

    changes: Mapping[str, RenameColumn] = field(default_factory=dict)
    circle: frozenset[str] = frozenset()  # columns that wait for each other's names


def renames(schema: Schema, path: Path, wanted: Sequence[NewColumn]) -> Renames:
    """Which of the fields' former columns are to be renamed, in an order in which each name is free."""
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
    # The other new names are taken: by a column that is itself waiting, or by one that was renamed before a crash.
    waiting = {former.lower() for former in pending}
    return Renames(changes, frozenset(former for former, name in pending.items() if name.lower() in waiting))
