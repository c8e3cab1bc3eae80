"""The endpoint's and the resources' configs, parsed once: what the rest of the connector knows of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from connector.config import catalog_schemas, credential_schemas, values
from connector.config import storage as storage_config
from connector.config.catalog_schemas import DEFAULT_CATALOG_NAME
from connector.config.credential_schemas import DEFAULT_SESSION_NAME
from connector.config.schema import (
    DEFAULT_MAX_WAITING_BYTES,
    DEFAULT_MAX_WAITING_COMMITS,
    DEFAULT_SCHEMA_EVOLUTION,
    DEFAULT_UPLOAD_INTERVAL,
)
from connector.config.schema_evolution import SchemaEvolution
from connector.config.secret import Secret
from connector.config.storage import Storage
from connector.errors import InvalidConfigError
from connector.invalid_values import DEFAULT_MAX_REJECTED_RATIO, OnInvalid
from protocol.flow import Json

Settings: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AwsCredentials:
    """Keys for AWS: a user's own, or those of a role that the runtime has assumed."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None


@dataclass(frozen=True)
class MachineCredentials:
    """What AWS's own tools find on this machine: environment, profile, container, instance."""


@dataclass(frozen=True)
class AwsRole:
    """A role that is assumed with the connector's own keys."""

    arn: str
    own: AwsCredentials | MachineCredentials
    external_id: str = ""
    session_name: str = DEFAULT_SESSION_NAME


@dataclass(frozen=True)
class RestCatalog:
    """An Iceberg REST catalog."""

    uri: str
    warehouse: str
    credential: Secret | None = None
    token: Secret | None = None
    scope: str = ""
    oauth2_server_uri: str = ""
    # Headers may hold tokens.
    properties: Settings = field(default=(), repr=False)


@dataclass(frozen=True)
class GlueCatalog:
    """The Glue Data Catalog of the account `glue_id`, or of the credentials' own."""

    glue_id: str = ""
    properties: Settings = ()


@dataclass(frozen=True)
class S3TablesCatalog:
    """A table bucket of Amazon S3 Tables."""

    arn: str

    @property
    def region(self) -> str:
        return self.arn.split(":")[3]

    @property
    def uri(self) -> str:
        # Named as AWS's own tools have it: another address than Amazon's.
        address = os.environ.get("AWS_ENDPOINT_URL_S3TABLES") or f"https://s3tables.{self.region}.amazonaws.com"
        return f"{address}/iceberg"


@dataclass(frozen=True)
class LocalCatalog:
    """A catalog and its tables in one directory; without one, in a temporary directory."""

    warehouse: Path | None = None


@dataclass(frozen=True)
class SqlCatalog:
    """A catalog in a PostgreSQL database; its name is what its rows are told by from other catalogs' there."""

    uri: str  # without a password
    password: Secret | None = None
    name: str = DEFAULT_CATALOG_NAME


@dataclass(frozen=True)
class HiveCatalog:
    """Hive's metastore."""

    uri: str  # of one server, or of several that have the same tables
    properties: Settings = ()


Catalog: TypeAlias = RestCatalog | GlueCatalog | S3TablesCatalog | SqlCatalog | HiveCatalog | LocalCatalog


@dataclass(frozen=True)
class EndpointConfig:
    """Where the tables are and how to get there."""

    namespace: str
    catalog: Catalog
    upload_interval: timedelta
    credentials: AwsCredentials | AwsRole | MachineCredentials | None = None
    bucket: str = ""
    prefix: str = ""
    region: str = ""
    s3_endpoint: str = ""
    storage: Storage | None = None  # in place of a bucket of Amazon S3
    feature_flags: frozenset[str] = frozenset()
    # Spark's settings may hold passwords.
    spark: Settings = field(default=(), repr=False)
    # For one table that refuses commits.
    max_waiting_commits: int = DEFAULT_MAX_WAITING_COMMITS
    max_waiting_bytes: int = DEFAULT_MAX_WAITING_BYTES


@dataclass(frozen=True)
class ResourceConfig:
    """A binding's table and how to keep it."""

    table: str
    namespace: str | None = None
    delta_updates: bool = True
    additional_table_properties: Settings = ()
    on_invalid: OnInvalid = OnInvalid.STOP
    max_rejected_ratio: float = DEFAULT_MAX_REJECTED_RATIO
    schema_evolution: SchemaEvolution = DEFAULT_SCHEMA_EVOLUTION  # the endpoint's, where the binding names none


def parse(config: Json, resources: Sequence[Json]) -> tuple[EndpointConfig, list[ResourceConfig]]:
    """Check and parse an endpoint config and its bindings' resource configs: an error names all that is wrong."""
    endpoint, parsed = parse_each(config, resources)
    if wrong := [resource for resource in parsed if isinstance(resource, InvalidConfigError)]:
        raise InvalidConfigError("\n".join(map(str, wrong)))
    return endpoint, [resource for resource in parsed if isinstance(resource, ResourceConfig)]


def parse_each(
    config: Json, resources: Sequence[Json]
) -> tuple[EndpointConfig, list[ResourceConfig | InvalidConfigError]]:
    """Where the endpoint config is right, what is wrong with a resource config stays in its place. Else all is raised."""
    # Imported here: jsonschema takes longer to load than a spec request may take in all.
    from connector.config.check import chosen_catalog, endpoint_problems, resource_problems

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


def resource_path(endpoint: EndpointConfig, resource: ResourceConfig) -> tuple[str, str]:
    """Namespace and table, lower-cased: Glue and Hive keep no other case."""
    return (resource.namespace or endpoint.namespace).lower(), resource.table.lower()


def _without_nulls(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(member) for name, member in value.items() if member is not None}


def _endpoint(config: Json) -> EndpointConfig:
    advanced = config.get("advanced", {})
    flags = values.feature_flags(advanced.get("feature_flags", ""))
    return EndpointConfig(
        namespace=config["namespace"],
        catalog=_catalog(config.get("catalog", {"catalog_type": catalog_schemas.GLUE})),
        upload_interval=values.upload_interval(config.get("upload_interval") or DEFAULT_UPLOAD_INTERVAL),
        credentials=_credentials(config.get("credentials", config), flags),
        bucket=config.get("bucket", ""),
        prefix=config.get("prefix", "").strip("/"),
        region=config.get("region", ""),
        s3_endpoint=config.get("s3_endpoint", ""),
        storage=_storage(config, flags),
        feature_flags=flags,
        spark=_settings(advanced, "spark"),
        max_waiting_commits=advanced.get("max_waiting_commits", DEFAULT_MAX_WAITING_COMMITS),
        max_waiting_bytes=advanced.get("max_waiting_bytes", DEFAULT_MAX_WAITING_BYTES),
    )


def _storage(config: Json, flags: frozenset[str]) -> Storage | None:
    uses_machine_s = values.MACHINE_CREDENTIALS in flags
    return storage_config.parse(config["storage"], uses_machine_s=uses_machine_s) if "storage" in config else None


def _credentials(keys: Json, flags: frozenset[str]) -> AwsCredentials | AwsRole | MachineCredentials | None:
    machine_s = MachineCredentials() if values.MACHINE_CREDENTIALS in flags else None
    own = _keys(keys) or machine_s
    if own and keys.get("auth_type") == credential_schemas.AWS_ROLE:
        name = keys.get("role_session_name") or DEFAULT_SESSION_NAME
        return AwsRole(keys["aws_role_arn"], own, keys.get("external_id", ""), name)
    return own


def _keys(keys: Json) -> AwsCredentials | None:
    # An access key has names of its own; a role's and the older form's are the same.
    access_key_id = keys.get("awsAccessKeyId") or keys.get("aws_access_key_id")
    secret_access_key = _secret(keys, "awsSecretAccessKey") or _secret(keys, "aws_secret_access_key")
    if not access_key_id or not secret_access_key:
        return None
    session_token = _secret(keys, "awsSessionToken") or _secret(keys, "aws_session_token")
    return AwsCredentials(access_key_id, secret_access_key, session_token)


def _catalog(catalog: Json) -> Catalog:
    match catalog["catalog_type"]:
        case catalog_schemas.REST:
            return RestCatalog(
                uri=catalog["uri"],
                warehouse=catalog["warehouse"],
                credential=_secret(catalog, "credential"),
                token=_secret(catalog, "token"),
                scope=catalog.get("scope", ""),
                oauth2_server_uri=catalog.get("oauth2_server_uri", ""),
                properties=_settings(catalog, "properties"),
            )
        case catalog_schemas.S3_TABLES:
            return S3TablesCatalog(catalog["table_bucket_arn"])
        case catalog_schemas.SQL:
            name = catalog.get("name") or DEFAULT_CATALOG_NAME
            return SqlCatalog(catalog["uri"], _secret(catalog, "password"), name)
        case catalog_schemas.HIVE:
            return HiveCatalog(catalog["uri"], _settings(catalog, "properties"))
        case catalog_schemas.LOCAL:
            directory = catalog.get("warehouse")
            return LocalCatalog(values.warehouse_directory(directory) if directory else None)
        case _:
            return GlueCatalog(catalog.get("glue_id", ""), _settings(catalog, "properties"))


def _secret(properties: Json, name: str) -> Secret | None:
    value = properties.get(name)
    return Secret(value) if value else None


def _settings(properties: Json, name: str) -> Settings:
    return tuple(properties.get(name, {}).items())


def _resource(resource: Json, default_evolution: str) -> ResourceConfig:
    return ResourceConfig(
        table=resource["table"],
        namespace=resource.get("namespace") or None,
        delta_updates=resource.get("delta_updates", True),
        additional_table_properties=_settings(resource, "additional_table_properties"),
        on_invalid=OnInvalid(resource.get("on_invalid", OnInvalid.STOP)),
        max_rejected_ratio=resource.get("max_rejected_ratio", DEFAULT_MAX_REJECTED_RATIO),
        schema_evolution=SchemaEvolution(resource.get("schema_evolution", default_evolution)),
    )
