"""Treats values that their columns cannot hold: applies the binding's policy to one batch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
from pyiceberg.types import DecimalType, IntegerType, LongType, PrimitiveType, StringType

from connector.encoding.lines.row_lines import Lines, LooseRow
from connector.encoding.lines.tuple_columns import MISSING, CheckedColumn, TupleColumns
from connector.host.errors import InvalidValue, InvalidValueError
from connector.model.binding import Binding, Column
from connector.model.invalid_values import OnInvalid, Tally, Treated, Treatment

_WHOLE_NUMBER: Final = re.compile(r'"?[+-]?[0-9]{1,38}"?')
_AS_TEXT: Final = '{"castToString": true} in the field config, and publish the task again.'
_SHOWN: Final = 100  # characters of a value or a key in an error

_Cause: TypeAlias = tuple[Column, str]  # the column, and the reason

RowTexts: TypeAlias = tuple[str, ...]  # in the order of the binding's columns


class RejectedRow(NamedTuple):
    """A rejected row, in the order of `rejected_table.COLUMNS`."""

    reason: str
    field: str
    key: str  # JSON
    document: str  # JSON


def make_batch(rows: Sequence[RejectedRow], at: datetime, schema: pa.Schema) -> pa.RecordBatch:
    """Return at least one rejected row as a batch for the table of rejected rows."""
    columns = [*zip(*rows, strict=True), [at] * len(rows)]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class InvalidCells:
    """One batch's invalid values, and what was done with them."""

    binding: Binding
    lines: Lines
    tally: Tally = field(default_factory=Tally)
    rejected: list[RejectedRow] = field(default_factory=list)

    def treat(self, columns: Sequence[CheckedColumn], indices: Sequence[int]) -> set[int]:
        """Treat all columns of some rows, whose lines have these indices in the batch; return the rejected rows.

        InvalidValueError where the policy is to stop, or a column may hold no null.
        """
        causes: dict[int, _Cause] = {}
        for column, checked in zip(self.binding.columns, columns, strict=True):
            if checked.invalid and self.binding.on_invalid is OnInvalid.QUARANTINE:
                causes = {row: (column, reason) for row, reason in checked.invalid.items()} | causes
            elif checked.invalid:
                self._make_null(column, checked.invalid, indices)
        if causes:
            self._reject(dict(sorted(causes.items())), indices)
        for column, checked in zip(self.binding.columns, columns, strict=True):
            kept = sum(row not in causes for row in checked.clamped)
            self.tally.add(column.field, Treatment.CLAMPED, Treated(kept))
        return set(causes)

    def _make_null(self, column: Column, reasons: Mapping[int, str], indices: Sequence[int]) -> None:
        row = min(reasons)
        [texts] = describe_rows(self.binding, [self.lines.row(indices[row])])
        key = _shorten(describe_key(self.binding, texts))
        text, reason = texts[self.binding.columns.index(column)], reasons[row]
        value, never_null = _show(text, reason), self._never_null(column)
        if self.binding.on_invalid is OnInvalid.STOP or never_null:
            number = self.lines.number(indices[row])
            invalid = InvalidValue(self.binding.table, column.field, key, value, reason, number)
            remedy = (
                "" if reason == MISSING and column in self.binding.keys else _find_remedy(column.type, text, reason)
            )
            raise InvalidValueError(invalid, remedy, never_null)
        example = f"key {key}: {value} {reason}"
        self.tally.add(column.field, Treatment.NULLED, Treated(len(reasons), example))

    def _reject(self, causes: Mapping[int, _Cause], indices: Sequence[int]) -> None:
        all_texts = describe_rows(self.binding, [self.lines.row(indices[row]) for row in causes])
        for (column, reason), texts in zip(causes.values(), all_texts, strict=True):
            key, document = describe_key(self.binding, texts), describe_document(self.binding, texts)
            self.rejected.append(RejectedRow(reason, column.field, key, document))
            value = texts[self.binding.columns.index(column)]
            example = f"key {_shorten(key)}: {_show(value, reason)} {reason}"
            self.tally.add(column.field, Treatment.REJECTED, Treated(1, example))

    def _never_null(self, column: Column) -> str:
        """Return why the column may hold no null; an empty text if it may."""
        if column in self.binding.keys:
            return "part of the key"
        return "required" if column.required else ""


def _find_remedy(column_type: PrimitiveType, text: str, reason: str) -> str:
    """Return how the column can be made to hold a value, given as JSON; an empty text if it cannot."""
    if reason == MISSING:
        return (
            "Or allow null there in the collection's schema, and publish the task again: with schema_evolution full, "
            "this drops the column's NOT NULL."
        )
    match column_type:
        case LongType() if _WHOLE_NUMBER.fullmatch(text):
            return f'Or keep all digits: set {{"decimal": {{"precision": 38, "scale": 0}}}} or {_AS_TEXT}'
        case IntegerType():
            return "Or publish the task again with schema_evolution full, which makes the column a long."
        case DecimalType():
            return f'Or raise the precision (at most 38) and the scale of {{"decimal": …}}, or set {_AS_TEXT}'
        case StringType():
            return ""
        case _:
            return f"Or keep the text: set {_AS_TEXT}"


def _show(text: str, reason: str) -> str:
    return "the value" if reason == MISSING else _shorten(text)


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def describe_rows(binding: Binding, rows: Sequence[LooseRow]) -> list[RowTexts]:
    """Return the values of each row as JSON. All rows have one form. Invalid UTF-8 becomes replacement characters."""
    columns = [
        *TupleColumns("key", binding.keys).describe_values(rows),
        *TupleColumns("values", binding.values).describe_values(rows),
    ]
    if binding.document:
        columns.append([bytes(row.doc).decode(errors="replace") or "null" for row in rows])
    return list(zip(*columns, strict=True))


def describe_key(binding: Binding, texts: RowTexts) -> str:
    """Return the key as a JSON array."""
    return f"[{','.join(texts[: len(binding.keys)])}]"


def describe_document(binding: Binding, texts: RowTexts) -> str:
    """Return the row as a JSON object of its fields."""
    members = zip(binding.columns, texts, strict=True)
    return f"{{{','.join(f'{orjson.dumps(column.field).decode()}:{text}' for column, text in members)}}}"
