"""ClickHouse and Daft read updated tables of each kind, or say why not."""

import json
import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.table_identifier import TableIdentifier
from support.engines.other_readers import ENGINES, read_with
from support.rows.updated_rows import BY_PART, DOCUMENT, PART, stage_updates, values_of
from support.tables.altered_tables import ID
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import local_catalog

pytestmark = pytest.mark.slow

NAMESPACE: Final = "updated"
SPECS: Final = {
    "plain": UNPARTITIONED_PARTITION_SPEC,
    "part": BY_PART,
    "bucket": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket_4")),
    "truncated": PartitionSpec(PartitionField(3, 1000, TruncateTransform(1), "part_trunc_1")),
}
REFUSES_VECTORS: Final = {
    "clickhouse": "Position deletes are supported only for parquet",
    "daft": "puffin: Parquet error",
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Tables of both format versions with each spec, updated, before and after a compaction."""
    catalog = local_catalog(tmp_path_factory.mktemp("warehouse"))
    catalog.create_namespace(NAMESPACE)
    for version in (2, 3):
        for name, spec in SPECS.items():
            for is_compacted in (False, True):
                path = TableIdentifier(NAMESPACE, f"{name}_{version}_{'compacted' if is_compacted else 'updated'}")
                properties = {**EAGER, "format-version": str(version)}
                location = f"{catalog.properties['warehouse']}/{path.name}"
                catalog.create_table(path, Schema(ID, DOCUMENT, PART), location, spec, properties=properties)
                update(catalog, path)
                if is_compacted:
                    assert compact(catalog, path).delete_files
    return catalog


def update(catalog: Catalog, path: TableIdentifier) -> None:
    def land(values: dict[int, Any], removed: list[int]) -> None:
        commit_all_or_raise(catalog, [stage_updates(catalog, values, removed, path=path)])

    for number in range(3):
        land(dict.fromkeys(range(20 * number, 20 * number + 20), "abc"[number]), [])
    chance, ids = random.Random(0), set(range(60))
    for number in range(6):
        chosen = chance.sample(sorted(ids), 12)
        land(dict.fromkeys(chosen[3:], "abcdef"[number]), chosen[:3])
        ids -= {*chosen[:3]}


def read(engine: str, catalog: Catalog, version: int, kind: str, directory: Path) -> dict[str, pa.Table | str]:
    names = [f"{name}_{version}_{kind}" for name in SPECS]
    tables = [catalog.load_table((NAMESPACE, name)) for name in names]
    return dict(zip(names, read_with(engine, tables, directory), strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("version", "kind"), [(2, "updated"), (2, "compacted"), (3, "compacted")])
def test_they_read_the_rows(engine: str, version: int, kind: str, catalog: Catalog, tmp_path: Path) -> None:
    for name, found in read(engine, catalog, version, kind, tmp_path).items():
        assert isinstance(found, pa.Table), found
        rows = zip(found["id"].to_pylist(), found["doc"].to_pylist(), strict=True)
        values = {id_: json.loads(document)["value"] for id_, document in rows}
        assert len(values) == len(found), "two rows for a key"
        assert values == values_of(catalog, TableIdentifier(NAMESPACE, name))


@pytest.mark.parametrize("engine", ENGINES)
def test_they_refuse_deletion_vectors_as_the_page_says(engine: str, catalog: Catalog, tmp_path: Path) -> None:
    """Once one of them reads the table, docs/reading.md should say so."""
    for found in read(engine, catalog, 3, "updated", tmp_path).values():
        assert isinstance(found, str), found
        assert REFUSES_VECTORS[engine] in found
