"""The Local catalog: an SQLite file in its warehouse directory, which several processes may use at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.typedef import Identifier
from sqlalchemy import select
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.orm import Session

from connector.errors import RetryableError, UserError
from connector.iceberg.commit_base import CommitBase

CATALOG_NAME: Final = "local"
CATALOG_FILE: Final = "catalog.db"
BUSY_SECONDS: Final = 30  # how long SQLite waits for another process's write
CATALOG_TABLES: Final = 2  # iceberg_tables, iceberg_namespace_properties


class _LocalCatalog(SqlCatalog):
    """PyIceberg's, which passes over the views that other engines keep in the same file. A commit writes the new address
    only where it finds the one that its table was loaded from."""

    _base = CommitBase()

    def commit_table(self, table: Table, *args: Any, **kwargs: Any) -> CommitTableResponse:
        return self._base.commit(table, partial(super().commit_table, table, *args, **kwargs))

    def load_table(self, identifier: str | Identifier) -> Table:
        return self._base.table or super().load_table(identifier)

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Whether the name is a view's: to be asked where it is no table's."""
        namespace, name = self.identifier_to_tuple(identifier)
        named = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == name,
        )
        with Session(self.engine) as session:
            return session.scalar(named) is not None


def open_local(warehouse: Path, file_properties: dict[str, str]) -> SqlCatalog:
    warehouse.mkdir(parents=True, exist_ok=True)
    uri = URL.create("sqlite", database=str(warehouse / CATALOG_FILE), query={"timeout": str(BUSY_SECONDS)})
    properties = {"uri": uri.render_as_string(), "warehouse": f"file://{warehouse}", **file_properties}
    # Of two first opens the slower one finds that a table which was missing now exists: once for each table at most.
    for _ in range(CATALOG_TABLES):
        try:
            return _LocalCatalog(CATALOG_NAME, **properties)
        except OperationalError as error:
            if "already exists" not in str(error.orig):
                raise
    return _LocalCatalog(CATALOG_NAME, **properties)


@contextmanager
def explained(warehouse: Path) -> Iterator[None]:
    """Turn a catalog file that cannot be used into an error that says so."""
    try:
        yield
    except OperationalError as error:
        if "locked" in str(error.orig):
            raise RetryableError(
                f"the catalog {warehouse / CATALOG_FILE} was locked for {BUSY_SECONDS} seconds. "
                "Look for a process that holds a transaction on it open."
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
