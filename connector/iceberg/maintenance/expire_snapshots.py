"""Expires the snapshots that a table no longer keeps, and deletes the files that only these snapshots need.

The snapshots are removed by a separate commit, together with branches and tags that have expired. A tag may be set on
one of them after the table was loaded and before the commit. Then the Local catalog and Glue refuse the commit, because
the tag has changed the metadata. A REST server does not refuse it, and the tag is lost. The time between loading and
commit is short, but not zero.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from connector.host.interruption import NEVER, InterruptedMaintenanceError, Interruption
from connector.host.logs import Event, fields
from connector.iceberg.commits.commit_errors import REFUSED, is_final, list_unknown_errors, quote
from connector.iceberg.commits.retry_commits import ActionText, explain_failure, retry_commit
from connector.iceberg.commits.snapshot import TableLocks
from connector.iceberg.maintenance.expired_files import ExpiredFiles, UnfinishedExpiryError, find_expired_files
from connector.iceberg.metadata.retention import Expired, find_due, find_expired
from connector.iceberg.metadata.snapshot_files import list_snapshot_ids
from connector.iceberg.metadata.table_properties import locations_of, name_table_in_errors
from connector.iceberg.metadata.table_updates import require_uuid
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

# Chooses what is removed, given the metadata of a table, the time, and the branches and tags that stay at any age.
Choose: TypeAlias = Callable[[TableMetadata, int, Collection[str]], Expired]

EXPIRY: Final = ActionText("expire snapshots", "snapshots were expired")


@dataclass(frozen=True)
class ExpiredSnapshots:
    """Expired snapshots, and the files to which only they referred. Also the names of expired branches and tags."""

    table: Table  # without the snapshots
    count: int
    locations: Sequence[str]
    references: Sequence[str]


@dataclass(frozen=True)
class _Removed:
    """A table before and after snapshots, branches and tags were removed. The files are still there."""

    before: TableMetadata
    after: Table
    count: int = 0  # of snapshots
    references: Sequence[str] = ()
    failure: Exception | None = None  # why nothing was removed

    def find_files(self, interruption: Interruption) -> ExpiredSnapshots:
        locations = find_expired_files(self.before, self.after, interruption) if self.count else ()
        return ExpiredSnapshots(self.after, self.count, locations, self.references)


def expire_snapshots(
    catalog: Catalog,
    path: TableIdentifier,
    interruption: Interruption = NEVER,
    locks: TableLocks | None = None,
    lasting: set[str] | None = None,
) -> int:
    """Expire the snapshots of one table that are due, and delete their files. Returns the number of deleted files.

    Several processes may do this at once. A process whose commit is refused leaves the work to a later call. Raises
    ConnectorError if the catalog would always refuse it, and UnfinishedExpiryError if files could not be found or
    deleted. Branches and tags that the catalog does not remove are added to `lasting`, and those in it stay.
    """
    with (locks or TableLocks()).of(path):
        removed = _Expiry(catalog, path, find_due, lasting).attempt()
    if removed.failure:
        if is_final(removed.failure):
            raise explain_failure(path, EXPIRY.of_failures, removed.failure, None)
        log.info("table %s: no snapshot was expired: %s", path, quote(removed.failure))
    files, failure = ExpiredFiles(removed.before, removed.after), None
    if removed.count:
        try:
            files.delete(interruption)
        except InterruptedMaintenanceError:
            raise
        except Exception as error:  # noqa: BLE001 - the snapshots are gone, whatever becomes of their files
            failure = error
    log_expiry(path, removed.count, files.deleted, removed.references)
    if failure:
        raise UnfinishedExpiryError(files) from failure
    return files.deleted


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
    """Whether a table has expired snapshots, branches or tags."""
    return bool(find_expired(table.metadata, _now()))


def plan_expiry(table: Table, interruption: Interruption = NEVER) -> ExpiredSnapshots:
    """Find all expired snapshots of a table and their files. Changes nothing."""
    expired = find_expired(table.metadata, _now())
    ids = expired.snapshots
    if not ids:
        return ExpiredSnapshots(table, 0, (), expired.references)
    kept = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in ids]
    statistics, of_partitions = (
        [file for file in files if file.snapshot_id not in ids]
        for files in (table.metadata.statistics, table.metadata.partition_statistics)
    )
    metadata = table.metadata.model_copy(
        update={"snapshots": kept, "statistics": statistics, "partition_statistics": of_partitions}
    )
    after = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    locations = find_expired_files(table.metadata, after, interruption)
    return ExpiredSnapshots(after, len(ids), locations, expired.references)


class _Expiry:
    """Removes what `choose` returns for one table.

    The answer to an attempt may be lost. So a later attempt also counts what the earlier ones have removed.
    """

    def __init__(
        self, catalog: Catalog, path: TableIdentifier, choose: Choose, lasting: set[str] | None = None
    ) -> None:
        """`lasting` is as in `expire_snapshots`."""
        self._catalog = catalog
        self._path = path
        self._choose = choose
        self._lasting = set() if lasting is None else lasting
        self._before: TableMetadata | None = None  # with the snapshots that any attempt has seen
        self._sent: set[int] = set()  # snapshots that attempts have removed or may have removed
        self._sent_references: set[str] = set()

    def attempt(self) -> _Removed:
        """Remove the snapshots, branches and tags in one commit. If the catalog refuses to remove the branches and
        tags, remove the snapshots that they do not keep."""
        removed = self._remove(self._lasting)
        refused = self._sent_references - self._lasting
        if not (refused and removed.failure and is_final(removed.failure)):
            return removed
        rest = self._remove(self._lasting | refused)
        if rest.count <= removed.count:
            return removed  # it refuses all, or nothing else is due
        self._let_last(refused, quote(removed.failure))
        return rest

    def _let_last(self, names: Collection[str], answer: str) -> None:
        """Try no more to remove these branches and tags."""
        self._lasting.update(names)
        log.warning(
            "table %s: the catalog does not remove branches or tags at their maximum age: %s (%s). They stay, with the "
            "snapshots that they keep. The other snapshots expire.",
            self._path,
            ", ".join(sorted(names)),
            answer,
        )

    def _remove(self, lasting: Collection[str]) -> _Removed:
        table = self._catalog.load_table(self._path)
        before = self._before = self._add_snapshots(table.metadata)
        with name_table_in_errors(table):
            expired = self._choose(table.metadata, _now(), lasting)
        if not expired:
            return self._compare(before, table)
        locations_of(table)  # otherwise an error after the commit would leave the files
        failure: Exception | None = None
        try:
            refs = _commit_removal(self._catalog, table, expired)
            if ignored := refs & set(expired.references):
                self._let_last(ignored, "it answers as if it did")
        except list_unknown_errors() as error:
            failure = error
        except REFUSED as error:
            return _Removed(before, table, failure=error)
        self._sent.update(expired.snapshots)
        self._sent_references.update(expired.references)
        return self._compare(before, self._catalog.load_table(self._path), failure)

    def _add_snapshots(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata with the snapshots that earlier attempts have seen."""
        if self._before is None or self._before.table_uuid != metadata.table_uuid:
            return metadata
        present = list_snapshot_ids(metadata)
        gone = [snapshot for snapshot in self._before.snapshots if snapshot.snapshot_id not in present]
        return metadata.model_copy(update={"snapshots": [*gone, *metadata.snapshots]})

    def _compare(self, before: TableMetadata, after: Table, failure: Exception | None = None) -> _Removed:
        """Return what the attempts have removed, by the table after them."""
        if after.metadata.table_uuid != before.table_uuid:
            return _Removed(before, after)
        removed = self._sent & list_snapshot_ids(before) - list_snapshot_ids(after.metadata)
        references = sorted(self._sent_references.difference(after.metadata.refs))
        return _Removed(before, after, len(removed), references, None if removed or references else failure)


def log_expiry(path: TableIdentifier, count: int, files: int, references: Sequence[str]) -> None:
    """Log that snapshots were expired and so many files deleted, and that branches and tags were removed."""
    table = str(path)
    if references:
        log.info("table %s: removed branches or tags at their maximum age: %s", table, ", ".join(references))
    if count:
        log.info(
            "table %s: expired %d snapshot(s), deleted %d file(s)",
            table,
            count,
            files,
            extra=fields(Event.EXPIRED, table=table, snapshots=count, files=files),
        )


def _now() -> int:
    return time.time_ns() // 1_000_000


def _commit_removal(catalog: Catalog, table: Table, expired: Expired) -> Set[str]:
    """Remove what has expired, unless a branch or tag has moved since the table was loaded. Returns the branches and
    tags that the table has then."""
    refs = table.metadata.refs.items()
    requirements: tuple[TableRequirement, ...] = (
        require_uuid(table),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs),
    )
    # The references first: without its snapshot, PyIceberg's catalogs would not find one.
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in expired.references]
    if expired.snapshots:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(expired.snapshots)))
    # PyIceberg's catalogs would keep them.
    updates += [
        RemovePartitionStatisticsUpdate(snapshot_id=file.snapshot_id)
        for file in table.metadata.partition_statistics
        if file.snapshot_id in expired.snapshots
    ]
    return catalog.commit_table(table, requirements, tuple(updates)).metadata.refs.keys()
