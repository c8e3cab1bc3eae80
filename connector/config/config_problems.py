"""All problems of a config at once, with their paths. No text repeats a value that may be secret."""

from collections.abc import Iterable, Iterator

from jsonschema import ValidationError

from connector.config.catalog import check_name
from connector.config.catalog_properties import check_property
from connector.config.credentials import OlderKeys
from connector.config.definition import Definition, each_value
from connector.config.endpoint_config import ENDPOINT_SCHEMA, EndpointConfig
from connector.config.keywords import ConfigValidator
from connector.config.resource_config import RESOURCE_SCHEMA, ResourceConfig
from connector.config.rules import Path, Problem, at, broken_rules, broken_rules_of_binding, chosen_catalog
from connector.config.unknown_settings import explain_unknown_setting
from protocol.flow import Json


def endpoint_problems(config: Json) -> list[Problem]:
    """Return the problems of an endpoint config."""
    found = _schema_problems(config, ENDPOINT_SCHEMA)
    further = [
        *_value_problems(EndpointConfig, config, found),
        *_value_problems(OlderKeys, config, found),
        *broken_rules(config),
        *_catalog_property_problems(config),
        *_name_problems(config, ("namespace",), chosen_catalog(config)),
    ]
    return _add_untouched(found, further)


def resource_problems(config: Json, catalog_type: Json) -> list[Problem]:
    """Return the problems of a resource config. Its table will be in a catalog of this type."""
    found = _schema_problems(config, RESOURCE_SCHEMA)
    further = [
        *_value_problems(ResourceConfig, config, found),
        *_name_problems(config, ("table", "namespace"), catalog_type),
        *broken_rules_of_binding(config),
    ]
    return _add_untouched(found, further)


def _add_untouched(found: list[Problem], further: Iterable[Problem]) -> list[Problem]:
    """Add the further problems, but for those of properties that have a problem already."""
    return found + [problem for problem in further if not any(first.touches(problem.path) for first in found)]


def _schema_problems(config: Json, schema: Json) -> list[Problem]:
    if config is None:
        return [Problem((), "the config is missing")]
    return [
        _explain(tuple(map(str, error.absolute_path)), error, config, schema)
        for error in ConfigValidator(schema).iter_errors(config)
    ]


def _explain(path: Path, error: ValidationError, config: Json, schema: Json) -> Problem:
    if error.validator != "additionalProperties":
        return Problem(path, error.message)
    return Problem(path, explain_unknown_setting(path, error.instance, error.schema, config, schema))


def _value_problems(definition: type[Definition], config: Json, found: list[Problem]) -> Iterator[Problem]:
    """Yield the problems that parsers of settings find. A value that has a problem already can be of any type."""
    for path, property, value in each_value(definition, config) if isinstance(config, dict) else ():
        if any(problem.touches(path) for problem in found):
            continue
        try:
            property.parse(value)
        except ValueError as error:
            yield Problem(path, str(error))
            continue
        if isinstance(value, str) and "\0" in value:
            yield Problem(path, "must not contain null characters")


def _catalog_property_problems(config: Json) -> Iterator[Problem]:
    properties = at(config, "catalog", "properties")
    for name, value in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(value, str):
            continue
        try:
            check_property(name, value)
        except ValueError as error:
            yield Problem(("catalog", "properties", name), str(error))


def _name_problems(config: Json, properties: Iterable[str], catalog_type: Json) -> Iterator[Problem]:
    for name in properties:
        value = at(config, name)
        if not value or not isinstance(value, str):
            continue
        try:
            check_name(catalog_type, value)
        except ValueError as error:
            yield Problem((name,), str(error))
