"""Hive's metastore as a catalog. It keeps the address of a table's metadata. The address is changed under a lock, and
only if it is the expected one."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from hive_metastore.ttypes import EnvironmentContext
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import EXTERNAL_TABLE, ICEBERG, METADATA_LOCATION, TABLE_TYPE
from pyiceberg.catalog.hive import (
    DO_NOT_UPDATE_STATS,
    HIVE2_COMPATIBLE,
    HiveCatalog,
    _construct_hive_storage_descriptor,
    _construct_parameters,
)
from pyiceberg.exceptions import CommitFailedException, NoSuchIcebergTableError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from connector.config import catalog as catalog_config
from connector.config.catalog_properties import HIVE_PROPERTIES, HIVE_USER
from connector.host.errors import UserError
from connector.iceberg.catalogs.hive_lock import AGENT, hold_lock
from connector.iceberg.catalogs.metastore import (
    TIME_LIMITS,
    Connections,
    MetastoreError,
    MetastoreRefusalError,
    MetastoreTimeLimits,
)
from connector.iceberg.catalogs.registered_tables import FixedColumns, RegisteredTables
from connector.model.table_identifier import TableIdentifier
from connector.storage import storage_errors
from connector.storage.file_access import FileCredentials

LONGEST_COMMENT: Final = 255  # characters, of a column
NOWHERE: Final = "the address of no metadata"


class _HiveCatalog(RegisteredTables, HiveCatalog, FixedColumns):
    """PyIceberg's catalog, but the metastore changes a table only if it still has the metadata that it was loaded with.
    The lock does not ensure that: it may be lost without its holder knowing."""

    def __init__(self, connections: Connections, credentials: FileCredentials, properties: Mapping[str, str]) -> None:
        super().__init__("hive", **properties)
        self._connections = connections
        self._client = cast(Any, connections)  # replaces PyIceberg's
        self._credentials = credentials
        self._compares = False  # True once the metastore has shown that it compares

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        table = super().create_table(identifier, *args, **kwargs)
        try:
            with self._connections as client:
                self._demand_comparison(client, self._get_hive_table(client, *self._path(table)))
        except UserError:
            self.drop_table(identifier)
            raise
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        return self._base.commit(table, partial(self._commit, requirements, updates))

    def view_exists(self, identifier: str | Identifier) -> bool:  # noqa: ARG002  # the signature is PyIceberg's
        return False  # Hive's views are tables of another kind, which load_table refuses

    def _commit(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        base = self._base.table
        assert base
        path = self._path(base)
        # Written before the lock is taken, since others may wait for the lock.
        staged = self._update_and_stage_table(base, base.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        with self._connections as client, hold_lock(self._connections, client, path):
            current = self._get_hive_table(client, *path)
            if current.parameters.get(METADATA_LOCATION) != base.metadata_location:
                raise CommitFailedException(f"table {path} has been changed since it was loaded")
            self._demand_comparison(client, current)
            removed = base.properties.keys() - staged.properties.keys()
            kept = {name: value for name, value in current.parameters.items() if name not in removed}
            written = _construct_parameters(staged.metadata_location, base.metadata_location, staged.properties)
            current.parameters = kept | written
            current.sd = self._columns(staged)
            _alter(client, current, expected=base.metadata_location)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _demand_comparison(self, client: Any, table: HiveTable) -> None:
        """Raise UserError if the metastore changes a table whose metadata is not the expected one. It is tried once,
        with a change that changes nothing and expects wrong metadata."""
        if self._compares:
            return
        try:
            _alter(client, table, expected=NOWHERE)
        except CommitFailedException:
            self._compares = True
            return
        raise UserError(
            "the Hive metastore does not check whether another process has changed a table before it changes the "
            "table: rows could be lost. Use Hive 2.3.10, or 4.0 or newer, which check this (HIVE-26882)."
        )

    def _columns(self, table: Table) -> Any:
        # Hive 2 creates a table with types that it does not know, but then refuses all changes of this table.
        is_hive2 = self.properties.get(HIVE2_COMPATIBLE, "true").lower() == "true"
        descriptor = _construct_hive_storage_descriptor(table.schema(), table.location(), is_hive2)
        for column in descriptor.cols:
            column.comment = column.comment and column.comment[:LONGEST_COMMENT]
        return descriptor

    @staticmethod
    def _path(table: Table) -> TableIdentifier:
        database, name = table.name()
        return TableIdentifier(database, name)

    def _convert_iceberg_into_hive(self, table: Table) -> HiveTable:
        database, name = self._path(table)
        now = int(time.time())
        return HiveTable(
            dbName=database,
            tableName=name,
            owner=self.properties.get(HIVE_USER, AGENT).partition(":")[0],
            createTime=now,
            lastAccessTime=now,
            sd=self._columns(table),
            tableType=EXTERNAL_TABLE,
            parameters=_construct_parameters(table.metadata_location, metadata_properties=table.properties),
        )

    def _convert_hive_into_iceberg(self, table: HiveTable) -> Table:
        name = f"{table.dbName}.{table.tableName}"
        if table.parameters.get(TABLE_TYPE, "").lower() != ICEBERG:
            raise NoSuchIcebergTableError(f"{name} is no Iceberg table")
        with storage_errors.translate_errors(f"the metadata of table {name}"):
            return super()._convert_hive_into_iceberg(table)

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        with storage_errors.translate_errors(metadata_path):
            RegisteredTables._write_metadata(metadata, io, metadata_path)


def _alter(client: Any, table: HiveTable, expected: str) -> None:
    """Change the table if the expected address is the address of its metadata."""
    context = {
        DO_NOT_UPDATE_STATS: "true",
        "expected_parameter_key": METADATA_LOCATION,
        "expected_parameter_value": expected,
    }
    name = f"{table.dbName}.{table.tableName}"
    try:
        client.alter_table_with_environment_context(
            table.dbName, table.tableName, table, EnvironmentContext(properties=context)
        )
    except MetastoreRefusalError as error:
        if "doesn't exist" in str(error):
            raise NoSuchTableError(f"there is no table {name}") from error
        raise UserError(
            f"table {name}: the Hive metastore refuses the change: {' '.join(str(error).split())}. If this is about "
            "the types of columns, set hive.metastore.disallow.incompatible.col.type.changes to false there."
        ) from error
    except MetastoreError as error:
        if "has been modified" in str(error):
            raise CommitFailedException(f"table {name} has been changed since it was loaded") from error
        raise


def open_hive(
    catalog: catalog_config.HiveCatalog,
    file_addresses: Mapping[str, str],
    credentials: FileCredentials,
    limits: MetastoreTimeLimits = TIME_LIMITS,
) -> HiveCatalog:
    """Open the catalog. This sends no request."""
    settings = {name: value for name, value in catalog.properties.items() if name in HIVE_PROPERTIES}
    connections = Connections(catalog.uri.split(","), settings.get(HIVE_USER, ""), limits)
    return _HiveCatalog(connections, credentials, {**file_addresses, **settings, "uri": catalog.uri})
