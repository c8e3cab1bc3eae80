"""The Local catalog: an SQLite file in its warehouse directory, which several processes may use at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, OperationalError

from connector.host.errors import RetryableError, UserError
from connector.iceberg.catalogs.sql import SqlTables, open_with_retries

CATALOG_NAME: Final = "local"
CATALOG_FILE: Final = "catalog.db"
BUSY_SECONDS: Final = 30  # how long SQLite waits for another process's write


class _LocalTables(SqlTables):
    """Iceberg names metadata files by absolute paths: after its directory was moved, a table's cannot be found."""

    def load_table(self, identifier: str | Identifier) -> Table:
        try:
            return super().load_table(identifier)
        except FileNotFoundError as error:
            reason = (error.strerror or str(error)).partition(". Detail")[0]
            where = self.properties[WAREHOUSE_LOCATION].removeprefix("file://")
            raise UserError(
                f"table {'.'.join(self.identifier_to_tuple(identifier))}: its metadata file is not there "
                f"({reason}). If the warehouse directory was moved, move it back, or make its "
                f"old path a symbolic link to {where}."
            ) from error


def open_local(warehouse: Path, file_properties: dict[str, str]) -> SqlCatalog:
    warehouse.mkdir(parents=True, exist_ok=True)
    uri = URL.create("sqlite", database=str(warehouse / CATALOG_FILE), query={"timeout": str(BUSY_SECONDS)})
    properties = {"uri": uri.render_as_string(), WAREHOUSE_LOCATION: f"file://{warehouse}", **file_properties}
    return open_with_retries(partial(_LocalTables, CATALOG_NAME, properties))


@contextmanager
def translate_errors(warehouse: Path) -> Iterator[None]:
    """Turn a catalog file that cannot be used into an error that says so."""
    try:
        yield
    except OperationalError as error:
        if "locked" in str(error.orig):
            raise RetryableError(
                f"the catalog {warehouse / CATALOG_FILE} was locked for {BUSY_SECONDS} seconds. "
                "Look for a process that holds a transaction on it open."
            ) from error
        if "full" in str(error.orig):
            raise RetryableError(
                f"the disk that holds the catalog {warehouse / CATALOG_FILE} is full. Make room there."
            ) from error
        raise _unusable(warehouse, str(error.orig)) from error
    except DatabaseError as error:
        raise _unusable(warehouse, str(error.orig)) from error
    except FileExistsError as error:
        raise _unusable(warehouse, "it is no directory") from error
    except OSError as error:
        raise _unusable(warehouse, error.strerror or str(error)) from error


def _unusable(warehouse: Path, reason: str) -> UserError:
    return UserError(
        f"the warehouse directory {warehouse} of the Local catalog cannot be used: {reason}. "
        "Change /catalog/warehouse, or the directory's permissions."
    )
