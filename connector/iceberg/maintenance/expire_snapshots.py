"""Expires the snapshots that a table no longer keeps, and deletes what they leave behind.

It does so in a commit of its own. If a tag is set on a snapshot while that is being removed, the tag goes too: the
Local catalog and Glue refuse the commit, since the tag has changed the metadata, but a REST server does not. There the
time between loading the table and the commit is short, but not nothing.
"""

import logging
import time
from collections.abc import Callable, Sequence

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate, TableRequirement

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
    """Expire what is due in one table, and return how many files that deletes.

    Several processes may do so at once: one that finds the table changed leaves it to the next time.
    """
    before, now = catalog.load_table(path), time.time_ns() // 1_000_000
    ids = due(before.metadata, now)
    if not ids or not _may_be_dated(before, now) or not _may_have_removed(catalog, before, ids):
        return 0
    after = catalog.load_table(path)
    if after.metadata.table_uuid != before.metadata.table_uuid:
        return 0
    locations = find_unreachable(before.metadata, after, is_interrupted)
    if must_delete_old_metadata(after):
        locations += find_stale_metadata(after)
    delete_all(after.io, locations, is_interrupted)
    table = ".".join(path)
    log.info(
        "table %s: expired %d snapshot(s), deleted %d file(s)",
        table,
        len(ids),
        len(locations),
        extra=fields(Event.EXPIRED, table=table, snapshots=len(ids), files=len(locations)),
    )
    return len(locations)


def _may_be_dated(table: Table, now: int) -> bool:
    """Whether new metadata would be no older than the snapshots in it: Java refuses to read it otherwise. In some
    catalogs the client dates it, and its clock may be behind."""
    return not isinstance(table.catalog, MetastoreCatalog) or now >= table.metadata.last_updated_ms


def _may_have_removed(catalog: Catalog, table: Table, ids: Sequence[int]) -> bool:
    """Remove snapshots, if every branch and tag is still where it was; False if they have certainly not been
    removed."""
    refs = table.metadata.refs.items()
    requirements: tuple[TableRequirement, ...] = (
        same_table(table),
        *(AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in refs),
    )
    try:
        catalog.commit_table(table, requirements, (RemoveSnapshotsUpdate(snapshot_ids=list(ids)),))
    except list_unknown_errors() as error:
        log.info("table %s: no answer to the expiry: %s: %s", ".".join(table.name()), type(error).__name__, error)
    except REFUSED:
        return False
    return True
