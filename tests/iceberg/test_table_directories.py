"""Anyone who can commit to a table sets its properties. They run no code, and name no foreign files to be deleted."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, TableProperties

import connector
from connector.host.errors import UserError
from connector.host.interruption import NEVER
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.metadata.old_metadata import find_stale_metadata
from connector.iceberg.metadata.references import find_unreachable
from connector.iceberg.metadata.snapshot_manifests import metadata_location
from connector.iceberg.metadata.table_directories import find_directories, find_file_directories
from support.bindings import PATH
from support.rows.staged_files import land
from support.tables.expiring_tables import NOTHING_OLD
from support.tables.local_tables import foreign_table, record_property, table_of

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
