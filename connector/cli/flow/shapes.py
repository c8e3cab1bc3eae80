"""The shape of a location: which values it may have, and which locations are within it.

Shapes are intersected and united as Flow does it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

from protocol.flow import Exists, Json, NumericInference, StringInference

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


@dataclass(frozen=True)
class Shape:
    """The values that a location may have. Without arguments, any value."""

    kinds: frozenset[str] = ANY_KIND
    properties: Mapping[str, "Shape"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: "Shape | None" = None  # of properties without a name in the schema; None if nothing is said of them
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
            is_certain = exists is Exists.MUST and self.kinds == {"object"} and name in self.required
            within = Exists.CANNOT if exists is Exists.CANNOT else Exists.MUST if is_certain else Exists.MAY
            yield from shape.list_locations(f"{ptr}/{name.replace('~', '~0').replace('/', '~1')}", within)


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
            name: intersect(_property(one, name) or Shape(), _property(other, name) or Shape())
            for name in _names(one, other)
        },
        required=one.required | other.required,
        additional=intersect(one.additional, other.additional)
        if one.additional and other.additional
        else one.additional or other.additional,
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


def _intersect_numbers(one: NumericInference, other: NumericInference) -> NumericInference:
    minima = [each.minimum for each in (one, other) if each.has_minimum]
    maxima = [each.maximum for each in (one, other) if each.has_maximum]
    return NumericInference(bool(minima), max(minima, default=0.0), bool(maxima), min(maxima, default=0.0))


def unite(one: Shape, other: Shape) -> Shape:
    """Return the shape of the values that fit either shape, or both."""
    if not one.kinds or not other.kinds:
        return one if one.kinds else other
    objects = _of_kind(one, other, frozenset({"object"}))
    strings = [shape.string for shape in _of_kind(one, other, frozenset({"string"}))]
    numbers = [shape.numeric for shape in _of_kind(one, other, NUMBERS)]
    return Shape(
        kinds=one.kinds | other.kinds,
        properties=_unite_properties(objects),
        required=frozenset.intersection(*(shape.required for shape in objects)) if objects else frozenset(),
        additional=reduce(_unite_additional, (shape.additional for shape in objects)) if objects else None,
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
        shapes = [_property(shape, name) for shape in objects]
        known = [shape for shape in shapes if shape is not None]
        if len(known) == len(shapes):
            united[name] = reduce(unite, known)
    return united


def _unite_additional(one: Shape | None, other: Shape | None) -> Shape | None:
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


def _property(shape: Shape, name: str) -> Shape | None:
    return shape.properties.get(name, shape.additional)


def _same(one: Any, other: Any, otherwise: Any) -> Any:
    return one if one == other else otherwise
