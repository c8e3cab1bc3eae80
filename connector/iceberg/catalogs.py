"""An endpoint config's catalog, opened; where its new tables are; and what the writers of their files need."""

import hashlib
import logging
import re
import tempfile
import threading
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.io import (
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
)

from connector.config import (
    EndpointConfig,
    GlueCatalog,
    LocalCatalog,
    RestCatalog,
    S3TablesCatalog,
    Settings,
    SqlCatalog,
)
from connector.iceberg.file_access import DEFAULT_REGION, FileAccess, FileKeys, access_to, file_properties
from connector.renewal import Renewed
from connector.scratch import making, temporary_directory

if TYPE_CHECKING:
    from connector.iceberg.aws_keys import AwsKeys

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME: Final = threading.Lock()

READABLE_CHARACTERS: Final = 64
S3_TABLES_SERVICE: Final = "s3tables"
S3_TIME_LIMITS: Final = {S3_CONNECT_TIMEOUT: "10", S3_REQUEST_TIMEOUT: "60"}  # seconds; the library's own are 1 and 3


def open_catalog(config: EndpointConfig) -> Catalog:
    """The catalog, made from the config: PyIceberg's own environment variables and files have no say."""
    # Each catalog's client is imported when it is wanted: together they take a second and many megabytes.
    addresses, keys = file_addresses(config), _aws_keys(config)
    with explained(config):
        match config.catalog:
            case LocalCatalog() as catalog:
                from connector.iceberg.local_catalog import open_local

                return open_local(warehouse_of(catalog), addresses)
            case RestCatalog() as catalog:
                from connector.iceberg.rest_catalog import open_rest

                return open_rest(catalog, addresses, keys=_file_keys(keys))
            case S3TablesCatalog() as catalog:
                from connector.iceberg.aws_signature import AwsSignature
                from connector.iceberg.rest_catalog import open_signed

                assert keys, "the config's check demands them"
                sign_in = AwsSignature(keys, catalog.region, S3_TABLES_SERVICE)
                return open_signed(catalog.uri, catalog.arn, sign_in, addresses, _file_keys(keys))
            case SqlCatalog() as catalog:
                from connector.iceberg.sql_catalog import open_sql

                return open_sql(catalog, addresses, _file_keys(keys))
            case GlueCatalog() as catalog:
                from connector.iceberg.glue_catalog import open_glue

                assert keys, "the config's check demands them"
                return open_glue(catalog, config.region, keys, addresses)


def explained(config: EndpointConfig) -> AbstractContextManager[None]:
    """For any use of the catalog but a commit: what its client raises becomes an error that says what to do."""
    match config.catalog:
        case LocalCatalog() as catalog:
            from connector.iceberg import local_catalog

            return local_catalog.explained(warehouse_of(catalog))
        case RestCatalog() as catalog:
            from connector.iceberg import rest_catalog

            return rest_catalog.explained(catalog.uri, rest_catalog.secrets_of(catalog))
        case S3TablesCatalog() as catalog:
            from connector.iceberg import rest_catalog

            return rest_catalog.explained(catalog.uri, ())
        case SqlCatalog() as catalog:
            from connector.iceberg import sql_catalog

            return sql_catalog.explained(catalog.uri)
        case GlueCatalog():
            from connector.iceberg import glue_catalog

            return glue_catalog.explained(config.region)


def data_file_properties(config: EndpointConfig) -> dict[str, str]:
    """What the config says of reading and writing files, with keys that hold now."""
    return file_properties(file_addresses(config), _file_keys(_aws_keys(config))())


def file_addresses(config: EndpointConfig) -> dict[str, str]:
    """The same without keys."""
    region = config.region
    further: dict[str, str] = {}
    match config.catalog:
        case LocalCatalog():
            return file_properties()
        case S3TablesCatalog() as catalog:
            region = catalog.region
        case RestCatalog() | GlueCatalog() as catalog:
            further = dict(catalog.properties)
    properties: dict[str, str] = dict(S3_TIME_LIMITS)
    if region:
        properties[S3_REGION] = region
    if config.s3_endpoint:
        # Stores other than Amazon's rarely have a host name for each bucket.
        properties |= {S3_ENDPOINT: config.s3_endpoint, S3_FORCE_VIRTUAL_ADDRESSING: "false"}
    return file_properties(properties, further)


def _file_keys(keys: "AwsKeys | None") -> FileKeys:
    if keys is None:
        return dict
    from connector.iceberg.aws_keys import file_keys

    return partial(file_keys, keys)


def _aws_keys(config: EndpointConfig) -> "AwsKeys | None":
    if config.credentials is None or isinstance(config.catalog, LocalCatalog):
        return None
    from connector.iceberg.aws_keys import aws_keys

    region = config.catalog.region if isinstance(config.catalog, S3TablesCatalog) else config.region
    return aws_keys(config.credentials, region or DEFAULT_REGION)


def renewed_access(
    catalog: Catalog, config: EndpointConfig, path: tuple[str, str], first: FileAccess
) -> Renewed[Settings]:
    """What opens a table's files, for as long as a session lasts."""

    def load() -> FileAccess:
        with explained(config):
            return access_to(catalog.load_table(path))

    return Renewed(f"the keys for the files of table {'.'.join(path)}", load, first)


def table_location(config: EndpointConfig, path: tuple[str, str]) -> str | None:
    """Where a new table's files go; None leaves it to the catalog."""
    match config.catalog:
        case LocalCatalog() as catalog:
            root = f"file://{warehouse_of(catalog)}"
        case S3TablesCatalog():
            return None
        case _ if config.bucket:
            root = f"s3://{config.bucket}"
        case _:
            return None
    namespace, table = path
    parts = (root, config.prefix, _namespace_directory(namespace), _with_digest(table))
    return "/".join(filter(None, parts))


def _namespace_directory(namespace: str) -> str:
    # Two namespaces that read alike must not share a directory: their tables may have the same name.
    return namespace if _readable(namespace) == namespace else _with_digest(namespace)


def _with_digest(name: str) -> str:
    return f"{_readable(name)}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _readable(name: str) -> str:
    return re.sub("[^-_0-9a-zA-Z]", "_", name)[:READABLE_CHARACTERS]


def warehouse_of(catalog: LocalCatalog) -> Path:
    """Its directory, whether it exists or not."""
    with _ONE_AT_A_TIME:  # several threads may be the first to ask
        return catalog.warehouse or _temporary_warehouse()


@cache
def _temporary_warehouse() -> Path:
    """One directory for the whole process: what one request creates, the next must find."""
    parent = temporary_directory()
    with making(f"directory in {parent}"):
        directory = Path(tempfile.mkdtemp(prefix="iceberg-warehouse-", dir=parent))
    logger.warning("the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, %s", directory)
    return directory
