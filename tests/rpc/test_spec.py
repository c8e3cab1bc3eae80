"""Spec prints schemas that Flow's UI can show, and loads nothing to do it."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import jsonschema
import msgspec
import polars
import pytest

from connector.config.endpoint_config import ENDPOINT_SCHEMA
from connector.config.resource_config import RESOURCE_SCHEMA
from connector.rpc.spec import DESCRIPTION, describe, find_documentation_url, indent, spec
from protocol import response
from protocol.flow import Json
from support.snapshots import are_updated

EXPENSIVE = {
    "pyiceberg",
    "pyiceberg_core",
    "pyspark",
    "pyarrow",
    "jsonschema",
    "boto3",
    "sqlalchemy",
    "requests",
    "pydantic",
    "connector.config.definition",
}


def test_spec_loads_nothing_that_takes_time() -> None:
    program = "import sys; import connector.rpc.spec; connector.rpc.spec.spec(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert EXPENSIVE.isdisjoint(loaded.split())
    assert "protocol.response" in loaded.split()


def test_spec_answers_with_the_reviewed_schemas_that_configs_are_checked_against() -> None:
    answer = response.Spec(ENDPOINT_SCHEMA, RESOURCE_SCHEMA, find_documentation_url())
    if are_updated():
        DESCRIPTION.write_text(indent(answer) + "\n")
    assert indent(spec()) == indent(answer)
    assert DESCRIPTION.read_text() == indent(answer) + "\n"
    assert answer.documentation_url.startswith("https://")


def test_the_description_for_a_person_is_the_spec_response_indented() -> None:
    assert msgspec.json.decode(describe()) == msgspec.to_builtins(spec())
    assert '\n  "configSchema": {\n' in describe()


def properties(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    for name, member in schema.get("properties", {}).items():
        yield f"{path}/{name}", member
        yield from properties(member, f"{path}/{name}")
        for branch in member.get("oneOf", ()):
            yield from properties(branch, f"{path}/{name}")


PROPERTIES = [*properties(ENDPOINT_SCHEMA), *properties(RESOURCE_SCHEMA)]


def test_a_property_has_what_the_ui_shows() -> None:
    for path, schema in PROPERTIES:
        assert {"title", "description"} <= schema.keys(), path
        assert ("order" in schema) != ("x-hidden-field" in schema), path
    assert len(PROPERTIES) > 20


def test_no_two_properties_of_a_form_have_the_same_order() -> None:
    for form in forms(ENDPOINT_SCHEMA, RESOURCE_SCHEMA):
        orders = [member["order"] for member in form["properties"].values() if "order" in member]
        assert orders == list(range(len(orders))), form["title"]


def forms(*schemas: Json) -> Iterator[Json]:
    for schema in schemas:
        if "properties" in schema:
            yield schema
        yield from forms(*schema.get("properties", {}).values(), *schema.get("oneOf", ()))


def keywords(schema: Json) -> Iterator[tuple[str, Json]]:
    for keyword, value in schema.items():
        yield keyword, value
        match keyword:
            case "properties" | "patternProperties":
                members = [*value.values()]
            case "items" | "additionalProperties" | "propertyNames":
                members = [value] if isinstance(value, dict) else []
            case "oneOf":
                members = value
            case _:
                members = []
        for member in members:
            yield from keywords(member)


KEYWORDS: Final = [*keywords(ENDPOINT_SCHEMA), *keywords(RESOURCE_SCHEMA)]
# Flow refuses a schema with another keyword. Each one here was looked up in the sources of its `doc` and `json` crates.
KNOWN_TO_FLOW: Final = {
    *("$schema", "additionalProperties", "const", "default", "description", "discriminator", "enum", "format", "items"),
    *(
        "maximum",
        "minLength",
        "minimum",
        "nonsensitive",
        "oneOf",
        "order",
        "pattern",
        "patternProperties",
        "properties",
    ),
    *("propertyNames", "required", "title", "type", "advanced", "multiline", "secret", "x-collection-name"),
    *("x-delta-updates", "x-hidden-field", "x-iam-auth", "x-schema-name"),
}


def test_flow_knows_every_keyword() -> None:
    assert {keyword for keyword, _ in KEYWORDS} == KNOWN_TO_FLOW


def test_flow_can_compile_every_regular_expression() -> None:
    """Flow is written in Rust, as polars is. Rust's `regex` has no look-around, and Flow refuses the whole schema."""
    patterns = {value for keyword, value in KEYWORDS if keyword == "pattern"}
    patterns |= {name for keyword, value in KEYWORDS if keyword == "patternProperties" for name in value}
    assert len(patterns) > 15
    text = polars.Series([""])
    for pattern in patterns:
        text.str.contains(pattern, strict=True)


def test_an_optional_text_may_be_empty() -> None:
    """Flow's form has an empty text in each field of a choice in which nothing was entered, and checks it."""
    optional = [
        member
        for form in forms(ENDPOINT_SCHEMA, RESOURCE_SCHEMA)
        for name, member in form["properties"].items()
        if member.get("type") == "string" and name not in form.get("required", ()) and "enum" not in member
    ]
    assert len(optional) > 20
    assert [member["title"] for member in optional if not jsonschema.Draft202012Validator(member).is_valid("")] == []


def test_a_choice_is_made_by_its_discriminator() -> None:
    choices = [schema for _, schema in PROPERTIES if "oneOf" in schema]
    assert len(choices) == 4
    for choice in choices:
        discriminator = choice["discriminator"]["propertyName"]
        for branch in choice["oneOf"]:
            own = branch["properties"][discriminator]
            assert own["const"] == own["default"]
            assert discriminator in branch["required"]
            assert branch["title"]


@pytest.mark.parametrize(
    ("annotation", "paths"),
    [
        (
            "secret",
            {
                "/aws_secret_access_key",
                "/catalog/credential",
                "/catalog/password",
                "/catalog/service_account_json",
                "/catalog/token",
                "/storage/credentials/awsSecretAccessKey",
                "/storage/credentials/awsSessionToken",
                "/storage/account_key",
                "/catalog/properties/s3.proxy-uri",
                "/storage/client_secret",
                "/notify/secret",
                "/notify/url",
                "/storage/sas_token",
                "/storage/service_account_json",
                "/credentials/awsSecretAccessKey",
                "/credentials/awsSessionToken",
                "/credentials/aws_secret_access_key",
                "/credentials/aws_session_token",
            },
        ),
        (
            "advanced",
            {
                "/advanced",
                "/existing_table",
                "/additional_table_properties",
                "/catalog/properties",
                "/format_version",
                "/max_rejected_ratio",
                "/on_invalid",
                "/schema_evolution",
                "/storage/endpoint",
            },
        ),
        ("multiline", {"/catalog/token", "/catalog/service_account_json", "/storage/service_account_json"}),
        ("x-iam-auth", {"/credentials"}),
        ("x-collection-name", {"/table"}),
        ("x-schema-name", {"/namespace"}),
        ("x-delta-updates", {"/delta_updates"}),
        (
            # What Flow lets an editor of a task change who cannot decrypt its config. Nothing here leads the data, or a
            # secret, to another place, or turns on credentials: feature flags can.
            "nonsensitive",
            {
                "/upload_interval",
                "/syncSchedule",
                "/hard_delete",
                "/delta_updates",
                "/advanced/commit_after_bytes",
                "/advanced/commit_after_rows",
                "/advanced/field_name_case",
                "/advanced/format_version",
                "/advanced/max_waiting_bytes",
                "/advanced/max_waiting_commits",
                "/advanced/nanosecond_timestamps",
                "/advanced/schema_evolution",
                "/advanced/variant_columns",
            },
        ),
    ],
)
def test_annotations_are_where_flow_reads_them(annotation: str, paths: set[str]) -> None:
    assert {path for path, schema in PROPERTIES if schema.get(annotation)} == paths
