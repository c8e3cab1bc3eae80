"""The catalogs, as a config names them."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from connector.config import catalog_schemas
from connector.config.catalog_schemas import DEFAULT_CATALOG_NAME
from connector.config.secret import Secret
from connector.config.values import secret, settings, warehouse_directory
from connector.model.properties import Properties
from protocol.flow import Json


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
    properties: Properties = field(default_factory=Properties, repr=False)


@dataclass(frozen=True)
class GlueCatalog:
    """The Glue Data Catalog of the account `glue_id`, or of the credentials' own."""

    glue_id: str = ""
    # A proxy's address may hold a password.
    properties: Properties = field(default_factory=Properties, repr=False)


@dataclass(frozen=True)
class S3TablesCatalog:
    """A table bucket of Amazon S3 Tables."""

    arn: str

    @property
    def region(self) -> str:
        return self.arn.split(":")[3]

    @property
    def uri(self) -> str:
        # AWS's own tools read the same variable: another address than Amazon's.
        address = os.environ.get("AWS_ENDPOINT_URL_S3TABLES") or f"https://s3tables.{self.region}.amazonaws.com"
        return f"{address}/iceberg"


@dataclass(frozen=True)
class LocalCatalog:
    """A catalog and its tables in one directory; without one, in a temporary directory."""

    warehouse: Path | None = None


@dataclass(frozen=True)
class SqlCatalog:
    """A catalog in a PostgreSQL database, where its name tells its rows from other catalogs'."""

    uri: str  # without a password
    password: Secret | None = None
    name: str = DEFAULT_CATALOG_NAME


@dataclass(frozen=True)
class HiveCatalog:
    """Hive's metastore."""

    uri: str  # of one server, or of several that have the same tables
    properties: Properties = field(default_factory=Properties, repr=False)


Catalog: TypeAlias = RestCatalog | GlueCatalog | S3TablesCatalog | SqlCatalog | HiveCatalog | LocalCatalog


def parse(catalog: Json) -> Catalog:
    match catalog["catalog_type"]:
        case catalog_schemas.REST:
            return RestCatalog(
                uri=catalog["uri"],
                warehouse=catalog["warehouse"],
                credential=secret(catalog, "credential"),
                token=secret(catalog, "token"),
                scope=catalog.get("scope", ""),
                oauth2_server_uri=catalog.get("oauth2_server_uri", ""),
                properties=settings(catalog, "properties"),
            )
        case catalog_schemas.S3_TABLES:
            return S3TablesCatalog(catalog["table_bucket_arn"])
        case catalog_schemas.SQL:
            name = catalog.get("name") or DEFAULT_CATALOG_NAME
            return SqlCatalog(catalog["uri"], secret(catalog, "password"), name)
        case catalog_schemas.HIVE:
            return HiveCatalog(catalog["uri"], settings(catalog, "properties"))
        case catalog_schemas.LOCAL:
            directory = catalog.get("warehouse")
            return LocalCatalog(warehouse_directory(directory) if directory else None)
        case _:
            return GlueCatalog(catalog.get("glue_id", ""), settings(catalog, "properties"))
