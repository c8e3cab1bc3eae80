"""Expires the snapshots that a table no longer keeps, and deletes the files that only these snapshots need.

The snapshots are removed by a separate commit. A tag may be set on one of them after the table was loaded and before
the commit. Then the Local catalog and Glue refuse the commit, because the tag has changed the metadata. A REST server
does not refuse it, and the tag is lost. The time between loading and commit is short, but not zero.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
)

from connector.host import facts
from connector.host.facts import EXPIRE_SNAPSHOTS, MaintainedFiles
from connector.host.interruption import NEVER, Interruption
from connector.host.logs import Event, fields
from connector.iceberg.commits.commit_errors import REFUSED, is_final, list_unknown_errors, quote
from connector.iceberg.commits.retry_commits import ActionText, explain_failure, retry_commit
from connector.iceberg.commits.snapshot import TableLocks
from connector.iceberg.metadata.old_metadata import find_stale_metadata, must_delete_old_metadata
from connector.iceberg.metadata.references import find_unreachable
from connector.iceberg.metadata.retention import find_due, find_expired, may_delete_files
from connector.iceberg.metadata.table_properties import name_table_in_errors
from connector.iceberg.metadata.table_updates import require_uuid
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import delete_all

log = logging.getLogger(__name__)

EXPIRY: Final = ActionText("expire snapshots", "snapshots were expired")


@dataclass(frozen=True)
class ExpiredSnapshots:
    """Expired snapshots, and the files to which only they referred."""

    table: Table  # without the snapshots
    count: int
    locations: Sequence[str] = ()


@dataclass(frozen=True)
class _Removed:
    """A table before and after snapshots were removed. Their files are still there."""

    before: TableMetadata
    after: Table
    count: int
    failure: Exception | None = None  # why no snapshot was removed

    def find_files(self, interruption: Interruption) -> ExpiredSnapshots:
        locations = _find_files(self.before, self.after, interruption) if self.count else ()
        return ExpiredSnapshots(self.after, self.count, locations)


def expire_snapshots(
    catalog: Catalog,
    path: TableIdentifier,
    interruption: Interruption = NEVER,
    locks: TableLocks | None = None,
) -> int:
    """Expire the snapshots of one table that are due, and delete their files. Returns the number of deleted files.

    Several processes may do this at once. A process whose commit is refused leaves the work to a later call. Raises
    ConnectorError if the catalog would always refuse it.
    """
    with (locks or TableLocks()).of(path):
        removed = _Expiry(catalog, path, find_due).attempt()
    if removed.failure:
        if is_final(removed.failure):
            raise explain_failure(path, EXPIRY.of_failures, removed.failure, None)
        log.info("table %s: no snapshot was expired: %s", path, quote(removed.failure))
    if not removed.count:
        return 0
    expired = removed.find_files(interruption)
    delete_all(expired.table.io, expired.locations, interruption)
    log_expiry(path, expired)
    return len(expired.locations)


def expire_all_snapshots(catalog: Catalog, path: TableIdentifier, interruption: Interruption) -> ExpiredSnapshots:
    """Remove all expired snapshots of one table, and find their files, which stay.

    Other writers may commit meanwhile. Raises the errors of `retry_commit`, and InterruptedMaintenanceError if
    interrupted before the commit. After it, nothing but the removed snapshots says which files these are.
    """
    expiry = _Expiry(catalog, path, find_expired)

    def attempt() -> _Removed:
        interruption.check()
        removed = expiry.attempt()
        if removed.failure:
            raise removed.failure
        return removed

    return retry_commit(path, EXPIRY, attempt).find_files(NEVER)


def has_expired(table: Table) -> bool:
    """Whether a table has expired snapshots."""
    return bool(find_expired(table.metadata, _now()))


def plan_expiry(table: Table, interruption: Interruption = NEVER) -> ExpiredSnapshots:
    """Find all expired snapshots of a table and their files. Changes nothing."""
    ids = find_expired(table.metadata, _now())
    if not ids:
        return ExpiredSnapshots(table, 0)
    kept = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in ids]
    statistics, of_partitions = (
        [file for file in files if file.snapshot_id not in ids]
        for files in (table.metadata.statistics, table.metadata.partition_statistics)
    )
    metadata = table.metadata.model_copy(
        update={"snapshots": kept, "statistics": statistics, "partition_statistics": of_partitions}
    )
    after = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    return ExpiredSnapshots(after, len(ids), _find_files(table.metadata, after, interruption))


class _Expiry:
    """Removes the snapshots of one table that `choose` returns for its metadata and the time.

    The answer to an attempt may be lost. So a later attempt also counts what the earlier ones have removed.
    """

    def __init__(
        self, catalog: Catalog, path: TableIdentifier, choose: Callable[[TableMetadata, int], list[int]]
    ) -> None:
        self._catalog = catalog
        self._path = path
        self._choose = choose
        self._before: TableMetadata | None = None  # with the snapshots that any attempt has seen
        self._sent: set[int] = set()  # snapshots that attempts have removed or may have removed

    def attempt(self) -> _Removed:
        """Remove the snapshots in one commit."""
        table = self._catalog.load_table(self._path)
        before = self._before = self._add_snapshots(table.metadata)
        with name_table_in_errors(table):
            ids = self._choose(table.metadata, _now())
        if not ids:
            return self._compare(before, table)
        failure: Exception | None = None
        try:
            _commit_removal(self._catalog, table, ids)
        except list_unknown_errors() as error:
            failure = error
        except REFUSED as error:
            return _Removed(before, table, 0, error)
        self._sent.update(ids)
        return self._compare(before, self._catalog.load_table(self._path), failure)

    def _add_snapshots(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata with the snapshots that earlier attempts have seen."""
        if self._before is None or self._before.table_uuid != metadata.table_uuid:
            return metadata
        present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        gone = [snapshot for snapshot in self._before.snapshots if snapshot.snapshot_id not in present]
        return metadata.model_copy(update={"snapshots": [*gone, *metadata.snapshots]})

    def _compare(self, before: TableMetadata, after: Table, failure: Exception | None = None) -> _Removed:
        """Return what the attempts have removed, by the table after them."""
        if after.metadata.table_uuid != before.table_uuid:
            return _Removed(before, after, 0)
        sent = self._sent.intersection(snapshot.snapshot_id for snapshot in before.snapshots)
        removed = sent.difference(snapshot.snapshot_id for snapshot in after.metadata.snapshots)
        return _Removed(before, after, len(removed), None if removed else failure)


def log_expiry(path: TableIdentifier, expired: ExpiredSnapshots) -> None:
    """Log that snapshots were expired and their files deleted."""
    table = str(path)
    facts.report(MaintainedFiles(table, EXPIRE_SNAPSHOTS, len(expired.locations)))
    log.info(
        "table %s: expired %d snapshot(s), deleted %d file(s)",
        table,
        expired.count,
        len(expired.locations),
        extra=fields(Event.EXPIRED, table=table, snapshots=expired.count, files=len(expired.locations)),
    )


def _now() -> int:
    return time.time_ns() // 1_000_000


def _find_files(before: TableMetadata, after: Table, interruption: Interruption) -> Sequence[str]:
    """Return the files to which only the removed snapshots referred, and old metadata files; none if they must stay."""
    if not may_delete_files(after):
        return ()
    locations = find_unreachable(before, after, interruption)
    if must_delete_old_metadata(TableIdentifier.of(after), after.catalog, after.properties):
        locations += find_stale_metadata(after)
    return locations


def _commit_removal(catalog: Catalog, table: Table, ids: Sequence[int]) -> None:
    """Remove snapshots, unless a branch or tag has moved since the table was loaded."""
    refs = table.metadata.refs.items()
    requirements: tuple[TableRequirement, ...] = (
        require_uuid(table),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs),
    )
    # PyIceberg's catalogs would keep them.
    statistics = [
        RemovePartitionStatisticsUpdate(snapshot_id=file.snapshot_id)
        for file in table.metadata.partition_statistics
        if file.snapshot_id in ids
    ]
    catalog.commit_table(table, requirements, (RemoveSnapshotsUpdate(snapshot_ids=list(ids)), *statistics))
