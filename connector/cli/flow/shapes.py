"""The shape of a location: which values it may have, and which locations are within it.

Shapes are intersected and united as Flow does it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from typing import Any, Final

from protocol.flow import Exists, Json, NumericInference, StringInference, split_pointer

# By type of JSON schema. A number is an integer or a fraction.
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
    "string": frozenset({"string"}),
    "array": frozenset({"array"}),
    "object": frozenset({"object"}),
}
ANY_KIND: Final = frozenset().union(*KINDS.values())
NUMBERS: Final = KINDS["number"]
ANY_STRING: Final = StringInference()
ANY_NUMBER: Final = NumericInference()
_CERTAINTY: Final = (Exists.MUST, Exists.MAY, Exists.IMPLICIT, Exists.CANNOT)
_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
_NEXT_INDEX: Final = "-"


@dataclass(frozen=True)
class ArrayShape:
    """The items that an array may have. Without arguments, any items."""

    first: tuple["Shape", ...] = ()  # each has a schema of its own
    others: "Shape | None" = None  # after these; None if nothing is said of them
    minimum: int = 0
    maximum: int | None = None

    def locate(self, index: int, *, is_array: bool) -> tuple["Shape", Exists]:
        """Return the shape of an item, and whether values have it. `is_array`: all values are arrays."""
        shape = self.first[index] if index < len(self.first) else self.others
        if is_array and index < self.minimum:
            exists = Exists.MUST
        elif self.maximum is not None and index >= self.maximum:
            exists = Exists.CANNOT
        else:
            exists = Exists.IMPLICIT if shape is None and self.maximum is None else Exists.MAY
        return shape or Shape(), exists


ANY_ARRAY: Final = ArrayShape()


@dataclass(frozen=True)
class Shape:
    """The values that a location may have. Without arguments, any value."""

    kinds: frozenset[str] = ANY_KIND
    properties: Mapping[str, "Shape"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: "Shape | None" = None  # of properties without a name in the schema; None if nothing is said of them
    patterns: Mapping[str, "Shape"] = field(default_factory=dict)  # of properties whose names have a match
    items: ArrayShape = ANY_ARRAY
    string: StringInference = ANY_STRING
    numeric: NumericInference = ANY_NUMBER
    default: Json = None
    title: str = ""
    description: str = ""
    secret: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """JSON schema's types, sorted."""
        names = set(self.kinds - NUMBERS)
        if self.kinds & NUMBERS:
            names.add("integer" if self.kinds & NUMBERS == {"integer"} else "number")
        return tuple(sorted(names))

    def list_locations(self, ptr: str = "", exists: Exists = Exists.MUST) -> "Iterator[tuple[str, Shape, Exists]]":
        """List the location and all locations within it, with their JSON pointers."""
        yield ptr, self, exists if self.kinds else Exists.CANNOT
        for name, shape in self.properties.items():
            within = _limit(exists, self._locate_property(name)[1])
            yield from shape.list_locations(f"{ptr}/{name.replace('~', '~0').replace('/', '~1')}", within)
        for index, shape in enumerate(self.items.first):
            within = _limit(exists, self.items.locate(index, is_array=self.kinds == {"array"})[1])
            yield from shape.list_locations(f"{ptr}/{index}", within)

    def locate(self, ptr: str) -> "tuple[Shape, Exists]":
        """Return the shape at a JSON pointer, and whether documents have a value there: also where nothing is listed,
        such as at an item of an array."""
        shape, exists = self, Exists.MUST
        for token in split_pointer(ptr):
            shape, within = shape._locate_token(token)
            exists = _limit(exists, within)
        return shape, exists if shape.kinds else Exists.CANNOT

    def find_property(self, name: str) -> "Shape | None":
        """Find what is said of a property; None if nothing is."""
        if name in self.properties:
            return self.properties[name]
        matching = [shape for pattern, shape in self.patterns.items() if re.search(pattern, name)]
        return reduce(intersect, matching) if matching else self.additional

    def _locate_token(self, token: str) -> "tuple[Shape, Exists]":
        if "array" in self.kinds and _INDEX.fullmatch(token):
            return self.items.locate(int(token), is_array=self.kinds == {"array"})
        if "object" in self.kinds and not ("array" in self.kinds and token == _NEXT_INDEX):
            return self._locate_property(token)
        return Shape(), Exists.CANNOT

    def _locate_property(self, name: str) -> "tuple[Shape, Exists]":
        shape = self.find_property(name)
        if shape is None:
            return Shape(), Exists.IMPLICIT
        return shape, Exists.MUST if self.kinds == {"object"} and name in self.required else Exists.MAY


def _limit(exists: Exists, within: Exists) -> Exists:
    """Return whether a location exists within another one."""
    return max(exists, within, key=_CERTAINTY.index)


NOTHING: Final = Shape(kinds=frozenset())


def name_type(value: Json) -> str:
    """Return JSON schema's type of a value: "number" for a number with a fraction or an exponent, even for 1.0."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def intersect(one: Shape, other: Shape) -> Shape:
    """Return the shape of the values that fit both shapes."""
    kinds = one.kinds & other.kinds
    if not kinds:
        return replace(NOTHING, title=one.title or other.title, description=one.description or other.description)
    return Shape(
        kinds=kinds,
        properties={
            name: intersect(one.find_property(name) or Shape(), other.find_property(name) or Shape())
            for name in _names(one, other)
        },
        required=one.required | other.required,
        additional=intersect_known(one.additional, other.additional),
        patterns={
            pattern: reduce(intersect, [each.patterns[pattern] for each in (one, other) if pattern in each.patterns])
            for pattern in {**one.patterns, **other.patterns}
        },
        items=_intersect_arrays(one.items, other.items),
        string=StringInference(
            one.string.format or other.string.format,
            one.string.content_type or other.string.content_type,
            one.string.content_encoding or other.string.content_encoding,
            min(filter(None, (one.string.max_length, other.string.max_length)), default=0),
        ),
        numeric=_intersect_numbers(one.numeric, other.numeric),
        default=other.default if one.default is None else one.default,
        title=one.title or other.title,
        description=one.description or other.description,
        secret=one.secret or other.secret,
    )


def intersect_known(*shapes: Shape | None) -> Shape | None:
    """Return the shape of the values that fit all shapes; None fits any value."""
    known = [shape for shape in shapes if shape is not None]
    return reduce(intersect, known) if known else None


def _intersect_arrays(one: ArrayShape, other: ArrayShape) -> ArrayShape:
    pairs = zip_longest(one.first, other.first)
    return ArrayShape(
        tuple(intersect_known(first or one.others, second or other.others) or Shape() for first, second in pairs),
        intersect_known(one.others, other.others),
        max(one.minimum, other.minimum),
        min((each.maximum for each in (one, other) if each.maximum is not None), default=None),
    )


def _intersect_numbers(one: NumericInference, other: NumericInference) -> NumericInference:
    minima = [each.minimum for each in (one, other) if each.has_minimum]
    maxima = [each.maximum for each in (one, other) if each.has_maximum]
    return NumericInference(bool(minima), max(minima, default=0.0), bool(maxima), min(maxima, default=0.0))


def unite(one: Shape, other: Shape) -> Shape:
    """Return the shape of the values that fit either shape, or both."""
    if not one.kinds or not other.kinds:
        return one if one.kinds else other
    objects = _of_kind(one, other, frozenset({"object"}))
    arrays = [shape.items for shape in _of_kind(one, other, frozenset({"array"}))]
    strings = [shape.string for shape in _of_kind(one, other, frozenset({"string"}))]
    numbers = [shape.numeric for shape in _of_kind(one, other, NUMBERS)]
    return Shape(
        kinds=one.kinds | other.kinds,
        properties=_unite_properties(objects),
        required=frozenset.intersection(*(shape.required for shape in objects)) if objects else frozenset(),
        additional=reduce(_unite_known, (shape.additional for shape in objects)) if objects else None,
        patterns=_unite_patterns(objects),
        items=reduce(_unite_arrays, arrays) if arrays else ANY_ARRAY,
        string=reduce(_unite_strings, strings) if strings else ANY_STRING,
        numeric=reduce(_unite_numbers, numbers) if numbers else ANY_NUMBER,
        default=_same(one.default, other.default, None),
        title=_same(one.title, other.title, ""),
        description=_same(one.description, other.description, ""),
        secret=_same(one.secret, other.secret, False),
    )


def _of_kind(one: Shape, other: Shape, kinds: frozenset[str]) -> list[Shape]:
    return [shape for shape in (one, other) if shape.kinds & kinds]


def _unite_properties(objects: list[Shape]) -> dict[str, Shape]:
    """Unite the properties that every shape restricts. Others may have any value, as if they had no name."""
    united = {}
    for name in _names(*objects):
        shapes = [shape.find_property(name) for shape in objects]
        known = [shape for shape in shapes if shape is not None]
        if len(known) == len(shapes):
            united[name] = reduce(unite, known)
    return united


def _unite_patterns(objects: list[Shape]) -> dict[str, Shape]:
    patterns = {pattern for shape in objects for pattern in shape.patterns}
    united = {
        pattern: reduce(_unite_known, [shape.patterns.get(pattern, shape.additional) for shape in objects])
        for pattern in sorted(patterns)
    }
    return {pattern: shape for pattern, shape in united.items() if shape is not None}


def _unite_arrays(one: ArrayShape, other: ArrayShape) -> ArrayShape:
    pairs = zip_longest(one.first, other.first)
    first = [_unite_known(mine or one.others, theirs or other.others) for mine, theirs in pairs]
    has_maximum = one.maximum is not None and other.maximum is not None
    return ArrayShape(
        tuple(shape for shape in first if shape is not None),  # None are the last ones only
        _unite_known(one.others, other.others),
        min(one.minimum, other.minimum),
        max(one.maximum or 0, other.maximum or 0) if has_maximum else None,
    )


def _unite_known(one: Shape | None, other: Shape | None) -> Shape | None:
    """Return the shape of the values that fit either shape; None fits any value."""
    return unite(one, other) if one and other else None


def _unite_strings(one: StringInference, other: StringInference) -> StringInference:
    formats = {one.format, other.format}
    return StringInference(
        "number" if formats == {"integer", "number"} else _same(one.format, other.format, ""),
        _same(one.content_type, other.content_type, ""),
        _same(one.content_encoding, other.content_encoding, ""),
        max(one.max_length, other.max_length) if one.max_length and other.max_length else 0,
    )


def _unite_numbers(one: NumericInference, other: NumericInference) -> NumericInference:
    has_minimum, has_maximum = one.has_minimum and other.has_minimum, one.has_maximum and other.has_maximum
    return NumericInference(
        has_minimum,
        min(one.minimum, other.minimum) if has_minimum else 0.0,
        has_maximum,
        max(one.maximum, other.maximum) if has_maximum else 0.0,
    )


def _names(*shapes: Shape) -> Iterable[str]:
    return dict.fromkeys(name for shape in shapes for name in shape.properties)


def _same(one: Any, other: Any, otherwise: Any) -> Any:
    return one if one == other else otherwise
