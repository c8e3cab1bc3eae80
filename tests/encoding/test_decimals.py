"""Numbers of any form in columns of any precision and scale: all their digits land, or they are invalid."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DecimalType

from connector.encoding.lines.tuple_columns import CheckedColumn, PlainCells, convert_cells
from support.rows.expected_rows import canonical
from support.rows.fitting import fits


@st.composite
def columns(draw: st.DrawFn) -> tuple[DecimalType, list[str | None]]:
    """A type, and strings with numbers that have about as many digits as it, or as 128 bits."""
    precision = draw(st.integers(1, 38) | st.just(38))
    scale = draw(st.integers(0, precision))
    lengths = st.integers(0, 2) | st.integers(precision - scale, precision - scale + 1) | st.integers(36, 42)
    fractions = st.integers(0, 2) | st.integers(scale, scale + 1) | st.integers(36, 42)
    numbers = st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["", "-", "+", "0", "-000"]),
        lengths.flatmap(_digits),
        st.just("") | fractions.flatmap(_digits).map(".{}".format),
        st.sampled_from(["", "", "0" * 9]),
        st.sampled_from(["", "", "", "e0", "E+2", "e-39", "e-77", "e-999999999"]),
    )
    return DecimalType(precision, scale), draw(st.lists(st.one_of(st.none(), numbers), min_size=1, max_size=20))


def _digits(count: int) -> st.SearchStrategy[str]:
    digits = st.text("0123456789", min_size=count, max_size=count)
    return digits | st.just("9" * count) | st.just(f"{2**128}000"[:count])


@given(columns())
def test_every_digit_lands_or_the_number_is_invalid(column: tuple[DecimalType, list[str | None]]) -> None:
    type_, numbers = column
    texts = ["null" if number is None else f'"{number}"' for number in numbers]
    invalid = {row for row, text in enumerate(texts) if not fits(str(type_), text)}
    expected = [None if row in invalid else canonical(str(type_), text) for row, text in enumerate(texts)]

    together, alone = _column(type_, texts), [_column(type_, [text]) for text in texts]

    assert together.invalid.keys() == invalid == {row for row, found in enumerate(alone) if found.invalid}
    assert _texts(together) == expected == [text for found in alone for text in _texts(found)]


def _column(type_: DecimalType, texts: list[str]) -> CheckedColumn:
    return convert_cells(
        PlainCells(msgspec.Raw, type_, [msgspec.Raw(text.encode()) for text in texts]), is_required=False
    )


def _texts(found: CheckedColumn) -> list[str | None]:
    return [None if value is None else f"{value:f}" for value in found.array.to_pylist()]
