"""Tables whose columns are altered: filled by another engine, and read back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.converted_files import Rewrite
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import TableChange
from connector.evolution.target import NewColumn, Target
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.perform_changes import evolve
from connector.model.properties import Properties
from connector.model.table_identifier import Owner
from support.bindings import MATERIALIZATION, PATH
from support.tables.local_tables import alterer, rewrite_here

V0 = Owner(MATERIALIZATION, "shop%2Forders.v0")
ID = NestedField(1, "id", LongType(), required=True)
NO_PROPERTIES = Properties()
QTY = NestedField(2, "qty", LongType(), required=True)
ROWS = [{"id": 1, "qty": 10}, {"id": 2, "qty": -5}]


def filled_table(
    catalog: Catalog, *columns: NestedField, rows: Sequence[Any] = (), spec: PartitionSpec | None = None
) -> Table:
    """A table with a file for each chunk of rows, by an engine that is not ours."""
    catalog.create_namespace_if_not_exists(PATH[0])
    table = catalog.create_table(PATH, Schema(*columns), partition_spec=spec or PartitionSpec())
    for chunk in rows:
        append(catalog, *chunk)
    return table


def append(catalog: Catalog, *rows: Any) -> None:
    table = catalog.load_table(PATH)
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def wanted(name: str, type_: PrimitiveType) -> NewColumn:
    is_key = name == "id"
    return NewColumn(name, name, type_, is_key, "", is_key, former=name, is_key=is_key)


def fit(
    catalog: Catalog,
    *columns: NewColumn,
    rewrite: Rewrite = rewrite_here,
    properties: Properties = NO_PROPERTIES,
) -> list[TableChange]:
    target = Target(PATH, V0, columns, properties, replaces=False)
    return evolve(catalog, PATH, None, partial(plan_changes, target=target), alterer(rewrite))


def rows(catalog: Catalog, snapshot_id: int | None = None) -> list[Any]:
    scanned = catalog.load_table(PATH).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(scanned, key=lambda row: row["id"])


def sort_by_qty(catalog: Catalog) -> None:
    with catalog.load_table(PATH).update_sort_order() as update:
        update.asc("qty", IdentityTransform())


def entries(catalog: Catalog) -> list[ManifestEntry]:
    table = catalog.load_table(PATH)
    return [entry for manifest in current_manifests(table) for entry in manifest.fetch_manifest_entry(table.io)]


def current_manifests(table: Table) -> list[ManifestFile]:
    return manifests_of(table, table.current_snapshot())


QTY_AS_TEXT = (wanted("id", LongType()), wanted("qty", StringType()))


class Counting:
    """Counts the files that are written again, and does something before the answer of a number of calls."""

    def __init__(self, *meanwhile: Callable[[], None]) -> None:
        self.files: list[int] = []
        self._meanwhile = list(meanwhile)

    def __call__(self, target: TargetFiles, sources: Sequence[SourceFile], access: Any) -> Any:
        written = rewrite_here(target, sources, access)
        self.files.append(len(sources))
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return written
