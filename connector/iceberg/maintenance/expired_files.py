"""Finds and deletes the files to which only expired snapshots referred."""

import logging
from collections import deque
from collections.abc import Sequence
from posixpath import basename

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connector.host import facts
from connector.host.facts import EXPIRE_SNAPSHOTS, MaintainedFiles
from connector.host.interruption import NEVER, Interruption
from connector.iceberg.metadata.old_metadata import find_stale_metadata, must_delete_old_metadata
from connector.iceberg.metadata.retention import may_delete_files
from connector.iceberg.metadata.snapshot_files import find_free, find_unreachable, list_snapshot_ids
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import delete_each, keep_io_fresh

log = logging.getLogger(__name__)


def find_expired_files(before: TableMetadata, after: Table, interruption: Interruption) -> Sequence[str]:
    """Return the files to which only the removed snapshots referred, and old metadata files; none if they must stay."""
    if not may_delete_files(after):
        return ()
    locations = find_unreachable(before, after, interruption)
    if must_delete_old_metadata(TableIdentifier.of(after), after.catalog, after.properties):
        locations += find_stale_metadata(after)
    return locations


class ExpiredFiles:
    """The files of snapshots that were removed from one table. Nothing but this object says which files these are."""

    def __init__(self, before: TableMetadata, after: Table) -> None:
        """`before` is the table's metadata before the commit, `after` the table that was loaded after it."""
        self._expiry: tuple[TableMetadata, Table] | None = (before, after)  # until the files are found
        self._uuid = before.table_uuid
        self._kept = list_snapshot_ids(after.metadata)
        self._last_number = 0 if before.format_version == 1 else before.last_sequence_number
        self._path, self._catalog = TableIdentifier.of(after), after.catalog
        self._loaded: Table | None = after
        self._left: list[str] = []
        self.deleted = 0

    def delete(self, interruption: Interruption = NEVER) -> None:
        """Delete the files that are left. Raises the first error, after the other files were deleted. Another call goes
        on with what is left then. InterruptedMaintenanceError if interrupted."""
        is_first = self._loaded is not None
        try:
            table, self._loaded = self._loaded or self._load(), None  # a later call needs other credentials
        except NoSuchTableError:
            self._left = []
            return
        if self._expiry:
            before, after = self._expiry
            after = Table(after.name(), after.metadata, after.metadata_location, table.io, after.catalog)
            try:
                self._left = sorted(find_expired_files(before, after, interruption))
            except FileNotFoundError:  # a snapshot that stays lacks its list, so nothing says which files it needs
                self._expiry = None
                raise
            self._expiry = None
        if not is_first:
            self._left = self._keep_free(table, interruption)
        find_io = keep_io_fresh(self._path, table, self._load)
        found = len(self._left)
        self._left, failure = delete_each(find_io, self._left, interruption)
        if found:
            facts.report(MaintainedFiles(str(self._path), EXPIRE_SNAPSHOTS, found - len(self._left)))
        self.deleted += found - len(self._left)
        if failure:
            raise failure

    def _keep_free(self, table: Table, interruption: Interruption) -> list[str]:
        """Return those of the files that are left that may still be deleted. A person may have restored an older copy
        of the table meanwhile, with snapshots of this expiry or of earlier ones."""
        if not may_delete_files(table):
            return []
        if not self._may_be_restored(table):
            return self._left
        try:
            free = find_free(table, map(basename, self._left), interruption)
        except FileNotFoundError:  # the copy lacks files, so nothing says which others it needs
            return []
        return [location for location in self._left if basename(location) in free]

    def _may_be_restored(self, table: Table) -> bool:
        """Whether the table has a snapshot that it had not after this expiry, and that is no newer one."""
        added = (each for each in table.metadata.snapshots if each.snapshot_id not in self._kept)
        return any((each.sequence_number or 0) <= self._last_number for each in added)

    def _load(self) -> Table:
        table = self._catalog.load_table(self._path)
        if table.metadata.table_uuid != self._uuid:
            raise NoSuchTableError(f"{self._path} is another table by now")
        return table


def delete_in_turn(expired: deque[ExpiredFiles], interruption: Interruption) -> None:
    """Delete the files of one expiry after the other, and remove it. The first error is raised. Then the next call
    begins with the other expiries, so that a file that stays locked does not keep their files."""
    while expired:
        files = expired.popleft()
        try:
            files.delete(interruption)
        except Exception:
            expired.append(files)
            raise


class UnfinishedExpiryError(Exception):
    """Snapshots of a table have expired, and some of their files are left. The cause says why."""

    def __init__(self, files: ExpiredFiles) -> None:
        super().__init__()
        self.files = files
