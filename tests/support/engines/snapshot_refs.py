"""Branches and tags, as another engine sets them."""

from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from connector.model.table_identifier import TableIdentifier


def set_ref(name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH) -> SetSnapshotRefUpdate:
    """Return the update that lets a branch or a tag name a snapshot, with the table's own retention."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def tag(catalog: Catalog, path: TableIdentifier, name: str, snapshot_id: int, max_ref_age_ms: int) -> None:
    """Let a tag name a snapshot. It is kept for this time after the commit of the snapshot."""
    update = set_ref(name, snapshot_id, SnapshotRefType.TAG).model_copy(update={"max_ref_age_ms": max_ref_age_ms})
    catalog.commit_table(catalog.load_table(path), (), (update,))


def point(catalog: Catalog, path: TableIdentifier, branch: str, snapshot_id: int) -> None:
    """Let a branch name this snapshot: its newer ones are not in the branch any more."""
    catalog.commit_table(catalog.load_table(path), (), (set_ref(branch, snapshot_id),))
