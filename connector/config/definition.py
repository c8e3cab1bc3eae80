"""A part of a config is defined once, as a class. Its JSON schema, its check and its parsing are made from that."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache
from itertools import count
from types import UnionType
from typing import Any, ClassVar, Final, TypeVar, get_origin

import msgspec

from connector.config.secret import Secret
from connector.model.properties import Properties
from protocol.flow import Json


class Definition(msgspec.Struct, frozen=True):
    """An object of a config. A definition with a tag is one of several choices, such as the kinds of catalogs.

    Each attribute is annotated with its type and a `Setting`. Flow's form shows them in the order of the attributes.
    """

    title: ClassVar[str] = ""
    description: ClassVar[str] = ""


class Setting(msgspec.Struct, frozen=True):
    """The texts that Flow's form shows for a property, and the rules that its type does not imply."""

    title: str
    description: str
    pattern: str = ""  # one of `patterns`, which has its error text
    min_length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    is_advanced: bool = False
    is_multiline: bool = False
    is_hidden: bool = False
    is_nonsensitive: bool = False  # Flow lets it be changed without the secrets of the config: it leads nowhere else
    may_be_empty: bool = False  # an empty text is a value; otherwise it counts as absent
    keywords: Mapping[str, Json] = {}  # further keywords of the schema
    # Makes the attribute's value from the JSON value. Raises a ValueError that says what the value must be.
    parse: Callable[[Any], object] | None = None

    def schema(self) -> Json:
        """Return the keywords that the setting has in a JSON schema."""
        keywords = {
            "title": self.title or None,
            "description": self.description or None,
            "pattern": self.pattern or None,
            "minLength": self.min_length,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "advanced": self.is_advanced or None,
            "multiline": self.is_multiline or None,
            "x-hidden-field": self.is_hidden or None,
            "nonsensitive": self.is_nonsensitive or None,
        }
        return {name: value for name, value in keywords.items() if value is not None} | {**self.keywords}


TYPES: Final[Mapping[type, Json]] = {
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer"},
    timedelta: {"type": "string", "format": "duration"},
    Properties: {"type": "object", "additionalProperties": {"type": "string"}},
    Secret: {"type": "string", "secret": True},
}
TEXT: Final[Json] = {"type": "string"}


class Property:
    """A property of a config, and the attribute that holds its value."""

    def __init__(self, name: str, attribute: str, annotated: Any, default: object) -> None:
        self.name, self.attribute, self.is_required = name, attribute, default is msgspec.NODEFAULT
        self.setting: Setting = annotated.__metadata__[0]
        kind = annotated.__origin__
        kinds = [each for each in (kind.__args__ if isinstance(kind, UnionType) else [kind]) if each is not type(None)]
        self._type: Any = get_origin(kinds[0]) or kinds[0]
        self._default = default
        definitions = [each for each in kinds if _is_definition(each)]
        self._choices = {each.__struct_config__.tag: each for each in definitions if each.__struct_config__.tag}
        self._only = definitions[0] if definitions and not self._choices else None

    def schema(self) -> Json:
        """Return the property's JSON schema, without its place in the form."""
        return {**self._schema_of_type(), **_schema_of_default(self._default), **self.setting.schema()}

    def choose(self, value: Json) -> type[Definition] | None:
        """Return the definition of this object, or None if it has none: a map of texts, or an unknown choice."""
        if not self._choices:
            return self._only
        choice = value.get(self._discriminator)
        return self._choices.get(choice) if isinstance(choice, str) else None

    def is_set(self, value: Json) -> bool:
        """Whether the JSON value sets the attribute. Without one, it has its default."""
        return value is not None and (value != "" or self.setting.may_be_empty)

    def parse(self, value: Json) -> Any:
        """Return the attribute's value. Raises ValueError if the JSON value has the right type, but a wrong content."""
        if self.setting.parse:
            return self.setting.parse(value)
        if isinstance(value, dict):
            definition = self.choose(value)
            return parse_object(definition, value) if definition else self._type(value)
        # For JSON schemas, 3.0 is an integer.
        is_converted = self._type is int or issubclass(self._type, (Secret, StrEnum))
        return self._type(value) if is_converted else value

    @property
    def _discriminator(self) -> str:
        return str(next(iter(self._choices.values())).__struct_config__.tag_field)

    def _schema_of_type(self) -> Json:
        if self._choices:
            choices = [schema_of(choice) for choice in self._choices.values()]
            return {"type": "object", "discriminator": {"propertyName": self._discriminator}, "oneOf": choices}
        if self._only:
            return schema_of(self._only)
        if issubclass(self._type, StrEnum):
            return {**TEXT, "enum": [each.value for each in self._type]}
        return TYPES.get(self._type, TEXT)


def _is_definition(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Definition)


def _schema_of_default(default: object) -> Json:
    match default:
        case timedelta():
            return {"default": f"PT{default // timedelta(minutes=1)}M"}
        case bool() | int() | float() | str() if default != "":
            return {"default": default.value if isinstance(default, StrEnum) else default}
        case _:
            return {}


@cache
def properties(definition: type[Definition]) -> tuple[Property, ...]:
    """Return the properties of a definition in their order."""
    attributes, given = definition.__struct_fields__, definition.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(attributes) - len(given)) + given
    types = map(definition.__annotations__.__getitem__, attributes)
    return tuple(map(Property, definition.__struct_encode_fields__, attributes, types, defaults))


def schema_of(*definitions: type[Definition]) -> Json:
    """Return the JSON schema of an object with the properties of all these definitions, and the texts of the first."""
    of = definitions[0]
    tag, tag_field = of.__struct_config__.tag, of.__struct_config__.tag_field
    every = [each for definition in definitions for each in properties(definition)]
    schemas = {tag_field: _schema_of_tag(tag_field, tag)} if tag_field and tag else {}
    schemas |= {each.name: each.schema() for each in every}
    orders = count()
    for schema in schemas.values():
        if "x-hidden-field" not in schema:
            schema["order"] = next(orders)
    required = [tag_field] * bool(tag) + [each.name for each in every if each.is_required]
    return {
        "type": "object",
        **Setting(of.title, of.description).schema(),
        "properties": schemas,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _schema_of_tag(tag_field: str, tag: str | int) -> Json:
    texts = Setting(tag_field.replace("_", " ").title(), f"Which of the choices this is: {tag}.")
    return {**TEXT, "const": tag, "default": tag, **texts.schema()}


Defined = TypeVar("Defined", bound=Definition)


def parse_object(definition: type[Defined], config: Json) -> Defined:
    """Parse an object that has passed the check. An empty text counts as absent, unless the setting may be empty."""
    given = [(each, config.get(each.name)) for each in properties(definition)]
    return definition(**{each.attribute: each.parse(value) for each, value in given if each.is_set(value)})


def each_value(
    definition: type[Definition], config: Json, *path: str
) -> Iterator[tuple[tuple[str, ...], Property, Json]]:
    """Yield each value that is set: its path, its property and the value. Objects with definitions are entered."""
    for each in properties(definition):
        value = config.get(each.name)
        chosen = each.choose(value) if isinstance(value, dict) else None
        if chosen:
            yield from each_value(chosen, value, *path, each.name)
        elif value:
            yield (*path, each.name), each, value
