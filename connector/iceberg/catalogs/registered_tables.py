"""Catalogs that keep only the address of a table's metadata. The client writes the metadata.

- A commit replaces only the metadata that its table was loaded with: this is the optimistic lock of these catalogs.
- A metadata file is written in one request. PyIceberg asks the store first whether the file exists. Its name is new, so
  it does not. S3 answers this question with 403 to users who may not list the whole bucket.
- Metadata is never dated before the metadata that it replaces. PyIceberg dates it by the machine's clock, unless there
  is a new snapshot. Iceberg's Java library reads no metadata that is a minute older than its newest snapshot.
- Snapshots are removed as in Iceberg's Java library. PyIceberg leaves gaps in the log of the table's snapshots, and
  takes their parents away from snapshots that stay.
- PyIceberg creates tables of older versions than 3 only. So the connector writes the first metadata file of others, and
  registers it as a new table. Later commits replace the metadata as in tables of version 2.
"""

import threading
import zlib
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from functools import partial
from gzip import BadGzipFile
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier

from connector.encoding.parquet.file_options import find_locations
from connector.iceberg.catalog_messages import DAMAGED_FILE, explain_unknown_type, read_message
from connector.storage import storage_errors
from connector.storage.file_access import FileCredentials, file_properties
from connector.storage.file_io import open_file_io, write_small_file

_VERSION_3: Final = "3"
# What PyIceberg's reader of metadata files raises.
_DAMAGED: Final = (InvalidMetadataError, EOFError, zlib.error, BadGzipFile, UnicodeDecodeError)


class CommitBase(threading.local):
    """The table to which the current thread commits, as it was loaded.

    PyIceberg loads the metadata again, applies the changes to what it finds, and copies all of it. With this, it finds
    the metadata that the table was loaded with. The commit is refused if the table has other metadata by now.
    """

    table: Table | None = None

    def commit(self, table: Table, send: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        """Send a commit that replaces the metadata of this table."""
        # Imported with the first commit: its classes are slow to make.
        from connector.iceberg.metadata.copied_metadata import share_parts, unshare_parts

        self.table = Table(table.name(), share_parts(table.metadata), table.metadata_location, table.io, table.catalog)
        try:
            response = send()
        finally:
            self.table = None
        metadata = unshare_parts(response.metadata)
        return CommitTableResponse(metadata=metadata, metadata_location=response.metadata_location)


class FixedColumns:
    """A catalog that refuses a column of another type in the place of an existing one."""


class RegisteredTables(MetastoreCatalog):
    """A catalog that can register metadata files, and that writes them without asking whether they exist."""

    _base = CommitBase()
    _credentials: FileCredentials

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. Raises InvalidMetadataError if its metadata file is damaged, or of a form that PyIceberg does
        not know."""
        try:
            return super().load_table(identifier)  # type: ignore[safe-super]
        except _DAMAGED as error:
            if explain_unknown_type(error):
                raise
            cause = error.__cause__ if isinstance(error.__cause__, ValidationError) else error
            raise InvalidMetadataError(f"{DAMAGED_FILE}: {type(error).__name__}: {read_message(cause).text}") from error

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: dict[str, str] = EMPTY_DICT,
    ) -> Table:
        """Create a table of the version that its properties name. TableAlreadyExistsError if there is one."""
        if properties.get(TableProperties.FORMAT_VERSION) != _VERSION_3:
            # PyIceberg's method of the catalog, which is another base of each subclass.
            return super().create_table(  # type: ignore[safe-super]
                identifier, schema, location, partition_spec, sort_order, properties
            )
        from connector.iceberg.metadata.copied_metadata import make_first_metadata  # slow to import, for new tables

        assert isinstance(schema, Schema)
        assert location, "the connector chooses it"
        metadata = make_first_metadata(
            new_table_metadata(schema, partition_spec, sort_order, location, dict(properties))
        )
        file = find_locations(location, metadata.properties).new_table_metadata_file_location()
        self._write_metadata(metadata, self._load_file_io(location=file), file)
        return self.register_table(identifier, file)

    def commit_table(self, table: Table, *args: Any, **kwargs: Any) -> CommitTableResponse:
        """Commit to the metadata that the table was loaded with. Raises CommitFailedException if it was replaced."""
        return self._base.commit(table, partial(super().commit_table, table, *args, **kwargs))  # type: ignore[safe-super]

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        if current_table:
            removed = {
                id_ for update in updates if isinstance(update, RemoveSnapshotsUpdate) for id_ in update.snapshot_ids
            }
            staged.metadata = _correct(current_table.metadata, staged.metadata, removed)
        return staged

    def _load_file_io(self, *_: Any, **__: Any) -> FileIO:
        # The table's properties must not decide how its files are reached, or by which code.
        return open_file_io(file_properties(self.properties, self._credentials()))

    @staticmethod
    def _delete_old_metadata(*_: object) -> None:
        """Delete nothing. PyIceberg would delete all files that the table's log named, and anyone who can commit to the
        table writes the log. The maintenance deletes them if they are the table's own."""

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        # As PyIceberg's ToOutputFile does, which also reads PyIceberg's own settings, each time.
        content = metadata.model_dump_json(exclude_none=True).encode()
        write_small_file(io, metadata_path, Compressor.get_compressor(metadata_path).bytes_compressor()(content))


def _correct(before: TableMetadata, after: TableMetadata, removed: Set[int]) -> TableMetadata:
    """Return the metadata that a commit makes, with a date that is not before the former one, and with the snapshots
    and their log as they have to be when snapshots are removed."""
    changes: dict[str, Any] = {}
    if after.last_updated_ms < before.last_updated_ms:
        changes["last_updated_ms"] = before.last_updated_ms
    if removed:
        unchanged = {snapshot.snapshot_id: snapshot for snapshot in before.snapshots}
        changes["snapshots"] = [unchanged.get(each.snapshot_id, each) for each in after.snapshots]
        changes["snapshot_log"] = after.snapshot_log[_count_before_gap(before, removed) :]
    return after.model_copy(update=changes) if changes else after


def _count_before_gap(metadata: TableMetadata, removed: Set[int]) -> int:
    """Return how many entries of the log stay before the last one that goes. They go, too: a query about the time of an
    expired snapshot would read an older one in its place."""
    staying = count = 0
    for entry in metadata.snapshot_log:
        if entry.snapshot_id in removed:
            count = staying
        else:
            staying += 1
    return count


class TablesInStore(RegisteredTables):
    """Translates the errors of the store that has the tables' metadata."""

    def load_table(self, identifier: str | Identifier) -> Table:
        with self._metadata_of(identifier):
            return super().load_table(identifier)

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        with self._metadata_of(identifier):
            return super().create_table(identifier, *args, **kwargs)

    def commit_table(self, table: Table, *args: Any, **kwargs: Any) -> CommitTableResponse:
        with self._metadata_of(table.name()):
            return super().commit_table(table, *args, **kwargs)

    def _metadata_of(self, identifier: str | Identifier) -> AbstractContextManager[None]:
        return storage_errors.translate_errors(
            f"the metadata of table {'.'.join(self.identifier_to_tuple(identifier))}"
        )
