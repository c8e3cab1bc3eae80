"""A table whose snapshots expire at once: what its snapshots refer to, and which files it has."""

from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog

from connector.iceberg.metadata.retention import MAX_AGE
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
