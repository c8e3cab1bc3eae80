"""The Local catalog: an SQLite file in its warehouse directory. Several processes may use it at the same time."""

import os
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, OperationalError

from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, is_of_full_disk, translate
from connector.iceberg.catalogs.sql import LocalTables, open_with_retries, sync_fully

CATALOG_NAME: Final = "local"
CATALOG_FILE: Final = "catalog.db"
NO_WAREHOUSE: Final = (
    "the config has no /catalog/warehouse, so its Local catalog was a temporary directory. Set /catalog/warehouse to "
    "the directory that has the tables."
)
BUSY_SECONDS: Final = 30  # how long SQLite waits for another process's write


def open_local(warehouse: Path, file_addresses: dict[str, str]) -> SqlCatalog:
    """Open the catalog, and make its directory and its file if they do not exist."""
    warehouse.mkdir(parents=True, exist_ok=True)
    uri = URL.create("sqlite", database=str(warehouse / CATALOG_FILE), query={"timeout": str(BUSY_SECONDS)})
    catalog = open_with_retries(partial(_open, uri, warehouse, file_addresses))
    if _can_be_synced(warehouse):  # otherwise SQLite could not do it either, and each commit would be an error
        sync_fully(catalog)
    return catalog


def _can_be_synced(directory: Path) -> bool:
    """Whether the system writes the entries of a directory to the disk: some disks of the network refuse it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def open_empty(warehouse: Path, file_addresses: dict[str, str]) -> SqlCatalog:
    """Open an empty catalog in memory instead of one that does not exist in this directory."""
    # All connections share this database in memory. It is gone with the last of them.
    uri = URL.create("sqlite", database=f"file:/{uuid4().hex}", query={"vfs": "memdb", "uri": "true"})
    return _open(uri, warehouse, file_addresses)


def _open(uri: URL, warehouse: Path, file_addresses: dict[str, str]) -> LocalTables:
    properties = {"uri": uri.render_as_string(), WAREHOUSE_LOCATION: f"file://{warehouse}", **file_addresses}
    return LocalTables(CATALOG_NAME, properties)


def exists(warehouse: Path) -> bool:
    """Whether the directory has a catalog."""
    with translate_errors(warehouse):
        return (warehouse / CATALOG_FILE).exists()


def check_that_it_exists(warehouse: Path | None) -> None:
    """Raise UserError if the directory has no catalog."""
    if warehouse is None:
        raise UserError(NO_WAREHOUSE)
    if not exists(warehouse):
        raise UserError(
            f"there is no Local catalog in {warehouse}: it has no file {CATALOG_FILE}. Correct /catalog/warehouse. "
            "If it is right, publish the task first: that makes the catalog."
        )


def translate_errors(warehouse: Path) -> AbstractContextManager[None]:
    """Translate the errors of using the catalog file."""

    def read_facts(error: Exception) -> dict[str, object]:
        file = warehouse / CATALOG_FILE
        return {"warehouse": warehouse, "file": file, "seconds": BUSY_SECONDS, "reason": _read_reason(error)}

    return translate(LOCAL_ERRORS, read_facts)


def _read_reason(error: Exception) -> str:
    match error:
        case DatabaseError():
            return str(error.orig)
        case FileExistsError() | NotADirectoryError():
            return "it is not a directory"
        case OSError():
            return error.strerror or str(error)
    return str(error)


FULL_DISK: Final = "the disk that holds the catalog {file} is full. Make room there."

LOCAL_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(OperationalError, saying=("locked",), read=_read_reason),
        RetryableError,
        "the catalog {file} was locked for {seconds} seconds. Look for a process that holds a transaction on it open.",
    ),
    Translation(is_a(OperationalError, saying=("full",), read=_read_reason), RetryableError, FULL_DISK),
    Translation(is_of_full_disk, RetryableError, FULL_DISK),
    Translation(
        is_a(DatabaseError, OSError),
        UserError,
        "the warehouse directory {warehouse} of the Local catalog cannot be used: {reason}. Change "
        "/catalog/warehouse, or the directory's permissions.",
    ),
)
