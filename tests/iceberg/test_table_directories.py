"""Anyone who can commit to a table sets its properties. They run no code, and name no foreign files to be deleted."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.statistics import StatisticsFile

import connector
from connector.host.errors import UserError
from connector.host.interruption import NEVER
from connector.iceberg.loaded_tables import check_table_properties, load_table
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.maintenance.find_orphan_files import OrphanOptions, find_orphan_files
from connector.iceberg.metadata.old_metadata import find_stale_metadata
from connector.iceberg.metadata.snapshot_files import find_unreachable
from connector.iceberg.metadata.snapshot_manifests import metadata_location
from connector.iceberg.metadata.table_directories import find_directories, find_file_directories
from connector.storage.store_kinds import NAMED_STORE
from support.bindings import PATH
from support.rows.staged_files import land
from support.snapshots import check_text
from support.tables.expiring_tables import NOTHING_OLD
from support.tables.local_tables import foreign_table, record_property, table_of

DATA: Final = TableProperties.WRITE_DATA_PATH
METADATA: Final = TableProperties.WRITE_METADATA_PATH
MODULE: Final = "code_that_a_table_names"
USES: Final[dict[str, Callable[[Table], object]]] = {
    "directories": find_directories,
    "directories of files": find_file_directories,
    "old metadata": lambda table: [*find_stale_metadata(table)],
    "expired files": lambda table: find_unreachable(table.metadata, table, NEVER),
    "a metadata file": lambda table: metadata_location(table, "name.avro"),
}


def changed(catalog: Catalog, **changes: Any) -> Table:
    """A table whose metadata somebody has changed."""
    table = foreign_table(catalog, PATH)
    return Table(
        table.name(), table.metadata.model_copy(update=changes), table.metadata_location, table.io, table.catalog
    )


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_code_that_a_table_names_runs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, use: Callable[[Table], object]
) -> None:
    calls = []
    module = ModuleType(MODULE)
    module.__dict__["Names"] = lambda *given: calls.append(given)
    monkeypatch.setitem(sys.modules, MODULE, module)
    table = changed(catalog, properties={TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL: f"{MODULE}.Names"})
    with pytest.raises(UserError, match="does not run code that a table names"):
        use(table)
    assert calls == []


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_file_is_looked_for_below_the_directory_of_the_process(
    catalog: Catalog, use: Callable[[Table], object]
) -> None:
    table = changed(catalog, location="lake/t")
    with pytest.raises(UserError, match="only writes to absolute locations"):
        use(table)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_table_that_was_moved_to_this_machine_has_no_directory(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Table], object]
) -> None:
    """If the config names a bucket. Who may commit to the table could have any file of the machine deleted."""
    table = changed(catalog)
    monkeypatch.setattr(catalog, "properties", {**catalog.properties, NAMED_STORE: "s3"})
    with pytest.raises(UserError) as told:
        use(table)
    name, own = "a table that was moved to this machine", {str(tmp_path): "<directory>"}
    check_text("session_errors", name, str(told.value), own)
    with pytest.raises(UserError, match="on this machine"):
        load_table(catalog, PATH)


def test_what_refuses_code_is_the_only_way_to_the_locations_of_files() -> None:
    source = Path(connector.__file__).parent
    users = [path for path in source.rglob("*.py") if "load_location_provider" in path.read_text()]
    assert users == [source / "encoding" / "parquet" / "file_options.py"]


def test_snapshots_stay_if_their_files_could_not_be_deleted_with_them(catalog: Catalog) -> None:
    foreign_table(catalog, PATH, properties=NOTHING_OLD)
    for number in range(3):
        land(catalog, number)
    record_property(table_of(catalog), TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL, "this.Names")
    before = table_of(catalog).metadata.snapshots
    with pytest.raises(UserError, match="does not run code that a table names"):
        expire_snapshots(catalog, PATH)
    assert table_of(catalog).metadata.snapshots == before
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("location", "properties", "file", "may_be_deleted"),
    [
        ("s3://lake/t", {}, "s3://lake/t/data/x.stats", True),
        ("s3a://lake/t", {DATA: "s3://lake/elsewhere"}, "s3://lake/elsewhere/x.stats", True),
        ("s3://lake/t", {}, "s3://lake/t/../other/x.stats", False),
        ("file:///lake/t", {}, "file:///lake/t/./../other/x.stats", False),
        ("s3://lake/t", {}, "s3://lake/t2/x.stats", False),
        ("s3://lake/t", {DATA: "s3://lake/d/"}, "s3://lake/d2/x.stats", False),
        ("s3://lake/t", {}, "s3://backups/x.stats", False),
        ("s3://lake/t", {DATA: "s3://backups/d"}, "s3://backups/d/x.stats", False),
        ("s3://lake/t", {METADATA: "s3a://backups/d"}, "s3a://backups/d/x.stats", False),
        ("s3://lake/t", {DATA: "s3://backups/d"}, "s3://backups/d/prefix-{uuid}-1.parquet", True),
        ("s3://lake/t", {DATA: "s3://backups/d"}, "s3://backups/d/{uuid}/x.stats", False),
        ("gs://lake/t", {DATA: "gcs://lake/d"}, "gcs://lake/d/x.stats", True),
        ("abfss://c@a.dfs.x/t", {DATA: "wasbs://c@a.blob.x/d"}, "wasbs://c@a.blob.x/d/x.stats", True),
        ("abfss://c@a.dfs.x/t", {DATA: "abfss://c@b.dfs.x/d"}, "abfss://c@b.dfs.x/d/x.stats", False),
    ],
)
def test_an_expiry_deletes_no_file_that_only_the_tables_properties_call_its_own(
    catalog: Catalog, location: str, properties: dict[str, str], file: str, may_be_deleted: bool
) -> None:
    table = changed(catalog, location=location, properties=properties)
    file = file.format(uuid=table.metadata.table_uuid)
    statistics = StatisticsFile(
        snapshot_id=1, statistics_path=file, file_size_in_bytes=1, file_footer_size_in_bytes=1, blob_metadata=[]
    )
    before = table.metadata.model_copy(update={"statistics": [statistics]})
    assert find_unreachable(before, table, NEVER) == ([file] if may_be_deleted else [])


@pytest.mark.parametrize("name", [DATA, METADATA])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_table_in_a_bucket_has_no_directory_of_this_machine(
    catalog: Catalog, use: Callable[[Table], object], name: str
) -> None:
    table = changed(catalog, location="s3://lake/t", properties={name: "file:///home/op"})
    with pytest.raises(UserError) as told:
        use(table)
    check_text("commit_errors", f"a directory in another kind of store: {name}", str(told.value))
    with pytest.raises(UserError, match="same kind"):
        check_table_properties(table)


def test_unknown_files_of_a_directory_that_seems_to_be_another_one_are_no_orphans(
    catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "x").write_text("of somebody")
    table = foreign_table(catalog, PATH)
    record_property(table, DATA, f"file://{tmp_path}/lake/..")
    options = OrphanOptions(datetime.now(UTC) + timedelta(days=1), has_unknown=True)
    found = find_orphan_files(catalog, catalog.load_table(PATH), options)
    assert [file.location for file in found.deletable] == []
