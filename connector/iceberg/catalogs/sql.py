"""Catalogs in an SQL database: their tables in the Local and in the SQL catalog, and PostgreSQL."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from cachetools import FIFOCache
from pyiceberg.catalog import WAREHOUSE_LOCATION, Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from sqlalchemy import event, insert, not_, select
from sqlalchemy.dialects import registry
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from connector.config import catalog as catalog_config
from connector.host import machine
from connector.host.errors import NEW_TABLE, ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.iceberg.catalog_messages import first_line
from connector.iceberg.catalogs.registered_tables import RegisteredTables, TablesInStore
from connector.storage.file_access import FileCredentials
from connector.storage.file_io import RememberedFile, open_file_io

CATALOG_TABLES: Final = 2  # iceberg_tables, iceberg_namespace_properties
KEPT_SNAPSHOTS: Final = 2000  # of all tables together, in the metadata that is kept: 10 MB
DRIVER: Final = "postgresql+limited"
registry.register("postgresql.limited", "connector.iceberg.catalogs.sql_time_limits", "_TimeLimitedDialect")
STRICTEST: Final = "verify-full"
# For a server that stops answering, and for a gateway that forgets idle connections without a word.
TIME_LIMITS: Final = {
    "connect_timeout": "10",  # seconds
    "tcp_user_timeout": str(machine.UNACKNOWLEDGED),
    "keepalives_idle": str(machine.SILENCE),
    "keepalives_interval": str(machine.PROBE_PAUSE),
    "keepalives_count": str(machine.PROBES),
}


class SqlTables(RegisteredTables, SqlCatalog):
    """PyIceberg's catalog, but it finds the views that other engines keep in the same database, and a commit replaces
    only the metadata that its table was loaded with. Metadata that was written here is not read again."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        # The metadata that this process wrote last to each table, by its location, which is random.
        self._written: FIFOCache[str, TableMetadata] = FIFOCache(KEPT_SNAPSHOTS, lambda each: len(each.snapshots))
        self._lock = Lock()  # of the cache: commits to several tables run at the same time
        try:
            super().__init__(name, **properties)
        except BaseException:
            self.close()  # the caller has no reference to it
            raise

    def commit_table(self, table: Table, *args: Any, **kwargs: Any) -> CommitTableResponse:
        """Commit, and keep the metadata that was written instead of that which it has replaced."""
        response = super().commit_table(table, *args, **kwargs)
        with self._lock, suppress(ValueError):  # if it has more snapshots than may be kept
            self._written.pop(table.metadata_location, None)
            self._written[response.metadata_location] = response.metadata
        return response

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. Within a commit, this is the table that the caller has loaded."""
        return self._base.table or super().load_table(identifier)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location
        if location is None:
            return super()._convert_orm_to_iceberg(orm_table)  # it raises the error of a table without metadata
        with self._lock:
            written = self._written.get(location)
        metadata = written or self._read_metadata(location)
        name = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)

    def _read_metadata(self, location: str) -> TableMetadata:
        return FromInputFile.table_metadata(self._load_file_io(location=location).new_input(location))

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Whether a view has this name."""
        is_table = self._iceberg_type_filter()
        if is_table is None:  # an earlier version of PyIceberg has made the database's tables, which have no views
            return False
        namespace, name = self.identifier_to_tuple(identifier)
        named = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == namespace,
            IcebergTables.table_name == name,
            not_(is_table),
        )
        with Session(self.engine) as session:
            return session.scalar(named) is not None


class LocalTables(SqlTables):
    """The same for the Local catalog, with an error that explains a moved warehouse: Iceberg names files by absolute
    paths."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. Raises UserError if its metadata file is gone."""
        try:
            return super().load_table(identifier)
        except FileNotFoundError as error:
            where = self.properties[WAREHOUSE_LOCATION].removeprefix("file://")
            raise UserError(
                f"table {'.'.join(self.identifier_to_tuple(identifier))}: its metadata file is not there "
                f"({error.filename}). If the warehouse directory was moved, move it back, or make its "
                f"old path a symbolic link to {where}. Otherwise restore the file, or {NEW_TABLE}."
            ) from error

    def _load_file_io(self, *_: Any, **__: Any) -> FileIO:
        return open_file_io(self.properties)  # without those of the table

    def _read_metadata(self, location: str) -> TableMetadata:
        # Without PyArrow, which is slow to import: sessions open without it.
        address = urlsplit(location)
        content = Path(address.path if address.scheme else location).read_bytes()
        return FromInputFile.table_metadata(RememberedFile(location, [content]))


def sync_fully(catalog: SqlCatalog) -> None:
    """Let SQLite also write the directory to the disk. A commit ends with the deletion of a file, which would undo the
    commit if it came back after a loss of power."""

    def set_up(connection: DBAPIConnection, *_: object) -> None:
        connection.execute("PRAGMA synchronous = EXTRA")

    event.listen(catalog.engine, "checkout", set_up)


class _TablesOnS3(TablesInStore, SqlTables):
    """The same for tables whose files are in a store."""

    def __init__(self, credentials: FileCredentials, name: str, properties: Mapping[str, str]) -> None:
        self._credentials = credentials
        super().__init__(name, properties)

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        self.properties.update(self._credentials())  # PyIceberg reads them here
        return super().create_table(*args, **kwargs)


def open_with_retries(open_catalog: Callable[[], SqlTables]) -> SqlTables:
    """Open a catalog, and create its tables in the database if they do not exist."""
    # If two processes open a new catalog, the slower one may fail to create a table that exists by now: once per table.
    for _ in range(CATALOG_TABLES):
        try:
            return open_catalog()
        except (OperationalError, ProgrammingError, IntegrityError) as error:
            if "already exists" not in str(error.orig):
                raise
    return open_catalog()


def open_sql(
    catalog: catalog_config.SqlCatalog, file_addresses: Mapping[str, str], credentials: FileCredentials
) -> SqlTables:
    """Open a catalog in PostgreSQL."""
    # `pool_pre_ping` tries an idle connection before it is used: a restart of the server closes it.
    address = {"uri": _url(catalog).render_as_string(hide_password=False), "pool_pre_ping": "true"}
    return open_with_retries(partial(_TablesOnS3, credentials, catalog.name, {**address, **file_addresses}))


def try_to_write(catalog: Catalog) -> None:
    """Add a row for a table that does not exist, and roll back."""
    assert isinstance(catalog, SqlCatalog)
    row = {
        "catalog_name": catalog.name,
        "table_namespace": "",
        "table_name": f"materialize_iceberg_probe_{uuid4().hex}",
    }
    with catalog.engine.connect() as connection:
        connection.execute(insert(IcebergTables).values(row))
        connection.rollback()


def _url(catalog: catalog_config.SqlCatalog) -> URL:
    url = make_url(catalog.uri).set(drivername=DRIVER)
    if catalog.password:
        url = url.set(password=catalog.password.reveal())
    query = {**TIME_LIMITS, **url.query}
    # With `system`, libpq demands the strictest check, and looks for certificates where psycopg was built.
    if query.get("sslrootcert") == "system" and query.setdefault("sslmode", STRICTEST) == STRICTEST:
        query["sslrootcert"] = _find_certificates()
    return url.update_query_dict(query)


def _find_certificates() -> str:
    """Return the file with the certificates that the machine trusts."""
    import ssl

    from certifi import where

    return ssl.get_default_verify_paths().cafile or where()


def translate_errors(uri: str) -> AbstractContextManager[None]:
    """Translate the errors of using the database."""
    place = f"the SQL catalog at {uri}"
    return translate(
        SQL_ERRORS, lambda error: {"place": place, "kind": type(error).__name__, "answer": _read_answer(error)}
    )


def _read_answer(error: Exception) -> str:
    """Return the first line of the database's answer, without the SQL statement."""
    return first_line(str(error.orig)) if isinstance(error, DBAPIError) else ""


# What libpq and psycopg say of the value of a parameter, before they ask the server.
BAD_PARAMETER: Final = (
    "connection is bad: invalid",
    "connection is bad: weak sslmode",
    "invalid integer value",
    "definition of service",
    "bad value for",
)
# What it says of TLS that no further attempt gets. A connection that was broken off has other words.
NO_TLS: Final = (
    "does not support SSL",
    "certificate verify failed",
    "does not match host name",
    "certificate file",
    "private key file",
)

SQL_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(OperationalError, ProgrammingError, saying=BAD_PARAMETER, read=_read_answer),
        UserError,
        "{place} cannot be reached with these parameters: {answer}. Correct them in /catalog/uri.",
    ),
    Translation(
        is_a(ProgrammingError, InternalError),
        UserError,
        "{place} refuses this: {answer}. Allow the user to create tables in the database's schema, and to read and "
        "write iceberg_tables and iceberg_namespace_properties.",
    ),
    Translation(
        is_a(
            OperationalError,
            saying=("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied"),
            read=_read_answer,
        ),
        UserError,
        "{place} refuses the connection: {answer}. Check /catalog/uri and /catalog/password.",
    ),
    Translation(
        is_a(OperationalError, saying=NO_TLS, read=_read_answer),
        UserError,
        "{place} has no secure connection: {answer}. Check the parameters in /catalog/uri that begin with ssl, the "
        "files that they name, and whether the server has TLS.",
    ),
    Translation(
        is_a(OperationalError),
        RetryableError,
        "{place} cannot be reached: {answer}. Check that the server is up, that the network allows it, and "
        "/catalog/uri.",
    ),
    Translation(
        is_a(DBAPIError, PoolTimeoutError),
        RetryableError,
        "{place} is not able to answer now: {kind}.",
    ),
)
