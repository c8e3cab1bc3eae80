"""Random rows with random invalid values, in both forms, several batches and under every policy."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DateType

from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.lines.invalid_cells import RejectedRow
from connector.encoding.lines.row_lines import Lines
from connector.host.errors import InvalidValueError
from connector.model.binding import Binding
from connector.model.invalid_values import OnInvalid, Tally, Treatment
from encoding.policy_model import Document, Model
from encoding.random_values import TYPES, VALUES, json_values, longs
from encoding.store_lines import binding
from support.rows.expected_rows import Row

pytestmark = pytest.mark.long

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ODD_TEXTS = (
    *("", " 1", "1e3", "0x1F", "1_000", "1e400", "inf", "nan", "NaN", "true", "a", "YQ==", "2023-02-29", "2023-02-28"),
    *("0.001", "9999999.995", "1e30", "1e-39", "9" * 39, str(2**128 + 1)),
    *("20230228", "2024-01-02T03:04:05", "2024-01-02T24:00:00Z", "2024-01-02T03:04:61Z"),
)
odd_values = st.none() | json_values | st.sampled_from([2**63, -(2**63) - 1, 1.5, 2.0, 1e300, True, [1], *ODD_TEXTS])
fitting_values = (longs, *(st.none() | fitting for fitting in VALUES.values()))


@st.composite
def batches(draw: st.DrawFn) -> list[Document]:
    """In a column or two of each, every other value is odd."""
    odd_columns = draw(st.sets(st.integers(0, len(TYPES)), max_size=2))
    columns = [
        fitting | odd_values if place in odd_columns else fitting for place, fitting in enumerate(fitting_values)
    ]
    rows = st.tuples(*columns).filter(lambda row: not any(map(is_leap_second, row)))
    return draw(st.lists(st.builds(Document, rows, st.booleans()), min_size=1, max_size=12))


def is_leap_second(value: Any) -> bool:
    """The model's clocks have none."""
    return isinstance(value, str) and ":60" in value


required_columns = st.sets(st.integers(0, len(TYPES)), max_size=2)
cuts = st.sets(st.integers(1, 11), max_size=2)


@dataclass
class Outcome:
    """What has become of documents."""

    rows: Counter[Row]
    rejected: list[RejectedRow]
    treated: Tally

    def counts(self, treatment: Treatment) -> Counter[str]:
        return Counter({field: treated.count for field, kind, treated in self.treated if kind is treatment})

    @property
    def clamped_dates(self) -> int:
        return self.counts(Treatment.CLAMPED)[f"value{TYPES.index(DateType())}"]


def bound(policy: OnInvalid, required: set[int]) -> Binding:
    """The key is the first of its columns."""
    plain = binding(*TYPES)
    key, *values = (replace(column, required=place in required) for place, column in enumerate(plain.columns))
    return replace(plain, keys=(key,), values=tuple(values), on_invalid=policy)


def outcome(of: Binding, documents: Sequence[Document], cuts: set[int]) -> Outcome:
    """One decoder gets all of them, in several batches."""
    result, decoder = Outcome(Counter(), [], Tally()), RowDecoder(of)
    for begin, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(documents)), len(documents)]):
        content = b"".join(document.line for document in documents[begin:end])
        decoded = decoder.decode(Lines(content, (1 + begin).__add__))
        result.rows.update(tuple(map(as_text, row.values())) for row in decoded.batch.to_pylist())
        result.rejected += decoded.rejected
        result.treated.add_all(decoded.treated)
    return result


def error_of(of: Binding, documents: Sequence[Document], cuts: set[int]) -> tuple[int, str] | None:
    """Line and field."""
    try:
        outcome(of, documents, cuts)
    except InvalidValueError as error:
        return error.invalid.line, error.invalid.field
    return None


def as_text(value: Any) -> str | None:
    """In the form of `support.rows.expected_rows`."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case datetime():
            return str((value - EPOCH) // timedelta(microseconds=1))
        case Decimal():
            return f"{value:f}"
        case date():
            return value.isoformat()
        case _:
            return str(value)


@given(batches(), required_columns, cuts)
def test_stop_stops_at_an_invalid_value_and_at_nothing_else(
    documents: list[Document], required: set[int], cuts: set[int]
) -> None:
    of = bound(OnInvalid.STOP, required)
    model = Model(of, documents)

    error = error_of(of, documents, cuts)

    if error:
        assert error in model.invalid
    else:
        assert outcome(of, documents, cuts).rows == model.all_rows
        assert not model.invalid


@given(batches(), required_columns, cuts)
def test_null_changes_invalid_values_only_and_none_in_keys_and_required_columns(
    documents: list[Document], required: set[int], cuts: set[int]
) -> None:
    of = bound(OnInvalid.NULL, required)
    model = Model(of, documents)

    error = error_of(of, documents, cuts)

    if error:
        assert error in model.never_null
    else:
        found = outcome(of, documents, cuts)
        assert found.rows == model.all_rows
        assert found.counts(Treatment.NULLED) == model.nulled
        assert found.clamped_dates == model.clamped_dates(of_rejected_rows=True)
        assert not found.rejected
        assert not model.never_null


@given(batches(), required_columns, cuts)
def test_quarantine_divides_the_rows_and_loses_none(
    documents: list[Document], required: set[int], cuts: set[int]
) -> None:
    of = bound(OnInvalid.QUARANTINE, required)
    model = Model(of, documents)

    found = outcome(of, documents, cuts)

    assert found.rows == model.valid_rows
    assert Counter((row.field, row.key, row.document) for row in found.rejected) == model.rejected
    assert found.counts(Treatment.REJECTED) == Counter(row.field for row in found.rejected)
    assert found.counts(Treatment.NULLED) == {}
    assert found.clamped_dates == model.clamped_dates(of_rejected_rows=False)
