"""Whether the place for data files can be used: tried with a file that means nothing."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from connector.config import EndpointConfig, LocalCatalog
from connector.iceberg.catalogs import explained, warehouse_of
from connector.iceberg.probe_object import CONTENT, NAMES_BEGIN, is_abandoned, new_name


def probe(config: EndpointConfig) -> None:
    """Write, read and delete a file there; an error says which of it fails, why, and what to do."""
    match config.catalog:
        case LocalCatalog() as catalog:
            with explained(config):
                _probe_directory(warehouse_of(catalog))
        case _:
            from connector.iceberg.s3_probe import probe_bucket  # boto3 is imported where it is wanted

            probe_bucket(config)


def _probe_directory(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / new_name()
    file.write_bytes(CONTENT)
    file.read_bytes()
    file.unlink()
    for other in directory.glob(f"{NAMES_BEGIN}*"):
        with suppress(OSError):  # another probe deletes it too
            if is_abandoned(other.name, datetime.fromtimestamp(other.stat().st_mtime, UTC)):
                other.unlink()
