"""The endpoint's and the resources' configs, parsed once: what the rest of the connector knows of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from connector.config import catalog, catalog_schemas, credentials, storage, values
from connector.config.catalog import Catalog
from connector.config.credentials import Credentials
from connector.config.schema import (
    DEFAULT_MAX_WAITING_BYTES,
    DEFAULT_MAX_WAITING_COMMITS,
    DEFAULT_SCHEMA_EVOLUTION,
    DEFAULT_UPLOAD_INTERVAL,
)
from connector.config.schema_evolution import SchemaEvolution
from connector.config.secret_values import hide_secrets
from connector.config.storage import Storage
from connector.config.values import settings
from connector.host.errors import InvalidConfigError
from connector.model.invalid_values import DEFAULT_MAX_REJECTED_RATIO, OnInvalid
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from protocol.flow import Json


@dataclass(frozen=True)
class EndpointConfig:
    """Where the tables are and how to get there."""

    namespace: str
    catalog: Catalog
    upload_interval: timedelta
    credentials: Credentials | None = None
    bucket: str = ""
    prefix: str = ""
    region: str = ""
    s3_endpoint: str = ""
    storage: Storage | None = None  # in place of a bucket of Amazon S3
    feature_flags: frozenset[str] = frozenset()
    # Spark's settings may hold passwords.
    spark: Properties = field(default_factory=Properties, repr=False)
    # For one table that refuses commits.
    max_waiting_commits: int = DEFAULT_MAX_WAITING_COMMITS
    max_waiting_bytes: int = DEFAULT_MAX_WAITING_BYTES


@dataclass(frozen=True)
class ResourceConfig:
    """A binding's table and how to keep it."""

    table: str
    namespace: str | None = None
    delta_updates: bool = True
    additional_table_properties: Properties = field(default_factory=Properties)
    on_invalid: OnInvalid = OnInvalid.STOP
    max_rejected_ratio: float = DEFAULT_MAX_REJECTED_RATIO
    schema_evolution: SchemaEvolution = DEFAULT_SCHEMA_EVOLUTION  # the endpoint's, where the binding names none


def parse(config: Json, resources: Sequence[Json]) -> tuple[EndpointConfig, list[ResourceConfig]]:
    """Check and parse an endpoint config and its bindings' resource configs; InvalidConfigError names all that is
    wrong."""
    endpoint, parsed = parse_each(config, resources)
    if wrong := [resource for resource in parsed if isinstance(resource, InvalidConfigError)]:
        raise InvalidConfigError("\n".join(map(str, wrong)))
    return endpoint, [resource for resource in parsed if isinstance(resource, ResourceConfig)]


def parse_each(
    config: Json, resources: Sequence[Json]
) -> tuple[EndpointConfig, list[ResourceConfig | InvalidConfigError]]:
    """Like `parse`, but what is wrong with a resource config takes its place in the list, if the endpoint config is
    right."""
    hide_secrets(config)
    # Imported here: jsonschema takes longer to load than a spec request may take in all.
    from connector.config.rules import chosen_catalog, endpoint_problems, resource_problems

    config, resources = _without_nulls(config), list(map(_without_nulls, resources))
    wrong = [
        "\n".join(f"bindings[{index}] {problem}" for problem in resource_problems(resource, chosen_catalog(config)))
        for index, resource in enumerate(resources)
    ]
    if found := endpoint_problems(config):
        raise InvalidConfigError("\n".join(filter(None, [*map(str, found), *wrong])))
    default = config.get("advanced", {}).get("schema_evolution", DEFAULT_SCHEMA_EVOLUTION)
    return _endpoint(config), [
        InvalidConfigError(lines) if lines else _resource(resource, default)
        for lines, resource in zip(wrong, resources, strict=True)
    ]


def resource_path(endpoint: EndpointConfig, resource: ResourceConfig) -> TableIdentifier:
    """Namespace and table, lower-cased: Glue and Hive keep no other case."""
    return TableIdentifier((resource.namespace or endpoint.namespace).lower(), resource.table.lower())


def _without_nulls(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(member) for name, member in value.items() if member is not None}


def _endpoint(config: Json) -> EndpointConfig:
    advanced = config.get("advanced", {})
    flags = values.feature_flags(advanced.get("feature_flags", ""))
    allows_machine = values.MACHINE_CREDENTIALS in flags
    return EndpointConfig(
        namespace=config["namespace"],
        catalog=catalog.parse(config.get("catalog", {"catalog_type": catalog_schemas.GLUE})),
        upload_interval=values.upload_interval(config.get("upload_interval") or DEFAULT_UPLOAD_INTERVAL),
        credentials=credentials.parse(config.get("credentials", config), allows_machine_credentials=allows_machine),
        bucket=config.get("bucket", ""),
        prefix=values.object_prefix(config.get("prefix", "")),
        region=config.get("region", ""),
        s3_endpoint=values.endpoint(config.get("s3_endpoint", "")),
        storage=_storage(config, allows_machine),
        feature_flags=flags,
        spark=settings(advanced, "spark"),
        max_waiting_commits=advanced.get("max_waiting_commits", DEFAULT_MAX_WAITING_COMMITS),
        max_waiting_bytes=advanced.get("max_waiting_bytes", DEFAULT_MAX_WAITING_BYTES),
    )


def _storage(config: Json, allows_machine: bool) -> Storage | None:
    return storage.parse(config["storage"], allows_machine_credentials=allows_machine) if "storage" in config else None


def _resource(resource: Json, default_evolution: str) -> ResourceConfig:
    return ResourceConfig(
        table=resource["table"],
        namespace=resource.get("namespace") or None,
        delta_updates=resource.get("delta_updates", True),
        additional_table_properties=settings(resource, "additional_table_properties"),
        on_invalid=OnInvalid(resource.get("on_invalid", OnInvalid.STOP)),
        max_rejected_ratio=resource.get("max_rejected_ratio", DEFAULT_MAX_REJECTED_RATIO),
        schema_evolution=SchemaEvolution(resource.get("schema_evolution", default_evolution)),
    )
