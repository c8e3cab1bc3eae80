"""Expires the snapshots that a table no longer keeps, and deletes the files that only these snapshots need.

The snapshots are removed by a separate commit. A tag may be set on one of them after the table was loaded and before
the commit. Then the Local catalog and Glue refuse the commit, because the tag has changed the metadata. A REST server
does not refuse it, and the tag is lost. The time between loading and commit is short, but not zero.
"""

import logging
import time
from collections.abc import Callable, Sequence

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate, TableRequirement

from connector.host import facts
from connector.host.facts import EXPIRE_SNAPSHOTS, MaintainedFiles
from connector.host.logs import Event, fields
from connector.iceberg.commits.commit_errors import REFUSED, list_unknown_errors
from connector.iceberg.metadata.references import find_unreachable
from connector.iceberg.metadata.retention import due
from connector.iceberg.metadata.stored_files import delete_all, find_stale_metadata, must_delete_old_metadata
from connector.iceberg.metadata.table_updates import same_table
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)


def expire_snapshots(
    catalog: Catalog, path: TableIdentifier, is_interrupted: Callable[[], bool] = lambda: False
) -> int:
    """Expire the snapshots of one table that are due. Returns the number of deleted files.

    Several processes may do this at once. A process whose commit is refused leaves the work to a later call.
    """
    before, now = catalog.load_table(path), time.time_ns() // 1_000_000
    ids = due(before.metadata, now)
    if not ids or not _may_be_dated(before, now) or not _remove_snapshots(catalog, before, ids):
        return 0
    after = catalog.load_table(path)
    if after.metadata.table_uuid != before.metadata.table_uuid:
        return 0
    locations = find_unreachable(before.metadata, after, is_interrupted)
    if must_delete_old_metadata(after):
        locations += find_stale_metadata(after)
    delete_all(after.io, locations, is_interrupted)
    table = ".".join(path)
    if facts.observe:
        facts.observe(MaintainedFiles(table, EXPIRE_SNAPSHOTS, len(locations)))
    log.info(
        "table %s: expired %d snapshot(s), deleted %d file(s)",
        table,
        len(ids),
        len(locations),
        extra=fields(Event.EXPIRED, table=table, snapshots=len(ids), files=len(locations)),
    )
    return len(locations)


def _may_be_dated(table: Table, now: int) -> bool:
    """Whether new metadata would be no older than its snapshots. Iceberg's Java library refuses to read older metadata.
    In some catalogs the client sets the time of the metadata, and its clock may be behind."""
    return not isinstance(table.catalog, MetastoreCatalog) or now >= table.metadata.last_updated_ms


def _remove_snapshots(catalog: Catalog, table: Table, ids: Sequence[int]) -> bool:
    """Remove snapshots, unless a branch or tag has moved since the table was loaded.

    Returns False if the snapshots were certainly not removed.
    """
    refs = table.metadata.refs.items()
    requirements: tuple[TableRequirement, ...] = (
        same_table(table),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs),
    )
    try:
        catalog.commit_table(table, requirements, (RemoveSnapshotsUpdate(snapshot_ids=list(ids)),))
    except list_unknown_errors() as error:
        log.info(
            "table %s: the outcome of the expiry is unknown: %s: %s",
            ".".join(table.name()),
            type(error).__name__,
            error,
        )
    except REFUSED:
        return False
    return True
