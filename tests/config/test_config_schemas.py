"""The printed schemas accept what the connector accepts, and the documentation has an example of each catalog."""

import re
from collections.abc import Iterator
from datetime import timedelta

import jsonschema
import orjson
import pytest

from config.configs import EVERYTHING, GLUE, IAM, LOCAL, REST, ROLE, S3_TABLES
from connector.config.catalog import LocalCatalog
from connector.config.endpoint_config import ENDPOINT_SCHEMA, EndpointConfig
from connector.config.keywords import KEYWORDS
from connector.config.resource_config import RESOURCE_SCHEMA, ResourceConfig
from connector.config.rules import chosen_catalog
from connector.config.settings import parse
from connector.host.errors import InvalidConfigError
from protocol.flow import Json
from support.repository import REPOSITORY

DOCUMENTATION = (REPOSITORY / "docs" / "configuration.md").read_text()
EXAMPLES = [
    orjson.loads(found.replace("…", "secret"))
    for found in re.findall(r"```json\n(\{\n  \"namespace\".*?)```", DOCUMENTATION, re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES, ids=chosen_catalog)
def test_every_documented_example_is_a_config(example: Json) -> None:
    endpoint, _ = parse(example, [{"table": "orders"}])
    assert endpoint.namespace == "shop"


def test_every_kind_of_catalog_has_a_documented_example() -> None:
    kinds = {
        choice["properties"]["catalog_type"]["const"] for choice in ENDPOINT_SCHEMA["properties"]["catalog"]["oneOf"]
    }
    assert {chosen_catalog(example) for example in EXAMPLES} == kinds


@pytest.mark.parametrize("schema", [ENDPOINT_SCHEMA, RESOURCE_SCHEMA])
def test_every_setting_that_flow_shows_is_in_a_table_of_the_documentation(schema: Json) -> None:
    rows = "".join(re.findall(r"^\|.*\n", DOCUMENTATION, re.MULTILINE))
    documented = set(re.findall(r"[\w.-]+", "".join(re.findall(r"`[^`]+`", rows))))
    assert set(shown_settings(schema)) - documented == set()


def shown_settings(schema: Json) -> Iterator[str]:
    for name, setting in schema.get("properties", {}).items():
        if "x-hidden-field" not in setting:
            yield name
            yield from shown_settings(setting)
    for choice in schema.get("oneOf", ()):
        yield from shown_settings(choice)


def test_what_is_left_out_has_the_defaults_that_the_schemas_print() -> None:
    endpoint, resources = parse(LOCAL, [{"table": "t"}])
    assert endpoint == EndpointConfig(namespace="ns", catalog=LocalCatalog(), upload_interval=timedelta(minutes=5))
    assert resources == [ResourceConfig("t", namespace=None, delta_updates=True)]
    assert ENDPOINT_SCHEMA["properties"]["upload_interval"]["default"] == "PT5M"
    assert RESOURCE_SCHEMA["properties"]["delta_updates"]["default"] is True


@pytest.mark.parametrize("endpoint", [LOCAL, GLUE, REST, EVERYTHING, IAM, ROLE, S3_TABLES])
def test_an_accepted_config_fits_the_printed_schema_for_any_validator(endpoint: Json) -> None:
    parse(endpoint, [])
    jsonschema.Draft202012Validator(ENDPOINT_SCHEMA).validate(endpoint)


def test_the_nulls_of_the_public_connector_fit_the_printed_schema() -> None:
    nulls = {"aws_access_key_id": None, "aws_secret_access_key": None, "advanced": None}
    jsonschema.Draft202012Validator(ENDPOINT_SCHEMA).validate({**GLUE, **nulls})


@pytest.mark.parametrize("endpoint", [LOCAL, GLUE, REST])
def test_nulls_are_as_good_as_absent(endpoint: Json) -> None:
    nulls: Json = dict.fromkeys(ENDPOINT_SCHEMA["properties"])
    advanced: Json = dict.fromkeys(ENDPOINT_SCHEMA["properties"]["advanced"]["properties"])
    assert parse({**nulls, **endpoint}, []) == parse(endpoint, [])
    assert parse({**endpoint, "advanced": advanced}, []) == parse(endpoint, [])
    resource_nulls: Json = dict.fromkeys(RESOURCE_SCHEMA["properties"])
    assert parse(endpoint, [{**resource_nulls, "table": "t"}]) == parse(endpoint, [{"table": "t"}])


def test_the_property_that_flow_adds_to_resource_configs_is_none_of_ours() -> None:
    assert parse(LOCAL, [{"table": "t", "_meta": {"path": ["shop", "t"]}}]) == parse(LOCAL, [{"table": "t"}])
    with pytest.raises(InvalidConfigError, match="/_meta: is not a known property"):
        parse({**LOCAL, "_meta": {}}, [])


@pytest.mark.parametrize("schema", [ENDPOINT_SCHEMA, RESOURCE_SCHEMA])
def test_every_keyword_that_can_complain_does_so_in_our_words(schema: Json) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    judging = set(jsonschema.Draft202012Validator.VALIDATORS)
    # Properties and items complain only through their members; a branch is chosen by its `const`; durations are
    # config_values'.
    through_others = {"properties", "patternProperties", "items", "const", "format"}
    assert (set(keywords(schema)) & judging) - set(KEYWORDS) <= through_others


def keywords(schema: Json) -> Iterator[str]:
    yield from schema
    for subschema in schema.get("properties", {}).values():
        yield from keywords(subschema)
    for subschema in (*schema.get("oneOf", ()), *schema.get("patternProperties", {}).values()):
        yield from keywords(subschema)
    for keyword in ("propertyNames", "additionalProperties", "items"):
        if isinstance(schema.get(keyword), dict):
            yield from keywords(schema[keyword])
