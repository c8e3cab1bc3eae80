"""The catalogs that a config can choose, and the names of namespaces and tables that each one accepts."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from connector.config.addresses import (
    parse_http_address,
    parse_metastores,
    parse_postgresql_address,
    parse_server_address,
)
from connector.config.catalog_properties import (
    AUTH_TYPE,
    FILE_PROPERTIES,
    GLUE_PROPERTIES,
    GOOGLE_AUTH,
    HIVE_PROPERTIES,
    REST_PROPERTIES,
    properties_setting,
)
from connector.config.definition import Definition, Setting
from connector.config.secret import Secret
from connector.config.values import (
    HTTP_ADDRESS,
    LONGEST_NAME,
    METASTORES,
    POSTGRESQL,
    TABLE_BUCKET_ARN,
    parse_bearer_token,
    parse_catalog_name,
    parse_client_credential,
    parse_directory,
    parse_service_account,
)
from connector.model.properties import Properties

CATALOG_TYPE: Final = "catalog_type"
REST: Final = "Iceberg REST Server"
GLUE: Final = "AWS Glue"
S3_TABLES: Final = "Amazon S3 Tables"
SQL: Final = "SQL"
HIVE: Final = "Hive Metastore"
LOCAL: Final = "Local"

# The address that Cloudflare documents for its catalog, and a part of the one by which the public connector knows it.
R2_CATALOGS: Final = ("://catalog.cloudflarestorage.com/", "r2.cloudflarestorage.com")
R2_PREFIX: Final = "__r2_data_catalog"


class RestCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=REST):
    """An Iceberg REST catalog."""

    title: ClassVar[str] = "REST"

    uri: Annotated[
        str,
        Setting(
            "URI",
            "The address of the catalog, such as https://yourserver.com/catalog.",
            pattern=HTTP_ADDRESS,
            min_length=1,
            parse=parse_server_address,
        ),
    ]
    warehouse: Annotated[
        str,
        Setting("Warehouse", "The name that the catalog gives to the warehouse. Not needed if it has only one."),
    ] = ""
    credential: Annotated[
        Secret | None,
        Setting(
            "Credential",
            "The credential of an OAuth2 client, as client_id:client_secret, or only the secret if it has no ID.",
            parse=parse_client_credential,
        ),
    ] = None
    token: Annotated[
        Secret | None,
        Setting(
            "Token",
            "A bearer token, for catalogs that do not accept a credential. It is not used if there is a credential.",
            is_multiline=True,
            parse=parse_bearer_token,
        ),
    ] = None
    scope: Annotated[
        str, Setting("Scope", "The OAuth2 scope to request with the credential. The default is `catalog`.")
    ] = ""
    oauth2_server_uri: Annotated[
        str,
        Setting(
            "OAuth2 Server URI",
            "The address of the server that issues tokens for the credential. The default is the catalog itself.",
            pattern=HTTP_ADDRESS,
            parse=parse_http_address,
        ),
    ] = ""
    service_account: Annotated[
        Secret | None,
        Setting(
            "Google Service Account JSON",
            "The JSON key of a service account that may use the catalog, for catalogs of Google, such as BigLake.",
            is_multiline=True,
            parse=parse_service_account,
        ),
    ] = msgspec.field(name="service_account_json", default=None)
    properties: Annotated[Properties, properties_setting(REST_PROPERTIES, FILE_PROPERTIES, has_headers=True)] = (
        Properties()
    )

    @property
    def is_r2(self) -> bool:
        """Whether it is the catalog of Cloudflare R2, which refuses tables outside of `R2_PREFIX`."""
        return any(address in self.uri for address in R2_CATALOGS)

    @property
    def is_biglake(self) -> bool:
        """Whether it is Google's BigLake, which refuses tables at locations that it has not chosen itself."""
        host = urlsplit(self.uri).hostname or ""
        return host.startswith("biglake") and host.endswith(".googleapis.com")

    @property
    def has_google_sign_in(self) -> bool:
        """Whether requests have tokens of Google: those of the service account, or else this machine's."""
        return self.service_account is not None or self.properties.get(AUTH_TYPE) == GOOGLE_AUTH


class GlueCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=GLUE):
    """The Glue Data Catalog of an AWS account."""

    title: ClassVar[str] = "AWS Glue"

    glue_id: Annotated[
        str,
        Setting(
            "Glue Catalog ID",
            "The AWS account of the Glue Data Catalog. The default is the account of the credentials.",
        ),
    ] = ""
    properties: Annotated[Properties, properties_setting(GLUE_PROPERTIES, FILE_PROPERTIES)] = Properties()


class S3TablesCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=S3_TABLES):
    """A table bucket of Amazon S3 Tables."""

    title: ClassVar[str] = "Amazon S3 Tables"

    arn: Annotated[
        str,
        Setting(
            "Table Bucket ARN",
            "The table bucket, such as arn:aws:s3tables:us-east-1:123456789012:bucket/lake.",
            pattern=TABLE_BUCKET_ARN,
        ),
    ] = msgspec.field(name="table_bucket_arn")

    @property
    def region(self) -> str:
        """The region of the table bucket, from its ARN."""
        return self.arn.split(":")[3]

    @property
    def uri(self) -> str:
        """The address of Amazon's REST catalog for table buckets."""
        # AWS's own tools read the same variable. It replaces Amazon's address.
        address = os.environ.get("AWS_ENDPOINT_URL_S3TABLES") or f"https://s3tables.{self.region}.amazonaws.com"
        return f"{address}/iceberg"


class SqlCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=SQL):
    """A catalog in a PostgreSQL database. Its name separates its rows from those of other catalogs there."""

    title: ClassVar[str] = "SQL"
    description: ClassVar[str] = "A catalog in a PostgreSQL database, with the same tables as PyIceberg's SqlCatalog."

    uri: Annotated[
        str,
        Setting(
            "URI",
            "The database, such as postgresql://user@host:5432/lake.",
            pattern=POSTGRESQL,
            parse=parse_postgresql_address,
        ),
    ]
    password: Annotated[Secret | None, Setting("Password", "The password of the user.")] = None
    name: Annotated[
        str,
        Setting(
            "Catalog Name",
            "The name of the catalog. One database can hold several catalogs.",
            parse=parse_catalog_name,
        ),
    ] = "iceberg"


class HiveCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=HIVE):
    """A Hive metastore: one server, or several that have the same tables."""

    title: ClassVar[str] = "Hive"
    description: ClassVar[str] = "A Hive metastore of version 2.3.10, or of version 4.0 or newer."

    uri: Annotated[
        str,
        Setting(
            "URI",
            "The address of the metastore, such as thrift://metastore:9083. Separate several addresses by commas.",
            pattern=METASTORES,
            parse=parse_metastores,
        ),
    ]
    properties: Annotated[Properties, properties_setting(HIVE_PROPERTIES, FILE_PROPERTIES)] = Properties()


class LocalCatalog(Definition, frozen=True, tag_field=CATALOG_TYPE, tag=LOCAL):
    """A catalog and its tables in one directory, or in a temporary directory."""

    title: ClassVar[str] = "Local"
    description: ClassVar[str] = "A catalog and its tables in a directory of the machine that runs the connector."

    warehouse: Annotated[
        Path | None,
        Setting(
            "Warehouse Directory",
            "The directory. It is created if it does not exist. The default is a temporary directory that only one "
            "process uses.",
            parse=parse_directory,
        ),
    ] = None


Catalog: TypeAlias = RestCatalog | GlueCatalog | S3TablesCatalog | SqlCatalog | HiveCatalog | LocalCatalog

ANYWHERE: Final = (r"[^\x00-\x1f\x7f]*", "must not contain line breaks, tabs or other control characters")

# The further demands of some catalogs.
DEMANDS: Final[Mapping[str, tuple[str, str]]] = {
    # Names are parts of paths. Web servers refuse these characters there, even if they are quoted.
    REST: (r"[^/\\%]*", r"must not contain /, \ or %, which the servers of REST catalogs refuse"),
    HIVE: (
        "[0-9a-z_]{1,128}",
        "must have at most 128 characters, all of them letters without accents, digits or underscores: Hive accepts "
        "no other name",
    ),
    S3_TABLES: (
        "[0-9a-z]([0-9a-z_]*[0-9a-z])?",
        "must consist of letters, digits and underscores, and begin and end with a letter or digit: Amazon S3 Tables "
        "accepts no other name",
    ),
}


def check_name(catalog_type: Any, text: str) -> None:
    """Check the name of a namespace or a table. Raises a ValueError that says what it must be."""
    name = text.lower()  # the demands that name letters are of catalogs that have names in lower case only
    if not name.strip():
        raise ValueError("must not be blank")
    if name != name.strip():
        raise ValueError("must not begin or end with white space")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"must not be longer than {LONGEST_NAME} characters")
    further = DEMANDS.get(catalog_type, ANYWHERE) if isinstance(catalog_type, str) else ANYWHERE
    for pattern, demand in (ANYWHERE, further):
        if not re.fullmatch(pattern, name):
            raise ValueError(demand)
