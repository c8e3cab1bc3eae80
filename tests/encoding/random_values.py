"""Strategies for values that fit their columns."""

import base64
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

longs = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 255, 256, -255, -256, 2**63 - 1, -(2**63)])
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(["\0", "\0\0", "a\0ÿ", "\\", '"', "null", "𝄞"])
json_values = st.recursive(
    st.none() | st.booleans() | longs | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
offsets = st.sampled_from(["Z", "z", "+00:00", "-12:00", "+05:45", "+23:59", "-23:59"])
fractions = st.from_regex(r"(\.[0-9]{1,9})?", fullmatch=True, alphabet="0123456789.")
years = st.integers(0, 9999).map("{:04}".format)
dates = st.builds("{}-{:02}-{:02}".format, years, st.integers(1, 12), st.integers(1, 28))
clocks = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 60))
date_times = st.builds("{}{}{}{}{}".format, dates, st.sampled_from("Tt"), clocks, fractions, offsets) | st.builds(
    "{}{}{}{}".format, dates, st.sampled_from("Tt "), clocks, fractions
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Any]:
    """As strings; some of them as numbers, too."""
    most = 10**precision - 1
    unscaled = st.integers(-most, most) | st.sampled_from([0, 1, -1, most, -most])
    texts = st.builds(
        lambda number, exponent: f"{Decimal(number).scaleb(-scale, Context(prec=precision)):f}{exponent}",
        unscaled,
        st.sampled_from(["", "", "e0"]),
    )
    return texts | st.integers(-(10 ** min(precision - scale, 18)) + 1, 10 ** min(precision - scale, 18) - 1)


VALUES: dict[PrimitiveType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    LongType(): longs | longs.map(str) | st.integers(-(2**53), 2**53).map(float),
    DoubleType(): finite
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers().map(str)
    | finite.map(repr)
    | st.sampled_from(["-Infinity"]),
    DecimalType(9, 2): decimals(9, 2) | st.integers(-9999, 9999).map(lambda hundredths: hundredths / 100),
    DecimalType(38, 19): decimals(38, 19),
    StringType(): json_values,
    BinaryType(): st.binary().map(lambda content: base64.b64encode(content).decode()),
    DateType(): dates,
    TimestamptzType(): date_times,
}
TYPES = tuple(VALUES)
