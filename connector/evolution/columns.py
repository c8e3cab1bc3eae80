"""How the columns of an existing table come to fit the fields of a binding, and what stands against it.

Validate reports and apply performs the same values, so that the two cannot disagree.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final, TypeAlias

from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType

from connector.config.schema_evolution import SchemaEvolution
from connector.evolution.altered_schema import altered
from connector.evolution.renames import renames
from connector.evolution.table_change import (
    AddColumn,
    Alteration,
    ConvertColumn,
    ExistingTable,
    MakeOptional,
    NewColumn,
    Path,
    RenameColumn,
    SetAsideColumn,
    WidenColumn,
    matching_columns,
)
from connector.evolution.type_changes import TypeChange, holds, type_change
from connector.evolution.type_mapping import COLUMN_SETTING, DECIMAL_SETTING, MAX_NAME

_TypeChange: TypeAlias = WidenColumn | ConvertColumn | SetAsideColumn

_NUMERIC: Final = (LongType, DoubleType, DecimalType)

ALLOWED: Final[Mapping[SchemaEvolution, tuple[type[Alteration], ...]]] = {
    SchemaEvolution.STRICT: (),
    SchemaEvolution.ADD_COLUMNS: (AddColumn,),
    SchemaEvolution.FULL: (RenameColumn, WidenColumn, ConvertColumn, SetAsideColumn, AddColumn, MakeOptional),
}


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
    path: Path
    materialization: str
    mode: SchemaEvolution

    def fits(self, wanted: Sequence[NewColumn]) -> dict[str, Fit]:
        """The fit of every wanted column, by field."""
        renamed = renames(self.table.schema, self.path, wanted)
        # A column that may not be renamed keeps its name, which no other field gets then.
        schema = altered(self.table.schema, renamed.changes.values() if self._allows(RenameColumn) else (), 0)
        existing = matching_columns(schema, (column.name for column in wanted))
        former = matching_columns(self.table.schema, renamed.changes)
        existing = {**{c.name: former[c.former] for c in wanted if c.former in former}, **existing}
        taken = {name.lower() for name in (*(c.name for c in schema.fields), *(c.name for c in wanted))}
        return {
            column.field: Fit(existing[column.name], refusal=_exchanged(column))
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
        return self._against_null(column, "and cannot go without values: select its field")

    def _fit(self, wanted: NewColumn, column: NestedField | None, rename: RenameColumn | None, taken: set[str]) -> Fit:
        if column is None:
            changes: tuple[Alteration, ...] = (AddColumn(self.path, replace(wanted, required=False)),)
        else:
            changes = tuple(self._changes(wanted, column, rename, taken))
        refusals = (self._against(change, wanted, column) for change in changes)
        return Fit(column, changes, next(filter(None, refusals), ""))

    def _changes(
        self, wanted: NewColumn, column: NestedField, rename: RenameColumn | None, taken: set[str]
    ) -> Iterator[Alteration]:
        new = replace(wanted, name=column.name, required=False)
        if rename:
            yield rename
        match type_change(column.field_type, wanted.type):
            case TypeChange.WIDEN if self._allows(WidenColumn) or not holds(column.field_type, wanted.type):
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

    def _against(self, change: Alteration, wanted: NewColumn, column: NestedField | None) -> str:
        match change:
            case AddColumn() if not self._allows(AddColumn):
                return (
                    f"Field {wanted.field!r} has no column in the table, and schema_evolution is {self.mode}: "
                    f"set it to {SchemaEvolution.ADD_COLUMNS}, or add a column {wanted.name!r} of type {wanted.type}."
                )
            case RenameColumn(_, name, new_name) if not self._allows(RenameColumn):
                return (
                    f"Field {wanted.field!r} has the column {name!r}, and is to have {new_name!r}: set "
                    f"schema_evolution to {SchemaEvolution.FULL}, which renames it, or leave it its name."
                )
            case MakeOptional() if column:
                return self._against_null(
                    column, "and its field may be null from now on: require a value in the schema"
                )
            case WidenColumn() | ConvertColumn() | SetAsideColumn() if column:
                return self._against_type(change, wanted, column)
        return ""

    def _against_null(self, column: NestedField, why_and_remedy: str) -> str:
        if column.field_id in self.table.schema.identifier_field_ids:
            return (
                f"Column {column.name!r} is one of the table's identifier fields, {why_and_remedy}, or take it out of "
                "them (in Spark: ALTER TABLE … DROP IDENTIFIER FIELDS …)."
            )
        if not self._allows(MakeOptional):
            return (
                f"Column {column.name!r} is NOT NULL, {why_and_remedy}, or set schema_evolution to "
                f"{SchemaEvolution.FULL}, which drops the NOT NULL."
            )
        return ""

    def _against_type(self, change: _TypeChange, wanted: NewColumn, column: NestedField) -> str:
        obstacle, remedies = self._obstacle(change, wanted, column)
        if obstacle is None:
            return ""
        if self.table.is_of(self.materialization):
            remedies.append("increment the binding's backfill, which makes the table anew")
        else:
            remedies.append("choose another table name for the binding")
        if not wanted.is_indispensable:
            remedies.append("deselect the field")
        if column.field_type == StringType():
            remedies.append('keep its values as text with {"castToString": true} in its field config')
        if isinstance(column.field_type, DecimalType) and isinstance(wanted.type, _NUMERIC):
            remedies.append(f"have it written as it is with {_decimal_config(column.field_type)} in its field config")
        return (
            f"Field {wanted.field!r} has a column of type {column.field_type}, but its schema now needs {wanted.type}"
            f"{obstacle}: {', or '.join(remedies)}."
        )

    def _obstacle(self, change: _TypeChange, wanted: NewColumn, column: NestedField) -> tuple[str | None, list[str]]:
        """What stands against a change of type, if anything, and remedies of its own."""
        if not isinstance(change, WidenColumn):
            if not wanted.former and not self.table.is_of(self.materialization):
                other_name = f'give it another column with {{"{COLUMN_SETTING}": "…"}} in its field config'
                return ", and the column is somebody else's", [other_name]
            if dependent := self.table.pinned.get(column.field_id):
                return f", and {dependent} of the table depends on the column", []
            if wanted.is_indispensable and isinstance(change, SetAsideColumn):
                return (
                    ", of which its values have no equivalents, and a key is never in a column for newer rows only",
                    [],
                )
        if not self._allows(type(change)):
            return "", [f"set schema_evolution to {SchemaEvolution.FULL}, which {_EFFECTS[type(change)]}"]
        return None, []

    def _allows(self, change: type[Alteration]) -> bool:
        return change in ALLOWED[self.mode]


_EFFECTS: Final[Mapping[type[Alteration], str]] = {
    WidenColumn: "widens the column in place",
    ConvertColumn: "converts its values",
    SetAsideColumn: "keeps the column under another name, beside a new one",
}


def _exchanged(wanted: NewColumn) -> str:
    return (
        f"Field {wanted.field!r} is to have the column {wanted.name!r}, which is another field's that is to have "
        "another one too: columns cannot exchange their names at once. Publish with a name in between first."
    )


def _decimal_config(column_type: DecimalType) -> str:
    precision, scale = column_type.root
    return f'{{"{DECIMAL_SETTING}": {{"precision": {precision}, "scale": {scale}}}}}'


def _free_name(name: str, suffix: str, taken: set[str]) -> str:
    """The name with the suffix, shortened or numbered where needed, so that no column has it yet. It is taken then."""
    suffixes = chain([suffix], (f"{suffix}_{number}" for number in count(2)))
    names = (name[: MAX_NAME - len(each)] + each for each in suffixes)
    free = next(candidate for candidate in names if candidate.lower() not in taken)
    taken.add(free.lower())
    return free
