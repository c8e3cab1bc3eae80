"""An endpoint config's catalog, opened; where its new tables are; and what the writers of their files need."""

import hashlib
import logging
import re
import tempfile
import threading
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)

from connector.config import EndpointConfig, GlueCatalog, LocalCatalog, RestCatalog, Settings
from connector.iceberg.file_access import FileAccess, access_to, file_properties
from connector.renewal import Renewed

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME: Final = threading.Lock()

READABLE_CHARACTERS: Final = 64
S3_TIME_LIMITS: Final = {S3_CONNECT_TIMEOUT: "10", S3_REQUEST_TIMEOUT: "60"}  # seconds; the library's own are 1 and 3


def open_catalog(config: EndpointConfig) -> Catalog:
    """The catalog, made from the config: PyIceberg's own environment variables and files have no say."""
    # Each catalog's client is imported when it is wanted: together they take a second and many megabytes.
    file_properties = data_file_properties(config)
    with explained(config):
        match config.catalog:
            case LocalCatalog() as catalog:
                from connector.iceberg.local_catalog import open_local

                return open_local(warehouse_of(catalog), file_properties)
            case RestCatalog() as catalog:
                from connector.iceberg.rest_catalog import open_rest

                return open_rest(catalog, file_properties)
            case GlueCatalog() as catalog:
                from connector.iceberg.glue_catalog import open_glue

                return open_glue(catalog, config.region, config.credentials, file_properties)


def explained(config: EndpointConfig) -> AbstractContextManager[None]:
    """For any use of the catalog but a commit: what its client raises becomes an error that says what to do."""
    match config.catalog:
        case LocalCatalog() as catalog:
            from connector.iceberg import local_catalog

            return local_catalog.explained(warehouse_of(catalog))
        case RestCatalog() as catalog:
            from connector.iceberg import rest_catalog

            return rest_catalog.explained(catalog)
        case GlueCatalog():
            from connector.iceberg import glue_catalog

            return glue_catalog.explained(config.region)


def data_file_properties(config: EndpointConfig) -> dict[str, str]:
    """What the config says of reading and writing files."""
    if isinstance(config.catalog, LocalCatalog):
        return file_properties()
    properties: dict[str, str] = dict(S3_TIME_LIMITS)
    if config.region:
        properties[S3_REGION] = config.region
    if config.s3_endpoint:
        # Stores other than Amazon's rarely have a host name for each bucket.
        properties |= {S3_ENDPOINT: config.s3_endpoint, S3_FORCE_VIRTUAL_ADDRESSING: "false"}
    if keys := config.credentials:
        properties |= {S3_ACCESS_KEY_ID: keys.access_key_id, S3_SECRET_ACCESS_KEY: keys.secret_access_key.reveal()}
        if keys.session_token:
            properties[S3_SESSION_TOKEN] = keys.session_token.reveal()
    return file_properties(properties, dict(config.catalog.properties))


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
    directory = Path(tempfile.mkdtemp(prefix="iceberg-warehouse-"))
    logger.warning("the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, %s", directory)
    return directory
