"""Whether the place for data files can be used, tried with a file of no meaning."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from connector.checks.steps import Skipped
from connector.config.catalog import LocalCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.iceberg.catalogs.opening import translate_errors, warehouse_of
from connector.storage import file_stores
from connector.storage.file_access import file_properties, has_sign_in
from connector.storage.probe_object import CONTENT, NAME_PREFIX, is_abandoned, new_name


def probe(config: EndpointConfig, properties: Mapping[str, str]) -> str | Skipped:
    """Write, read and delete a file, and return where; an error says which of these fails, why, and what to do.

    `properties` are FileIO properties, some of which the catalog may have got from its server.
    """
    if isinstance(config.catalog, LocalCatalog):
        directory = warehouse_of(config.catalog)
        with translate_errors(config):
            _probe_directory(directory)
        return str(directory)
    file_access = file_properties(properties)
    root = file_stores.root(config)
    if root is None or not has_sign_in(urlsplit(root).scheme, file_access):
        return Skipped("the catalog gives each table its place or its keys")
    if config.storage:
        from connector.storage.file_probe import probe_location  # PyArrow is imported where it is wanted

        probe_location(root, file_access)
    else:
        from connector.storage.s3_probe import probe_bucket  # boto3 too

        probe_bucket(config.bucket, config.prefix, file_access)
    return root


def _probe_directory(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / new_name()
    file.write_bytes(CONTENT)
    file.read_bytes()
    file.unlink()
    for other in directory.glob(f"{NAME_PREFIX}*"):
        with suppress(OSError):  # another probe deletes it too
            if is_abandoned(other.name, datetime.fromtimestamp(other.stat().st_mtime, UTC)):
                other.unlink()
