"""Infers the shape of a collection's documents from its JSON schema, as Flow does."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from connector.cli.shapes import ANY_KIND, KINDS, NOTHING, Shape, intersect, name_type, unite
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
    return _infer(schema, registry.resolver(uri), ())


def _infer(schema: Json, resolver: "Resolver", refs: tuple[int, ...]) -> Shape:
    if not isinstance(schema, Mapping):
        return NOTHING if schema is False else Shape()
    if "$id" in schema:
        resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))

    def infer(inner: Json) -> Shape:
        return _infer(inner, resolver, refs)

    shapes = [_infer_own(schema, infer), *map(infer, schema.get("allOf", ()))]
    if "$ref" in schema:
        shapes.append(_follow(schema["$ref"], resolver, refs))
    shapes += (reduce(unite, map(infer, schema[keyword])) for keyword in ("anyOf", "oneOf") if schema.get(keyword))
    if "if" in schema:
        shapes.append(unite(infer(schema.get("then")), infer(schema.get("else"))))
    return reduce(intersect, shapes)


def _follow(ref: str, resolver: "Resolver", refs: tuple[int, ...]) -> Shape:
    try:
        found = resolver.lookup(ref)
    except Unresolvable as error:
        cause: BaseException | None = error
        while cause and not isinstance(cause, UserError):
            cause = cause.__cause__ or cause.__context__
        raise cause or UserError(
            f'a JSON schema has the reference "{ref}", which leads nowhere. Correct it.'
        ) from error
    if id(found.contents) in refs:  # a schema that contains itself: locations would be without end
        return Shape()
    return _infer(found.contents, found.resolver, (*refs, id(found.contents)))


def _infer_own(schema: Mapping[str, Any], infer: Callable[[Json], Shape]) -> Shape:
    required = frozenset(schema.get("required", ()))
    additional = infer(schema["additionalProperties"]) if "additionalProperties" in schema else None
    properties = {name: infer(inner) for name, inner in schema.get("properties", {}).items()}
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    return Shape(
        _kinds_of_type(schema.get("type")) & _kinds_of_values(schema),
        {**dict.fromkeys(sorted(required), additional or Shape()), **properties},
        required,
        additional,
        StringInference(
            schema.get("format", ""),
            schema.get("contentMediaType", ""),
            schema.get("contentEncoding", ""),
            schema.get("maxLength", 0),
        ),
        NumericInference(minimum is not None, minimum or 0.0, maximum is not None, maximum or 0.0),
        schema.get("default"),
        schema.get("title", ""),
        schema.get("description", ""),
        bool(schema.get("secret", schema.get("airbyte_secret", False))),
    )


def _kinds_of_type(name: Json) -> frozenset[str]:
    names = [name] if isinstance(name, str) else name or [*KINDS]
    if unknown := [each for each in names if each not in KINDS]:
        raise UserError(f"a JSON schema has the type {unknown[0]!r}. The types are {', '.join(KINDS)}.")
    return frozenset().union(*(KINDS[each] for each in names))


def _kinds_of_values(schema: Mapping[str, Any]) -> frozenset[str]:
    """The kinds of the values that `const` or `enum` allow."""
    if "const" in schema:
        return frozenset({_kind_of(schema["const"])})
    return frozenset(map(_kind_of, schema["enum"])) if "enum" in schema else ANY_KIND


def _kind_of(value: Json) -> str:
    kind = name_type(value)
    return kind if kind != "number" else "integer" if value.is_integer() else "fraction"
