"""How the columns of an existing table come to fit the fields of a binding.

Validate reports and apply performs the same values, so that the two cannot disagree.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from connector.config.values import SchemaEvolution
from connector.evolution.altered_schema import alter_schema
from connector.evolution.refusals import Limits
from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    ExistingTable,
    MakeOptional,
    NewColumn,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
    matching_columns,
)
from connector.evolution.type_changes import TypeChange, holds, type_change
from connector.evolution.type_mapping import MAX_NAME
from connector.model.table_identifier import TableIdentifier


@dataclass(frozen=True)
class Renames:
    """Keyed by the former names of the fields' columns."""

    changes: Mapping[str, RenameColumn] = field(default_factory=dict)
    circle: frozenset[str] = frozenset()  # columns that wait for each other's names


def plan_renames(schema: Schema, path: TableIdentifier, wanted: Sequence[NewColumn]) -> Renames:
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


@dataclass(frozen=True)
class Fit:
    """How a field gets a column that fits it."""

    column: NestedField | None  # the existing one, under the name that it gets
    changes: tuple[Alteration, ...] = ()
    refusal: str = ""  # why it cannot, and what to do


@dataclass(frozen=True)
class Evolution:
    """An existing table, and how far a materialization may change it."""

    table: ExistingTable
    path: TableIdentifier
    materialization: str
    mode: SchemaEvolution

    @cached_property
    def limits(self) -> Limits:
        return Limits(self.table, self.materialization, self.mode)

    def fits(self, wanted: Sequence[NewColumn]) -> dict[str, Fit]:
        """The fit of every wanted column, by field."""
        renamed = plan_renames(self.table.schema, self.path, wanted)
        # A column that may not be renamed keeps its name, which no other field gets then.
        schema = alter_schema(
            self.table.schema, renamed.changes.values() if self.limits.allows(RenameColumn) else (), 0
        )
        existing = matching_columns(schema, (column.name for column in wanted))
        former = matching_columns(self.table.schema, renamed.changes)
        existing = {**{c.name: former[c.former] for c in wanted if c.former in former}, **existing}
        taken = {name.lower() for name in (*(c.name for c in schema.fields), *(c.name for c in wanted))}
        return {
            column.field: Fit(existing[column.name], refusal=_refuse_exchange(column))
            if column.former in renamed.circle
            else self._fit(column, existing.get(column.name), renamed.changes.get(column.former), taken)
            for column in wanted
        }

    def unwritten(self, fits: Collection[Fit]) -> Iterator[Fit]:
        """What becomes of the required columns that no field is written to from now on."""
        written = {fit.column.field_id for fit in fits if fit.column}
        for column in self.table.schema.fields:
            if column.required and column.field_id not in written:
                yield Fit(column, (MakeOptional(self.path, column.name),), self.against_deselecting(column))

    def against_deselecting(self, column: NestedField) -> str:
        """Why a required column's field must stay selected; "" if the column may become optional."""
        return self.limits.against_null(column, "and cannot go without values: select its field")

    def _fit(self, wanted: NewColumn, column: NestedField | None, rename: RenameColumn | None, taken: set[str]) -> Fit:
        if column is None:
            changes: tuple[Alteration, ...] = (AddColumn(self.path, replace(wanted, required=False)),)
        else:
            changes = tuple(self._changes(wanted, column, rename, taken))
        refusals = (self.limits.against(change, wanted, column) for change in changes)
        return Fit(column, changes, next(filter(None, refusals), ""))

    def _changes(
        self, wanted: NewColumn, column: NestedField, rename: RenameColumn | None, taken: set[str]
    ) -> Iterator[Alteration]:
        new = replace(wanted, name=column.name, required=False)
        if rename:
            yield rename
        match type_change(column.field_type, wanted.type):
            case TypeChange.WIDEN if self.limits.allows(WidenColumn) or not holds(column.field_type, wanted.type):
                yield WidenColumn(self.path, column.name, column.field_type, wanted.type)
            case TypeChange.CONVERT if column.field_id not in self.table.unconvertible:
                yield ConvertColumn(self.path, column.name, column.field_type, new)
                return
            case TypeChange.CONVERT | TypeChange.SET_ASIDE:
                new_type = "decimal" if isinstance(wanted.type, DecimalType) else wanted.type
                kept_as = _free_name(column.name, f"_before_{new_type}", taken)
                yield SetAsideColumn(self.path, column.name, column.field_type, kept_as, new)
                return
        if column.required and not wanted.required:
            yield MakeOptional(self.path, column.name)


def _refuse_exchange(wanted: NewColumn) -> str:
    return (
        f"Field {wanted.field!r} is to have the column {wanted.name!r}, which is another field's that is to have "
        "another one too: columns cannot exchange their names at once. Publish with a name in between first."
    )


def _free_name(name: str, suffix: str, taken: set[str]) -> str:
    """The name with the suffix, shortened or numbered where needed, so that no column has it yet. It is taken then."""
    suffixes = chain([suffix], (f"{suffix}_{number}" for number in count(2)))
    names = (name[: MAX_NAME - len(each)] + each for each in suffixes)
    free = next(candidate for candidate in names if candidate.lower() not in taken)
    taken.add(free.lower())
    return free
