"""Tables of a Local catalog for tests: made by hand, filled by hand, and with transactions staged for them."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.avro.file import SYNC_SIZE
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import LongType, NestedField
from sqlalchemy import create_engine, text

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetFiles
from connector.encoding.rewriting.converted_files import Rewrite, rewrite_converted
from connector.host.refresh import Refreshed
from connector.iceberg.alteration import Alterer
from connector.iceberg.catalogs.local import open_local
from connector.iceberg.metadata.manifests import manifests_of
from connector.model.properties import Properties
from connector.model.state import DataFile
from connector.model.table_identifier import Owner
from protocol.flow import Json
from support.bindings import MATERIALIZATION, PATH

ID_ONLY = Schema(NestedField(1, "id", LongType(), required=True))


NO_COMMIT_CAN_FOLLOW = {"flow.converted.1": "a column"}


def local_catalog(warehouse: Path) -> Catalog:
    return open_local(warehouse, {})


@contextmanager
def refusing_commits(catalog: Catalog, path: str) -> Iterator[None]:
    """The table takes no commits, because of a property that another engine has set."""
    with catalog.load_table(path).transaction() as others:
        others.set_properties(NO_COMMIT_CAN_FOLLOW)
    yield
    with catalog.load_table(path).transaction() as others:
        others.remove_properties(*NO_COMMIT_CAN_FOLLOW)


def foreign_table(
    catalog: Catalog, path: tuple[str, str], schema: Schema = ID_ONLY, properties: dict[str, str] | None = None
) -> Table:
    catalog.create_namespace_if_not_exists(path[0])
    return catalog.create_table(path, schema, properties=properties or {})


def rewrite_by_another_engine(catalog: Catalog, path: tuple[str, str]) -> None:
    """All rows move to one new file, in the reverse order."""
    table = catalog.load_table(path)
    rows = table.scan().to_arrow()
    table.overwrite(rows.take([*reversed(range(len(rows)))]))


def upgrade_to_version_3(catalog: Catalog, path: tuple[str, str]) -> None:
    """As another engine does it. PyIceberg does not write version 3."""
    template = catalog.load_table(path)
    source = Path(template.metadata_location.removeprefix("file://"))
    metadata = json.loads(source.read_text()) | {"format-version": 3, "next-row-id": 0}
    version_3 = source.with_name("version-3.metadata.json")
    version_3.write_text(json.dumps(metadata))
    catalog.drop_table(path)
    catalog.register_table(path, str(version_3))


def record_property(table: Table, name: str, value: str) -> None:
    """Written into another metadata file. PyIceberg makes no table with properties that it cannot parse."""

    def change(metadata: Json) -> None:
        metadata["properties"][name] = value

    change_metadata(table, change)


def prepend_to_log(table: Table, location: str) -> None:
    """Let the metadata log name a file as the oldest one."""

    def change(metadata: Json) -> None:
        metadata["metadata-log"].insert(0, {"metadata-file": location, "timestamp-ms": 1})

    change_metadata(table, change)


def change_metadata(table: Table, change: Callable[[Json], None]) -> None:
    """Let the table have a changed metadata file. It has a new name: the catalog remembers those that it wrote."""
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    change(metadata)
    changed = file.with_name(f"{file.name.partition('-')[0]}-{uuid.uuid4()}.metadata.json")
    changed.write_text(json.dumps(metadata))
    table.catalog.drop_table(table.name())
    table.catalog.register_table(table.name(), f"file://{changed}")


def cut_manifest(table: Table) -> tuple[Path, bytes]:
    """Cut the newest manifest short, after its first block. Returns the file, and what it had."""
    manifest, *_ = manifests_of(table, table.current_snapshot())
    file = Path(manifest.manifest_path.removeprefix("file://"))
    whole = file.read_bytes()
    *some, _ = whole.split(marker := whole[-SYNC_SIZE:])
    assert len(some) > 2, "a header and several blocks"
    file.write_bytes(some[0] + marker + some[1] + marker)
    return file, whole


def cut_manifest_list(table: Table) -> tuple[Path, bytes]:
    """Cut the newest manifest list behind its header: that is how an empty list looks. Returns the file, and what it
    had."""
    snapshot = table.current_snapshot()
    assert snapshot
    file = Path(snapshot.manifest_list.removeprefix("file://"))
    whole = file.read_bytes()
    header, marker, _ = whole.partition(whole[-SYNC_SIZE:])
    file.write_bytes(header + marker)
    return file, whole


def turn_tables_into_views(warehouse: Path) -> None:
    """Other engines keep views in the catalog's file; PyIceberg cannot make one."""
    _execute(warehouse, "UPDATE iceberg_tables SET iceberg_type = 'VIEW'")


def drop_types_of_tables(warehouse: Path) -> None:
    """Make the catalog's file one of an earlier version of PyIceberg, which knew no views."""
    _execute(warehouse, "ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")


def _execute(warehouse: Path, statement: str) -> None:
    engine = create_engine(f"sqlite:///{warehouse}/catalog.db")
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def rewrite_here(
    target: TargetFiles, sources: Sequence[SourceFile], access: Refreshed[Properties]
) -> list[tuple[DataFile, ...] | None]:
    """What Spark's tasks do, in this process."""
    io = load_file_io(dict(access.current().value), target.destination.location)
    return [rewrite_converted(io, target, source) for source in sources]


def alterer(rewrite: Rewrite = rewrite_here) -> Alterer:
    return Alterer(Owner(MATERIALIZATION, "shop%2Forders.v0"), rewrite, "do something else")


def table_of(catalog: Catalog) -> Table:
    """The table of most tests, as it is now."""
    return catalog.load_table(PATH)


def ids_of(catalog: Catalog, path: tuple[str, str]) -> list[int]:
    return sorted(catalog.load_table(path).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def list_changes(table: Table) -> list[Snapshot]:
    """The snapshots that have changed rows. Those of compactions have not."""
    return [each for each in table.snapshots() if not (each.summary and each.summary.operation is Operation.REPLACE)]
