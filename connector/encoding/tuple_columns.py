"""The halves of a row, its key and its values: each is a tuple, in the plain or the packed form."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from connector.encoding.column_input import ColumnInput
from connector.encoding.packed import PackedRows, PackedTupleError
from connector.encoding.packed_columns import PackedCells
from connector.encoding.plain import PlainCells
from connector.encoding.row_lines import LooseRow, Row
from connector.model.binding import Column


@dataclass(frozen=True)
class TupleColumns:
    """Key or values; `name` is the plain form's attribute of Row."""

    name: str
    columns: tuple[Column, ...]

    def tuple_of(self, row: Row[Any, Any]) -> Any:
        return getattr(row, self.name)

    def cells(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Iterator[ColumnInput]:
        """The values, column by column. All rows have the form of the first one."""
        if self.tuple_of(rows[0]) is None:
            return self._packed_cells(rows)
        return self._plain_cells(rows, cell_types)

    def check(self, row: LooseRow) -> None:
        """ValueError unless the row has this half, with the right number of elements."""
        elements = self.tuple_of(row)
        if elements is None:
            if self._packed_of(row) is None and self.columns:
                raise ValueError(f"has neither {self.name} nor {self.name}Packed")
        elif len(elements) != len(self.columns):
            raise ValueError(f"has {len(elements)} elements in {self.name}, expected {len(self.columns)}")

    def json_texts(self, rows: Sequence[LooseRow]) -> Iterator[list[str]]:
        """Every value as JSON, for people, column by column. All rows have the form of the first one."""
        if self.tuple_of(rows[0]) is None:
            for elements in self._packed_rows(rows).elements(len(self.columns)):
                yield [elements.json_text(row) for row in range(len(rows))]
        else:
            for values in zip(*map(self.tuple_of, rows), strict=True):
                yield [bytes(value).decode(errors="replace") for value in values]

    @property
    def _packed_of(self) -> Callable[[Row[Any, Any]], bytes | None]:
        return attrgetter(f"{self.name}_packed")

    def _plain_cells(self, rows: Sequence[Row[Any, Any]], cell_types: Sequence[Any]) -> Iterator[ColumnInput]:
        values_by_column = zip(*map(attrgetter(self.name), rows), strict=True)
        for column, cell_type, values in zip(self.columns, cell_types, values_by_column, strict=True):
            yield PlainCells(cell_type, column.type, values)

    def _packed_cells(self, rows: Sequence[Row[Any, Any]]) -> Iterator[ColumnInput]:
        elements_by_column = self._packed_rows(rows).elements(len(self.columns))
        try:
            # strict=True makes `elements` check that nothing is left over behind the last element.
            for column, elements in zip(self.columns, elements_by_column, strict=True):
                yield PackedCells(elements, column.type)
        except PackedTupleError as error:
            raise PackedTupleError(error.row, f"{self.name}Packed: the tuple {error.reason}") from error

    def _packed_rows(self, rows: Sequence[Row[Any, Any]]) -> PackedRows:
        return PackedRows([content or b"" for content in map(self._packed_of, rows)])
