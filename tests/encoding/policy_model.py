"""What must become of rows under each policy for invalid values: a model that shares no code with the connector."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from connector.model.binding import Binding
from encoding.store_lines import json_line, packed
from support.rows.expected_rows import Row, canonical
from support.rows.fitting import fits


@dataclass(frozen=True)
class Document:
    """A row, its key first, and the form that it is sent in."""

    values: tuple[Any, ...]
    is_packed: bool

    @property
    def line(self) -> bytes:
        if self.is_packed:
            return packed(*self.values)
        key, *values = self.texts
        return json_line(",".join(values), key=key)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(_json, self.values))


class Model:
    """Of some documents. Lines are counted from 1."""

    def __init__(self, of: Binding, documents: Sequence[Document]) -> None:
        self._texts = [document.texts for document in documents]
        self._types = [str(column.type) for column in of.columns]
        self._fields = [column.field for column in of.columns]
        self._required = {column.field for column in of.columns if column.required}
        self._bad = [list(self._bad_fields(texts)) for texts in self._texts]

    @property
    def invalid(self) -> set[tuple[int, str]]:
        """Line and field of every invalid value."""
        return {(line, field) for line, fields in enumerate(self._bad, start=1) for field in fields}

    @property
    def never_null(self) -> set[tuple[int, str]]:
        """Those of them that cannot become null."""
        return {(line, field) for line, field in self.invalid if field == "id" or field in self._required}

    @property
    def nulled(self) -> Counter[str]:
        """How many values of each field become null."""
        return Counter(field for _, field in self.invalid)

    @property
    def all_rows(self) -> Counter[Row]:
        """With null for what is invalid."""
        return Counter(map(self._row, self._texts, self._bad))

    @property
    def valid_rows(self) -> Counter[Row]:
        return Counter(self._row(texts, bad) for texts, bad in zip(self._texts, self._bad, strict=True) if not bad)

    @property
    def rejected(self) -> Counter[tuple[str, str, str]]:
        """Field, key and document of every other row."""
        return Counter(
            (bad[0], f"[{texts[0]}]", self._object(texts))
            for texts, bad in zip(self._texts, self._bad, strict=True)
            if bad
        )

    def clamped_dates(self, *, of_rejected_rows: bool) -> int:
        """Of the one column of dates, whose values have years of four digits."""
        place = self._types.index("date")
        return sum(
            texts[place].startswith('"0000-') and self._fields[place] not in bad
            for texts, bad in zip(self._texts, self._bad, strict=True)
            if of_rejected_rows or not bad
        )

    def _bad_fields(self, texts: Sequence[str]) -> Iterator[str]:
        for field, type_, text in zip(self._fields, self._types, texts, strict=True):
            if not fits(type_, text) or (text == "null" and field in self._required):
                yield field

    def _row(self, texts: Sequence[str], bad: Sequence[str]) -> Row:
        cells = zip(self._fields, self._types, texts, strict=True)
        return tuple(None if field in bad else canonical(type_, text) for field, type_, text in cells)

    def _object(self, texts: Sequence[str]) -> str:
        members = [f'"{field}":{text}' for field, text in zip(self._fields, texts, strict=True)]
        return f"{{{','.join(members)}}}"


def _json(value: Any) -> str:
    return str(value) if type(value) is int else orjson.dumps(value).decode()  # orjson knows 64 bits only
