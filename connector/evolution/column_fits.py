"""How each field of a binding gets a column in an existing table.

Validate reports these values, and apply performs the same values: so the two cannot disagree.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField, StringType

from connector.evolution.altered_schema import alter_schema
from connector.evolution.arrangement_terms import Source
from connector.evolution.existing_table import ExistingTable
from connector.evolution.field_config import MAX_NAME, fold_case, match_columns, name_nested
from connector.evolution.refusals import ChangeRules
from connector.evolution.table_change import (
    AddColumn,
    ColumnChange,
    ConvertColumn,
    MakeOptional,
    RenameColumn,
    SetAsideColumn,
    SetIdentifierFields,
    WidenColumn,
)
from connector.evolution.target import NewColumn, name_identifiers
from connector.evolution.type_changes import TypeChange, can_hold, find_type_change

_NEW_COLUMN: Final = frozenset({ConvertColumn, SetAsideColumn})  # another column takes the place of the old one


@dataclass(frozen=True)
class Renames:
    """The columns to rename. Keys are the names that the columns had when the binding was last applied."""

    changes: Mapping[str, RenameColumn]
    circle: frozenset[str]  # columns that are to exchange their names


def plan_renames(schema: Schema, wanted: Sequence[NewColumn]) -> Renames:
    """Plan the renames of columns whose fields have new names, in an order in which each new name is free."""
    existing = match_columns(schema, (column.former for column in wanted))
    pending = {
        column.former: column.name
        for column in wanted
        if column.former in existing and fold_case(column.former) != fold_case(column.name)
    }
    names, nested = [fold_case(column.name) for column in schema.fields], name_nested(schema)
    changes: dict[str, RenameColumn] = {}
    while ready := next((former for former, name in pending.items() if fold_case(name) not in (*names, *nested)), None):
        changes[ready] = RenameColumn(existing[ready].name, pending.pop(ready))
        names[names.index(fold_case(ready))] = fold_case(changes[ready].new_name)
    # The other new names are taken: by a column that is to be renamed too, or by one that was renamed before a crash.
    waiting = {fold_case(former) for former in pending}
    return Renames(changes, frozenset(former for former, name in pending.items() if fold_case(name) in waiting))


@dataclass(frozen=True)
class Fit:
    """How a field gets a column that can hold its values."""

    column: NestedField | None  # the existing one, with its new name; None if it is added
    changes: tuple[ColumnChange, ...] = ()
    refusal: str = ""  # why the field cannot have it, and what to do; "" if it can

    def find_source(self, wanted: NewColumn) -> Source:
        """Describe the field's column for terms, as it is after the changes. If one is refused, the column stays."""
        if self.column is None:
            return Source(wanted.field, wanted.name, wanted.type)
        is_new = not self._kinds.isdisjoint(_NEW_COLUMN)
        has_other_type = is_new or WidenColumn in self._kinds
        return Source(
            wanted.field,
            self.column.name,
            wanted.type if has_other_type else self.column.field_type,
            None if is_new and not self.refusal else self.column.field_id,
        )

    def predict(self, wanted: NewColumn) -> NewColumn:
        """Describe the field's column as it is after the changes."""
        if self.column is None:
            return replace(wanted, required=False)
        is_required = self.column.required and self._kinds.isdisjoint({*_NEW_COLUMN, MakeOptional})
        return replace(wanted, name=self.column.name, required=is_required)

    @property
    def _kinds(self) -> set[type[ColumnChange]]:
        return {type(change) for change in self.changes}


@dataclass(frozen=True)
class Evolution:
    """How an existing table is changed for a binding, as far as the rules allow it."""

    rules: ChangeRules

    @property
    def table(self) -> ExistingTable:
        """The table before the changes."""
        return self.rules.table

    def fit_columns(self, wanted: Sequence[NewColumn]) -> dict[str, Fit]:
        """Find a fit for every wanted column. Keys are fields."""
        renamed = plan_renames(self.table.schema, wanted)
        # A column that may not be renamed keeps its name, so that no other field gets the name.
        schema = alter_schema(self.table.schema, renamed.changes.values() if self.rules.allows(RenameColumn) else (), 0)
        former = match_columns(self.table.schema, renamed.changes)
        existing = {c.name: former[c.former] for c in wanted if c.former in former}
        existing |= match_columns(schema, (column.name for column in wanted))
        taken = {fold_case(name) for name in (*(c.name for c in schema.fields), *(c.name for c in wanted))}
        moved = {column.field for column in self._list_moved(wanted, existing)}
        fits: dict[str, Fit] = {}
        for column in wanted:
            found, rename = existing.get(column.name), renamed.changes.get(column.former)
            if column.former in renamed.circle:
                fits[column.field] = Fit(found, refusal=_explain_exchange(column))
            elif column.field in moved:
                fits[column.field] = Fit(found, refusal=self.rules.explain_refused_move(column))
            else:
                fits[column.field] = self._fit(column, found, rename, taken)
        return fits

    def _list_moved(self, wanted: Sequence[NewColumn], existing: Mapping[str, NestedField]) -> Iterator[NewColumn]:
        """Yield the keys and documents that are to leave their column for another one of the table."""
        former = match_columns(self.table.schema, (column.location_column or column.former for column in wanted))
        names = {fold_case(column.name) for column in wanted}
        for column in wanted:
            was, now = former.get(column.location_column or column.former), existing.get(column.name)
            if column.is_indispensable and was and now and was.field_id != now.field_id:
                # Renamed before a crash, it may have left its name to the column of another field, which is newer.
                has_left_its_name = fold_case(column.former) in names and was.field_id > now.field_id
                if not has_left_its_name:
                    yield column

    def fit_unwritten_columns(self, fits: Collection[Fit]) -> Iterator[Fit]:
        """Make required columns optional if no field is written to them any more."""
        written = {fit.column.field_id for fit in fits if fit.column}
        for column in self.table.schema.fields:
            if column.required and column.field_id not in written:
                yield Fit(column, (MakeOptional(column.name),), self.rules.explain_required(column))

    def plan_identifier(self, wanted: Iterable[NewColumn], fits: Mapping[str, Fit]) -> list[SetIdentifierFields]:
        """Plan the identifier fields, where they follow the binding and are not the table's current ones already."""
        if not self.rules.sets_identifier_fields:
            return []
        names = name_identifiers(
            (fits[each.field].predict(each) for each in wanted), self.rules.settings.identifier_fields
        )
        ids = {fit.column.field_id for fit in fits.values() if fit.column and fit.column.name in names}
        return [] if ids == {*self.table.schema.identifier_field_ids} else [SetIdentifierFields(names)]

    def _fit(self, wanted: NewColumn, column: NestedField | None, rename: RenameColumn | None, taken: set[str]) -> Fit:
        if column is None:
            changes: tuple[ColumnChange, ...] = (AddColumn(replace(wanted, required=False)),)
        else:
            changes = tuple(self._plan_alterations(wanted, column, rename, taken))
        refusals = (self.rules.explain_refusal(change, wanted, column) for change in changes)
        return Fit(column, changes, next(filter(None, refusals), ""))

    def _plan_alterations(
        self, wanted: NewColumn, column: NestedField, rename: RenameColumn | None, taken: set[str]
    ) -> Iterator[ColumnChange]:
        new = replace(wanted, name=column.name, required=False)
        if rename:
            yield rename
        change = find_type_change(column.field_type, wanted.type)
        if wanted.may_stay_text and column.field_type == StringType() and self.rules.is_taken_over:
            change = TypeChange.NONE  # a number would lose digits of the older texts
        match change:
            case TypeChange.WIDEN if self.rules.allows(WidenColumn) or not can_hold(column.field_type, wanted.type):
                yield WidenColumn(column.name, column.field_type, wanted.type)
            case TypeChange.CONVERT if column.field_id not in self.table.unconvertible:
                yield ConvertColumn(column.name, column.field_type, new)
                return
            case TypeChange.CONVERT | TypeChange.SET_ASIDE:
                new_type = "decimal" if isinstance(wanted.type, DecimalType) else wanted.type
                kept_as = _find_free_name(column.name, f"_before_{new_type}", taken)
                yield SetAsideColumn(column.name, column.field_type, kept_as, new)
                return
        if column.required and not wanted.required:
            yield MakeOptional(column.name)


def _explain_exchange(wanted: NewColumn) -> str:
    return (
        f"Field {wanted.field!r} is to have the column {wanted.name!r}, which another field has, and that field is to "
        "have another column too. Columns cannot exchange their names in one step: publish with a third name first."
    )


def _find_free_name(name: str, suffix: str, taken: set[str]) -> str:
    """Add the suffix to the name, shorten or number it until no column has it, and add it to `taken`."""
    suffixes = chain([suffix], (f"{suffix}_{number}" for number in count(2)))
    names = (name[: MAX_NAME - len(each)] + each for each in suffixes)
    free = next(candidate for candidate in names if fold_case(candidate) not in taken)
    taken.add(fold_case(free))
    return free
