"""A table whose snapshots expire at once: what its snapshots refer to, and which files it has."""

from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from connector.iceberg.commits.summaries import list_newest_first
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.table_identifier import TableIdentifier
from support.engines.snapshot_refs import point
from support.tables.local_tables import ID_ONLY, table_of

NOTHING_OLD: Final = {MAX_AGE: "0", "commit.manifest.min-count-to-merge": "3"}


def head(catalog: Catalog) -> int:
    snapshot = table_of(catalog).current_snapshot()
    assert snapshot
    return snapshot.snapshot_id


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=ID_ONLY.as_arrow())


def ids_at(catalog: Catalog, snapshot: int) -> list[int]:
    return sorted(table_of(catalog).scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())


def files(catalog: Catalog, directory: str, pattern: str = "*") -> set[str]:
    return {path.name for path in Path(table_of(catalog).location().removeprefix("file://"), directory).glob(pattern)}


def referred_to(catalog: Catalog) -> set[str]:
    """The manifest lists, manifests and data files of all snapshots."""
    table, names = table_of(catalog), set[str]()
    for snapshot in table.snapshots():
        names.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            names.add(manifest.manifest_path)
            names.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
    return {Path(name).name for name in names}


def left(catalog: Catalog) -> set[str]:
    return files(catalog, "data") | files(catalog, "metadata", "*.avro")


def check_history_after_expiries(catalog: Catalog, path: TableIdentifier, location: str | None = None) -> None:
    """A tagged snapshot stays, of which newer ones expire: first one that was rolled back, then ancestors of the newest
    one. No time of an expired snapshot shows the rows of the tagged one, and no kept snapshot is changed."""
    catalog.create_namespace_if_not_exists(path[0])
    catalog.create_table(path, ID_ONLY, location, properties=NOTHING_OLD)

    def append(number: int) -> Snapshot:
        catalog.load_table(path).append(rows(number))
        snapshot = catalog.load_table(path).current_snapshot()
        assert snapshot
        return snapshot

    def expire() -> tuple[list[int], list[Snapshot]]:
        expire_snapshots(catalog, path)
        table = catalog.load_table(path)
        return [entry.snapshot_id for entry in table.history()], list_newest_first(table.metadata)

    tagged = append(1)
    catalog.load_table(path).manage_snapshots().create_tag(tagged.snapshot_id, "kept").commit()
    append(2)
    point(catalog, path, MAIN_BRANCH, tagged.snapshot_id)
    next_ = append(3)
    assert expire() == ([tagged.snapshot_id, next_.snapshot_id], [next_, tagged])  # from the rollback on
    assert catalog.load_table(path).snapshot_as_of_timestamp(tagged.timestamp_ms) is None
    append(4)
    newest = append(5)
    assert expire() == ([newest.snapshot_id], [newest, tagged])
