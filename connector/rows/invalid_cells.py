"""What becomes of values that fit their columns in no way: the binding's policy, applied to one batch."""

from collections.abc import Mapping, Sequence
from typing import Final

from connector.binding import Binding, Column
from connector.errors import InvalidValueError
from connector.invalid_values import OnInvalid, Tally, Treated, Treatment
from connector.rows.cells import Fitted
from connector.rows.halves import Half
from connector.rows.lines import Lines

_SHOWN: Final = 100  # characters of a value or a key in an error


class InvalidCells:
    """Those of one batch, and what was done about them. A cell's row goes by its line's place in the batch."""

    def __init__(self, binding: Binding, lines: Lines) -> None:
        self.tally = Tally()
        self._binding, self._lines = binding, lines

    def treat(self, columns: Sequence[Fitted], places: Sequence[int]) -> None:
        """All columns of some rows, whose lines have these places. InvalidValueError where the policy is to stop."""
        for column, fitted in zip(self._binding.columns, columns, strict=True):
            if fitted.unfit:
                self._treat_unfit(column, {places[row]: reason for row, reason in fitted.unfit.items()})
            self.tally.add(column.field, Treatment.CLAMPED, Treated(len(fitted.clamped)))

    def _treat_unfit(self, column: Column, reasons: Mapping[int, str]) -> None:
        place = min(reasons)
        key, value = self._key_and_value(place, column)
        never_null = self._never_null(column)
        if self._binding.on_invalid is OnInvalid.STOP or never_null:
            number = self._lines.number(place)
            table = self._binding.table
            raise InvalidValueError(table, column.field, key, value, reasons[place], number, never_null)
        example = f"key {key}: {value} {reasons[place]}"
        self.tally.add(column.field, Treatment.NULLED, Treated(len(reasons), example))

    def _never_null(self, column: Column) -> str:
        """Why the column may hold no null, if it may not."""
        if column in self._binding.keys:
            return "part of the key"
        return "required" if column.required else ""

    def _key_and_value(self, place: int, column: Column) -> tuple[str, str]:
        row = self._lines.row(place)
        key = Half("key", self._binding.keys).json_texts(row)
        values = Half("values", self._binding.values).json_texts(row)
        texts = [*key, *values, bytes(row.doc).decode(errors="replace") or "null"]
        return _shortened(f"[{','.join(key)}]"), _shortened(texts[self._binding.columns.index(column)])


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
