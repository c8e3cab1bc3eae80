"""Infers the shape of a collection's documents from its JSON schema, as Flow does."""

import re
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from connector.cli.flow.shapes import (
    ANY_KIND,
    KINDS,
    NOTHING,
    ArrayShape,
    Shape,
    intersect,
    intersect_known,
    name_type,
    unite,
)
from connector.host.errors import UserError
from protocol.flow import Json, NumericInference, StringInference

if TYPE_CHECKING:
    from referencing._core import Resolver as _Resolver  # the type has no public name

    Resolver: TypeAlias = _Resolver[Json]


def infer_shape(schema: Json, uri: str, retrieve: Callable[[str], Json]) -> Shape:
    """Infer the shape of the values that a JSON schema allows.

    `retrieve` gives the schemas that it refers to, by their URI. Raises UserError if a reference leads nowhere.
    """
    # mypy does not know the argument: it is the alias of an attribute.
    registry: Registry[Json] = Registry(  # type: ignore[call-arg]
        retrieve=lambda other: DRAFT202012.create_resource(retrieve(other))
    )
    registry = registry.with_resource(uri, DRAFT202012.create_resource(schema))
    try:
        return _infer(schema, registry.resolver(uri), (), "#")
    except RecursionError as error:
        raise UserError("its JSON schema is nested too deeply. Make it flatter.") from error


_Length: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]  # for JSON schemas, 3.0 is an integer


class _Keywords(msgspec.Struct, frozen=True, rename="camel"):
    """The keywords that say something of a location."""

    id: str | None = msgspec.field(default=None, name="$id")
    ref: str | None = msgspec.field(default=None, name="$ref")
    type: str | tuple[str, ...] | None = None
    enum: tuple[Json, ...] | None = None
    const: Json = msgspec.UNSET
    properties: dict[str, Json] = {}
    required: tuple[str, ...] = ()
    additional_properties: Json = msgspec.UNSET
    pattern_properties: dict[str, Json] = {}
    items: Json = msgspec.UNSET
    prefix_items: tuple[Json, ...] = ()
    additional_items: Json = msgspec.UNSET
    min_items: _Length = 0
    max_items: _Length | None = None
    all_of: tuple[Json, ...] = ()
    any_of: tuple[Json, ...] = ()
    one_of: tuple[Json, ...] = ()
    if_: Json = msgspec.field(default=msgspec.UNSET, name="if")
    then: Json = True
    else_: Json = msgspec.field(default=True, name="else")
    format: str = ""
    content_media_type: str = ""
    content_encoding: str = ""
    max_length: _Length = 0
    minimum: float | None = None
    maximum: float | None = None
    default: Json = None
    title: str = ""
    description: str = ""
    secret: bool | None = None
    airbyte_secret: bool = msgspec.field(default=False, name="airbyte_secret")


# By the names that a schema may use, those that Flow sends.
_FORMATS: Final = {"datetime": "date-time", "uint32": "integer", "uint64": "integer"}

Infer: TypeAlias = Callable[[Json, str], Shape]


def _infer(schema: Json, resolver: "Resolver", refs: tuple[int, ...], where: str) -> Shape:
    if isinstance(schema, bool):
        return Shape() if schema else NOTHING
    keywords, resolver = _parse(schema, resolver, where)

    def infer(inner: Json, within: str) -> Shape:
        return _infer(inner, resolver, refs, f"{where}/{within}")

    shapes = [_infer_own(keywords, infer), *_infer_each(keywords.all_of, "allOf", infer)]
    if keywords.ref is not None:
        shapes.append(_follow(keywords.ref, resolver, refs))
    for choices, name in ((keywords.any_of, "anyOf"), (keywords.one_of, "oneOf")):
        if choices:
            shapes.append(reduce(unite, _infer_each(choices, name, infer)))
    if keywords.if_ is not msgspec.UNSET:
        shapes.append(unite(infer(keywords.then, "then"), infer(keywords.else_, "else")))
    return reduce(intersect, shapes)


def _parse(schema: Json, resolver: "Resolver", where: str) -> tuple[_Keywords, "Resolver"]:
    """Return the keywords of a schema, and the resolver of the references in it."""
    try:
        keywords = msgspec.convert(schema, _Keywords)
    except msgspec.ValidationError as error:
        raise UserError(f"a JSON schema is malformed at {where}: {error}. Correct it.") from error
    if keywords.id is None:
        return keywords, resolver
    try:
        return keywords, resolver.in_subresource(DRAFT202012.create_resource(schema))
    except ValueError as error:
        raise UserError(f'a JSON schema is malformed at {where}: its "$id" is no URI. Correct it.') from error


def _infer_each(schemas: tuple[Json, ...], name: str, infer: Infer) -> list[Shape]:
    return [infer(schema, f"{name}/{index}") for index, schema in enumerate(schemas)]


def _follow(ref: str, resolver: "Resolver", refs: tuple[int, ...]) -> Shape:
    try:
        found = resolver.lookup(ref)
    except (Unresolvable, ValueError, TypeError, AttributeError) as error:  # the last three of malformed schemas
        cause: BaseException | None = error
        while cause and not isinstance(cause, UserError):
            cause = cause.__cause__ or cause.__context__
        raise cause or UserError(
            f'a JSON schema has the reference "{ref}", which leads nowhere. Correct it.'
        ) from error
    if id(found.contents) in refs:  # a schema that contains itself: locations would be without end
        return Shape()
    return _infer(found.contents, found.resolver, (*refs, id(found.contents)), ref)


def _infer_own(schema: _Keywords, infer: Infer) -> Shape:
    required = frozenset(schema.required)
    has_additional = schema.additional_properties is not msgspec.UNSET
    additional = infer(schema.additional_properties, "additionalProperties") if has_additional else None
    patterns = {
        pattern: infer(inner, f"patternProperties/{pattern}")
        for pattern, inner in schema.pattern_properties.items()
        if _is_pattern(pattern)
    }
    others = Shape(additional=additional, patterns=patterns)
    named = {name: infer(inner, f"properties/{name}") for name, inner in schema.properties.items()}
    matching = Shape(patterns=patterns)
    return Shape(
        kinds=_kinds_of_type(schema.type) & _kinds_of_values(schema),
        properties={name: others.find_property(name) or Shape() for name in sorted(required)}
        | {name: intersect_known(shape, matching.find_property(name)) or Shape() for name, shape in named.items()},
        required=required,
        additional=additional,
        patterns=patterns,
        items=_infer_items(schema, infer),
        string=StringInference(
            _FORMATS.get(schema.format, schema.format),
            schema.content_media_type,
            schema.content_encoding,
            int(schema.max_length),
        ),
        numeric=NumericInference(
            schema.minimum is not None, schema.minimum or 0.0, schema.maximum is not None, schema.maximum or 0.0
        ),
        default=schema.default,
        title=schema.title,
        description=schema.description,
        secret=schema.airbyte_secret if schema.secret is None else schema.secret,
    )


def _infer_items(schema: _Keywords, infer: Infer) -> ArrayShape:
    is_list = isinstance(schema.items, list)  # the older form of `prefixItems`
    others, name = (schema.additional_items, "additionalItems") if is_list else (schema.items, "items")
    return ArrayShape(
        tuple(_infer_each(tuple(schema.items), "items", infer))
        if is_list
        else tuple(_infer_each(schema.prefix_items, "prefixItems", infer)),
        None if others is msgspec.UNSET else infer(others, name),
        int(schema.min_items),
        None if schema.max_items is None else int(schema.max_items),
    )


def _is_pattern(text: str) -> bool:
    """Whether Python understands a regular expression, too. Flow knows more of them."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _kinds_of_type(name: str | tuple[str, ...] | None) -> frozenset[str]:
    names = [name] if isinstance(name, str) else name or [*KINDS]
    if unknown := [each for each in names if each not in KINDS]:
        raise UserError(f"a JSON schema has the type {unknown[0]!r}. The types are {', '.join(KINDS)}.")
    return frozenset().union(*(KINDS[each] for each in names))


def _kinds_of_values(schema: _Keywords) -> frozenset[str]:
    """The kinds of the values that `const` or `enum` allow."""
    if schema.const is not msgspec.UNSET:
        return frozenset({_kind_of(schema.const)})
    return ANY_KIND if schema.enum is None else frozenset(map(_kind_of, schema.enum))


def _kind_of(value: Json) -> str:
    kind = name_type(value)
    return kind if kind != "number" else "integer" if value.is_integer() else "fraction"
