"""What becomes of values that their columns cannot hold: the binding's policy, applied to one batch."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from connector.binding import Binding, Column
from connector.errors import InvalidValueError
from connector.invalid_values import OnInvalid, Tally, Treated, Treatment
from connector.rows.cells import Fitted
from connector.rows.lines import Lines
from connector.rows.rejected_rows import RejectedRow
from connector.rows.row_texts import document_text, key_text, row_texts

_SHOWN: Final = 100  # characters of a value or a key in an error

_Cause: TypeAlias = tuple[Column, str]  # the column, and the reason


class InvalidCells:
    """One batch's invalid values, and what was done with them."""

    def __init__(self, binding: Binding, lines: Lines) -> None:
        self.tally = Tally()
        self.rejected: list[RejectedRow] = []
        self._binding, self._lines = binding, lines

    def treat(self, columns: Sequence[Fitted], places: Sequence[int]) -> set[int]:
        """Treat all columns of some rows, whose lines have these places in the batch; return the rejected rows.

        InvalidValueError where the policy is to stop, or a column may hold no null.
        """
        causes: dict[int, _Cause] = {}
        for column, fitted in zip(self._binding.columns, columns, strict=True):
            if fitted.unfit and self._binding.on_invalid is OnInvalid.QUARANTINE:
                causes = {row: (column, reason) for row, reason in fitted.unfit.items()} | causes
            elif fitted.unfit:
                self._make_null(column, fitted.unfit, places)
        if causes:
            self._reject(dict(sorted(causes.items())), places)
        for column, fitted in zip(self._binding.columns, columns, strict=True):
            kept = sum(row not in causes for row in fitted.clamped)
            self.tally.add(column.field, Treatment.CLAMPED, Treated(kept))
        return set(causes)

    def _make_null(self, column: Column, reasons: Mapping[int, str], places: Sequence[int]) -> None:
        row = min(reasons)
        [texts] = row_texts(self._binding, [self._lines.row(places[row])])
        key = _shortened(key_text(self._binding, texts))
        value = _shortened(texts[self._binding.columns.index(column)])
        never_null = self._never_null(column)
        if self._binding.on_invalid is OnInvalid.STOP or never_null:
            number = self._lines.number(places[row])
            raise InvalidValueError(self._binding.table, column.field, key, value, reasons[row], number, never_null)
        example = f"key {key}: {value} {reasons[row]}"
        self.tally.add(column.field, Treatment.NULLED, Treated(len(reasons), example))

    def _reject(self, causes: Mapping[int, _Cause], places: Sequence[int]) -> None:
        all_texts = row_texts(self._binding, [self._lines.row(places[row]) for row in causes])
        for (column, reason), texts in zip(causes.values(), all_texts, strict=True):
            key, document = key_text(self._binding, texts), document_text(self._binding, texts)
            self.rejected.append(RejectedRow(reason, column.field, key, document))
            value = texts[self._binding.columns.index(column)]
            example = f"key {_shortened(key)}: {_shortened(value)} {reason}"
            self.tally.add(column.field, Treatment.REJECTED, Treated(1, example))

    def _never_null(self, column: Column) -> str:
        """Why the column may hold no null, if it may not."""
        if column in self._binding.keys:
            return "part of the key"
        return "required" if column.required else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
