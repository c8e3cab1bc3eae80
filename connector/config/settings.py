"""The configs of a task are parsed once. A config with problems raises one error that names all of them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from connector.config.catalog import R2_PREFIX, RestCatalog
from connector.config.credentials import AwsIam, MachineCredentials, OlderKeys
from connector.config.definition import parse_object
from connector.config.endpoint_config import ENDPOINT_SCHEMA, EndpointConfig
from connector.config.resource_config import RESOURCE_SCHEMA, ExistingTableMode, ResourceConfig
from connector.config.secret import secret_values
from connector.config.storage import S3Storage
from connector.config.values import ALLOW_EXISTING_TABLES, FORMAT_VERSION, FORMAT_VERSIONS
from connector.host.errors import InvalidConfigError
from connector.host.redaction import hide
from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json
from protocol.json_values import DEEPEST, is_nested_deeply

CATALOG: Final = "catalog"


def parse(config: Json, resources: Sequence[Json]) -> tuple[EndpointConfig, list[ResourceConfig]]:
    """Check and parse an endpoint config and the resource configs of its bindings.

    Raises InvalidConfigError, which names all problems.
    """
    endpoint, parsed = parse_each(config, resources)
    if wrong := [resource for resource in parsed if isinstance(resource, InvalidConfigError)]:
        raise InvalidConfigError("\n".join(map(str, wrong)))
    return endpoint, [resource for resource in parsed if isinstance(resource, ResourceConfig)]


def parse_each(
    config: Json, resources: Sequence[Json]
) -> tuple[EndpointConfig, list[ResourceConfig | InvalidConfigError]]:
    """Like `parse`, but the error of a resource config takes its place in the list, if the endpoint config has no
    problem."""
    if is_nested_deeply([config, *resources]):
        raise InvalidConfigError(f"/: has more than {DEEPEST} objects and lists within each other")
    for secret in secret_values(config, ENDPOINT_SCHEMA):  # before an error can name one
        hide(secret)
    # Imported here: jsonschema takes longer to load than a whole spec request.
    from connector.config.config_problems import endpoint_problems, resource_problems
    from connector.config.rules import chosen_catalog

    config = _without_absent(config, ENDPOINT_SCHEMA)
    resources = [_without_absent(_without_meta(resource), RESOURCE_SCHEMA) for resource in resources]
    wrong = [
        "\n".join(f"bindings[{index}] {problem}" for problem in resource_problems(resource, chosen_catalog(config)))
        for index, resource in enumerate(resources)
    ]
    if found := endpoint_problems(config):
        raise InvalidConfigError("\n".join(filter(None, [*map(str, found), *wrong])))
    endpoint = _parse_endpoint(config)
    return endpoint, [
        InvalidConfigError(lines) if lines else _parse_resource(resource, endpoint)
        for lines, resource in zip(wrong, resources, strict=True)
    ]


def resource_path(endpoint: EndpointConfig, resource: ResourceConfig) -> TableIdentifier:
    """Return namespace and table in the case that the catalog has them in."""
    names = (resource.namespace or endpoint.namespace, resource.table)
    return TableIdentifier(*map(endpoint.name_in_catalog, names))


def _without_absent(config: Json, schema: Json) -> Json:
    """Return the config without what counts as absent: nulls, and objects without a setting. Flow's form leaves such
    an object where another choice was made before. Only the catalog cannot be left empty: it would be AWS Glue.
    """
    if not isinstance(config, dict):
        return config
    known = {name: of for form in (schema, *schema.get("oneOf", ())) for name, of in form.get("properties", {}).items()}
    members = {name: _without_absent(member, known.get(name, {})) for name, member in config.items()}
    objects = {name for name, of in known.items() if "object" in of.get("type", ())} - {CATALOG}
    return {
        name: member for name, member in members.items() if member is not None and (member != {} or name not in objects)
    }


def _without_meta(resource: Json) -> Json:
    """Return a resource config without the property that Flow adds for itself. Not every runtime removes it."""
    if not isinstance(resource, dict):
        return resource
    return {name: value for name, value in resource.items() if name != "_meta"}


def _parse_endpoint(config: Json) -> EndpointConfig:
    endpoint = parse_object(EndpointConfig, config)
    # A catalog of Google has its tables in Google's storage.
    rest = endpoint.catalog if isinstance(endpoint.catalog, RestCatalog) else None
    is_google = rest is not None and rest.has_google_sign_in
    machine = MachineCredentials() if endpoint.allows_machine_credentials and not is_google else None
    given = endpoint.credentials
    if isinstance(given, AwsIam) and not given.access_key_id:  # outside of Flow
        given = None
    credentials = given or parse_object(OlderKeys, config).credentials or machine
    endpoint = msgspec.structs.replace(endpoint, credentials=credentials)
    return _use_r2_prefix(endpoint) if rest and rest.is_r2 else endpoint


def _use_r2_prefix(endpoint: EndpointConfig) -> EndpointConfig:
    """Return the config with prefixes that the catalog of Cloudflare R2 takes, as the public connector has them."""

    def extend(prefix: str) -> str:
        return prefix if f"{prefix}/".startswith(f"{R2_PREFIX}/") else f"{R2_PREFIX}/{prefix}".rstrip("/")

    storage = endpoint.storage
    if isinstance(storage, S3Storage):
        storage = msgspec.structs.replace(storage, prefix=extend(storage.prefix))
    return msgspec.structs.replace(endpoint, prefix=extend(endpoint.prefix), storage=storage)


def _parse_resource(resource: Json, endpoint: EndpointConfig) -> ResourceConfig:
    allows_existing = ALLOW_EXISTING_TABLES in endpoint.advanced.feature_flags
    defaults = {
        "existing_table": ExistingTableMode.APPEND if allows_existing else ExistingTableMode.REFUSE,
        "schema_evolution": endpoint.advanced.schema_evolution,
        "format_version": _named_format_version(resource) or endpoint.advanced.default_format_version,
    }
    return parse_object(ResourceConfig, {**defaults, **resource})


def _named_format_version(resource: Json) -> int | None:
    """Return the format version that a binding names among its table properties, as in the public connector."""
    named = resource.get("additional_table_properties", {}).get(FORMAT_VERSION)
    return next((version for version in FORMAT_VERSIONS if str(version) == named), None)
