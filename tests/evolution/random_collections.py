"""Strategies for collections, and for documents of them: the JSON texts of their keys and values."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import orjson
from hypothesis import strategies as st

from fixtures.collection import DOCUMENT, Field
from fixtures.conversation import line
from fixtures.packed import pack

Json: TypeAlias = Any

LONGS: Final = st.integers(-(2**63), 2**63 - 1)
DOUBLES: Final = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: orjson.dumps(number).decode())
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OFFSETS: Final = st.sampled_from(["Z", "z", "+00:00", "-11:30", "+14:00"])
FRACTIONS: Final = st.sampled_from(["", ".5", ".123456", ".123456789"])
VALUES: Final = st.recursive(
    st.none() | st.booleans() | LONGS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
INSTANTS: Final = st.builds(
    lambda moment, fraction, offset: f"{moment.isoformat(timespec='seconds')}{fraction}{offset}",
    st.datetimes(),
    FRACTIONS,
    OFFSETS,
)


def unspaced(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def spaced(value: Json) -> str:
    return json.dumps(value, separators=(" , ", ": "))


def written(values: st.SearchStrategy[Json]) -> st.SearchStrategy[str]:
    return st.builds(lambda write, value: write(value), st.sampled_from([unspaced, spaced]), values)


# By format of a string, where that limits what it may be; and by each other type.
STRINGS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "": TEXTS,
    "uuid": st.uuids().map(str),
    "time": TEXTS,
    "date": st.dates().map(lambda day: day.isoformat()),
    "date-time": INSTANTS,
    "integer": LONGS.map(str),
    "number": DOUBLES | st.sampled_from(["NaN", "Infinity", "-Infinity"]),
    "base64": st.binary(max_size=20).map(lambda content: b64encode(content).decode()),
}
OTHERS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "boolean": st.sampled_from(["true", "false"]),
    "integer": LONGS.map(str) | st.integers(-999, 999).map(lambda number: f"{number}.0"),
    "number": DOUBLES | LONGS.map(str),
    "array": written(st.lists(VALUES, max_size=3)),
    "object": written(st.dictionaries(TEXTS, VALUES, max_size=3)),
}

NAMES: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30) | st.sampled_from(
    ["select", "a.b", "$ %s '\"`", "\\", "{}", "_meta/op", "\U0001f600", "n" * 255]
)
NUMBERS: Final = (("integer",), ("number",), ("string",), ("integer", "number", "string"))
KINDS: Final = [*OTHERS, "string"]
# Most formats matter only where a string is all that there may be.
TYPES: Final = st.sampled_from([[kind] for kind in (*KINDS, *(["string"] * len(STRINGS)))]) | st.lists(
    st.sampled_from(KINDS), max_size=3, unique=True
)
CONFIGS: Final = st.sampled_from([None, None, None, None, {"castToString": True}, {"ignoreStringFormat": True}])
STRING_SETTINGS: Final = st.sampled_from(
    [{"contentEncoding": "base64"}, *({"format": kind} if kind else {} for kind in STRINGS if kind != "base64")]
)


@st.composite
def decimal_fields(draw: st.DrawFn, name: str, ptr: str) -> Field:
    """Whose values have no more digits than their column."""
    types = (*draw(st.sampled_from(NUMBERS)), *(("null",) if draw(st.booleans()) else ()))
    precision = draw(st.integers(1, 38))
    config = {"decimal": {"precision": precision, "scale": draw(st.integers(0, precision))}}
    return Field(name, ptr, types, draw(st.sampled_from(["MUST", "MAY"])), string={"format": "number"}, config=config)


def decimals(types: Sequence[str], precision: int, scale: int) -> st.SearchStrategy[str]:
    """JSON texts: as numbers only those that Flow's doubles tell apart."""
    most = 10**precision - 1
    strings = st.integers(-most, most).map(lambda unscaled: f'"{unscaled}e-{scale}"')
    small = 10 ** min(precision - scale, 15) - 1
    integers = st.integers(-small, small).map(str)
    return strings if set(types) <= {"string", "null"} else strings | integers if "string" in types else integers


def texts(types: Sequence[str], string: Mapping[str, Json]) -> st.SearchStrategy[str]:
    """The JSON texts of values other than null that a location may have."""
    string_kind = "base64" if string.get("contentEncoding") else string.get("format", "")
    strings = STRINGS[string_kind].map(unspaced)
    return st.one_of(*(strings if kind == "string" else OTHERS[kind] for kind in types if kind != "null"))


@st.composite
def fields(draw: st.DrawFn, name: str, ptr: str) -> Field:
    types = (*draw(TYPES), *(("null",) if draw(st.booleans()) else ()))
    string, exists = draw(STRING_SETTINGS), draw(st.sampled_from(["MUST", "MAY"]))
    has_default = exists == "MAY" and bool(set(types) - {"null"}) and draw(st.booleans())
    default = json.loads(draw(texts(types, string))) if has_default else None
    return Field(name, ptr, types, exists, string=string, default=default, config=draw(CONFIGS))


@dataclass(frozen=True)
class Drawn:
    """A collection's fields, the key first, and the texts of its documents' values in their order."""

    fields: tuple[Field, ...]
    documents: Sequence[Sequence[str]]
    is_packed: bool

    def stores(self, selected: Sequence[Field]) -> list[bytes]:
        """Lines with these fields."""
        places = [self.fields.index(field) for field in selected]
        return [self._line([document[place] for place in places]) for document in self.documents]

    def _line(self, document: Sequence[str]) -> bytes:
        key, *values = (msgspec.Raw(text.encode()) for text in document)
        if self.is_packed:
            packed = {"keyPacked": b64encode(pack([key])).decode(), "valuesPacked": b64encode(pack(values)).decode()}
            return line("store", packed | {"doc": {"key": key}})
        return line("store", {"key": [key], "values": values, "doc": {"key": key}})


@st.composite
def collections(draw: st.DrawFn) -> Drawn:
    distinct = st.lists(NAMES, min_size=4, max_size=8, unique_by=str.lower)
    names = draw(distinct.filter(lambda names: DOCUMENT.name not in map(str.lower, names)))
    key = Field(names[0], "/key", (draw(st.sampled_from(["integer", "string", "boolean"])),), "MUST", is_key=True)
    values = [
        draw(st.one_of(fields(name, ptr), fields(name, ptr), fields(name, ptr), decimal_fields(name, ptr)))
        for name, ptr in ((name, f"/value{number}") for number, name in enumerate(names[1:]))
    ]
    all_fields = (key, *values)
    documents = draw(st.lists(st.tuples(*map(_values, all_fields)), min_size=1, max_size=4))
    return Drawn(all_fields, documents, draw(st.booleans()))


def _texts(field: Field) -> st.SearchStrategy[str]:
    decimal = (field.config or {}).get("decimal")
    return decimals(field.types, **decimal) if decimal else texts(field.types, field.string)


def _values(field: Field) -> st.SearchStrategy[str]:
    """With null where the location may lack a value; the runtime sends the default of one that is missing."""
    if not set(field.types) - {"null"}:
        return st.just("null")
    others = "null" if field.default is None else orjson.dumps(field.default).decode()  # as doubles are
    may_be_missing = field.exists != "MUST"
    alternatives = [*(["null"] if "null" in field.types else []), *([others] if may_be_missing else [])]
    return _texts(field) | st.sampled_from(alternatives) if alternatives else _texts(field)
