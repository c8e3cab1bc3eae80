"""What must become of a table whose collection changes, as docs/columns.md says: a model without Iceberg."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TypeAlias

from evolution.equivalents import equivalent, has_equivalents, holds, is_widened, loses_texts


@dataclass(frozen=True)
class Wanted:
    """What a field is to be kept in."""

    field: str
    name: str
    type: str
    required: bool
    is_key: bool = False
    may_be_text: bool = False  # the collection allows strings


@dataclass(eq=False)
class Column:
    """Told from others by what it is, not by its name."""

    name: str
    type: str
    required: bool
    successor: "Column | None" = None  # has its values converted


Row: TypeAlias = dict[Column, str | None]


class NoEquivalentError(Exception):
    """Rows cannot land, or a key cannot get its type: only a backfill helps."""


@dataclass(frozen=True)
class Verdict:
    """What a user is to be told of a field."""

    refused: bool
    kept: bool  # it must stay selected


@dataclass
class TableModel:
    """Columns and rows; `former` is the column that each field had when the binding was last applied, and `texts` are
    the fields that could be strings then."""

    columns: list[Column] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    former: dict[str, Column] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)

    @classmethod
    def made(cls, fields: Sequence[Wanted]) -> "TableModel":
        former = {each.field: Column(each.name, each.type, each.required) for each in fields}
        return cls([*former.values()], [], former, _list_texts(fields))

    @property
    def schema(self) -> dict[str, tuple[str, bool]]:
        return {column.name: (column.type, column.required) for column in self.columns}

    @property
    def contents(self) -> list[dict[str, str | None]]:
        return [{column.name: row.get(column) for column in self.columns} for row in self.rows]

    def column_of(self, wanted: Wanted) -> Column | None:
        """The one that has its name, else the one that the field has had, which gets the name."""
        named = {column.name.lower(): column for column in self.columns}
        return named.get(wanted.name.lower(), self.former.get(wanted.field))

    def verdict(self, wanted: Wanted, mode: str) -> Verdict:
        column = self.column_of(wanted)
        if column is None:
            return Verdict(mode == "strict", wanted.is_key)
        is_convertible = column.type == wanted.type or has_equivalents(column.type, wanted.type)
        is_altered = (
            not holds(column.type, wanted.type)
            or column.name.lower() != wanted.name.lower()
            or (column.required and not wanted.required)
        )
        loses = wanted.field in self.texts and loses_texts(column.type, wanted.type)
        refused = is_altered if mode != "full" else loses or (wanted.is_key and not is_convertible)
        return Verdict(refused, wanted.is_key or (column.required and mode != "full"))

    def lacks_a_field(self, fields: Iterable[Wanted], mode: str) -> bool:
        """Whether a column that may not become optional gets values from no field."""
        written = list(map(self.column_of, fields))
        return mode != "full" and any(column.required and column not in written for column in self.columns)

    def row(self, texts: Iterable[tuple[str, str | None]]) -> Row:
        """Of texts by field, as the table is now."""
        return {self.former[name]: text for name, text in texts}

    def land(self, rows: Iterable[Row]) -> None:
        """Their columns may have been converted since they were written."""
        self.rows += [dict(_moved(column, text) for column, text in row.items()) for row in rows]

    def evolve(self, selected: Sequence[Wanted]) -> None:
        """All of it, or NoEquivalentError and nothing."""
        found = {each.field: self.column_of(each) for each in selected}
        self._check_keys(selected)
        for each in selected:
            if (column := found[each.field]) and column.name.lower() != each.name.lower():
                column.name = each.name
        former = {each.field: self._fitted(each, found[each.field], selected) for each in selected}
        for column in self.columns:
            if column not in former.values():
                column.required = False
        self.former, self.texts = former, _list_texts(selected)

    def _check_keys(self, selected: Sequence[Wanted]) -> None:
        for each in selected:
            if each.is_key and (column := self.column_of(each)) and not self._is_convertible(column, each.type):
                raise NoEquivalentError(each.field)

    def _fitted(self, wanted: Wanted, column: Column | None, selected: Sequence[Wanted]) -> Column:
        if column is None:
            return self._added(Column(wanted.name, wanted.type, False))
        if holds(column.type, wanted.type) or is_widened(column.type, wanted.type):
            column.type = column.type if holds(column.type, wanted.type) else wanted.type
            column.required &= wanted.required
            return column
        new = Column(column.name, wanted.type, False)
        if self._is_convertible(column, wanted.type):
            column.successor = new
            self.columns[self.columns.index(column)] = new
            self.rows = [dict(_moved(of, text) for of, text in row.items()) for row in self.rows]
            return new
        taken = {name.lower() for name in (*(each.name for each in self.columns), *(each.name for each in selected))}
        suffixes = chain([""], (f"_{number}" for number in count(2)))
        names = (f"{column.name}_before_{wanted.type.partition('(')[0]}{suffix}" for suffix in suffixes)
        column.name, column.required = next(name for name in names if name.lower() not in taken), False
        return self._added(new)

    def _added(self, column: Column) -> Column:
        self.columns.append(column)
        return column

    def _is_convertible(self, column: Column, new: str) -> bool:
        if column.type == new:
            return True
        if not has_equivalents(column.type, new):
            return False
        try:
            for row in self.rows:
                equivalent(column.type, new, row.get(column))
        except ValueError:
            return False
        return True


def _list_texts(fields: Iterable[Wanted]) -> set[str]:
    return {each.field for each in fields if each.may_be_text}


def _moved(column: Column, text: str | None) -> tuple[Column, str | None]:
    while column.successor:
        try:
            text = equivalent(column.type, column.successor.type, text)
        except ValueError as error:
            raise NoEquivalentError(column.name) from error
        column = column.successor
    return column, text
