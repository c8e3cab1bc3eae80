"""A commit to a Local catalog replaces what its table was loaded with, or nothing."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.typedef import IcebergBaseModel

from connector.iceberg.catalogs import sql
from connector.iceberg.catalogs.registered_tables import CommitBase
from connector.iceberg.metadata import copied_metadata
from connector.iceberg.metadata.copied_metadata import share_parts
from support.bindings import PATH
from support.tables.local_tables import ID_ONLY, foreign_table, local_catalog


def append(table: Table, *ids: int) -> None:
    table.append(pa.table({"id": list(ids)}, schema=ID_ONLY.as_arrow()))


def test_whatever_has_changed_since_the_table_was_loaded_refuses_a_commit(catalog: Catalog) -> None:
    """Be it a tag on a snapshot that the commit removes."""
    append(foreign_table(catalog, PATH), 1)
    table, other = catalog.load_table(PATH), catalog.load_table(PATH)
    snapshot = other.current_snapshot()
    assert snapshot
    other.manage_snapshots().create_tag(snapshot.snapshot_id, "monday").commit()
    with pytest.raises(CommitFailedException):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    found = catalog.load_table(PATH)
    assert "monday" in found.refs()
    assert "a" not in found.properties


def test_what_a_commit_does_not_change_is_not_copied(catalog: Catalog, tmp_path: Path) -> None:
    append(foreign_table(catalog, PATH), 1)
    table = catalog.load_table(PATH)
    response = catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    assert response.metadata.snapshots[0] is table.metadata.snapshots[0]
    assert "a" not in table.properties
    assert local_catalog(tmp_path).load_table(PATH).metadata == response.metadata.model_copy(deep=True)


@pytest.mark.parametrize("version", ["2", "3"])
def test_metadata_are_written_as_pyiceberg_writes_them(catalog: Catalog, version: str) -> None:
    table = foreign_table(catalog, PATH)
    for number in range(3):
        append(table, number)
    metadata = table.metadata.model_copy(update={"properties": {"a": '"snapshots":[]', "snapshots": "[]"}})
    if version == "3":
        fields = {**dict(metadata), "format_version": 3, "next_row_id": 0}
        metadata = TableMetadataV3.model_construct(**fields)
    expected = json.loads(IcebergBaseModel.model_dump_json(metadata))
    for _ in range(2):  # from memory the second time
        assert json.loads(share_parts(metadata).model_dump_json()) == expected
    fewer = metadata.model_copy(update={"snapshots": metadata.snapshots[1:]})
    expected["snapshots"] = expected["snapshots"][1:]
    assert json.loads(share_parts(fewer).model_dump_json()) == expected


def test_metadata_are_not_written_without_their_snapshots(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version of PyIceberg may write JSON in another form."""
    table = foreign_table(catalog, PATH)
    append(table, 1)
    in_lines = json.dumps(json.loads(table.metadata.model_dump_json()), indent=1)
    monkeypatch.setattr(IcebergBaseModel, "model_dump_json", lambda *_, **__: in_lines)
    with pytest.raises(AssertionError, match="would lose the table's rows"):
        share_parts(table.metadata).model_dump_json()


def test_the_snapshots_in_memory_are_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = foreign_table(catalog, PATH)
    for number in range(5):
        append(table, number)
    monkeypatch.setattr(copied_metadata, "_TEXTS", len(table.metadata.snapshots[0].model_dump_json()) * 3)
    texts = copied_metadata._SnapshotTexts()
    for snapshots in (table.metadata.snapshots, table.metadata.snapshots[:1], []):
        assert json.loads(f"[{texts.join(snapshots)}]") == [json.loads(each.model_dump_json()) for each in snapshots]
        assert 0 < len(texts._texts) <= 3
        assert texts._size == sum(map(len, texts._texts.values()))


def test_a_clock_that_is_behind_dates_no_metadata_before_its_snapshots(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java refuses to read such a table. PyIceberg dates changes without a new snapshot by the clock."""
    append(foreign_table(catalog, PATH), 1)
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    monkeypatch.setattr("pyiceberg.table.update.datetime", SimpleNamespace(now=lambda: an_hour_ago))
    for value in ("1", "2"):
        catalog.commit_table(catalog.load_table(PATH), (), (SetPropertiesUpdate(updates={"a": value}),))
    metadata = catalog.load_table(PATH).metadata
    assert metadata.properties["a"] == "2"
    logged = [entry.timestamp_ms for entry in metadata.metadata_log]
    assert metadata.last_updated_ms >= max(*logged, metadata.snapshots[0].timestamp_ms)


def test_other_threads_read_tables_while_one_commits(catalog: Catalog) -> None:
    table, base = foreign_table(catalog, PATH), CommitBase()
    with ThreadPoolExecutor(1) as other_thread:

        def send() -> CommitTableResponse:
            assert base.table is not None
            assert other_thread.submit(lambda: base.table).result() is None
            return catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))

        base.commit(table, send)
    assert base.table is None


def test_metadata_that_this_process_wrote_is_not_read_again(catalog: Catalog, tmp_path: Path) -> None:
    append(foreign_table(catalog, PATH), 1)
    append(catalog.load_table(PATH), 2)
    table = catalog.load_table(PATH)
    assert table.metadata == local_catalog(tmp_path).load_table(PATH).metadata
    Path(table.metadata_location.removeprefix("file://")).unlink()
    assert catalog.load_table(PATH).metadata is table.metadata


def test_metadata_of_other_writers_is_read(catalog: Catalog, tmp_path: Path) -> None:
    append(foreign_table(catalog, PATH), 1)
    other = local_catalog(tmp_path)
    append(other.load_table(PATH), 2)
    assert catalog.load_table(PATH).metadata == other.load_table(PATH).metadata


def test_metadata_with_many_snapshots_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "KEPT_SNAPSHOTS", 1)
    catalog = local_catalog(tmp_path)
    append(foreign_table(catalog, PATH), 1)
    append(catalog.load_table(PATH), 2)
    assert catalog.load_table(PATH).metadata is not catalog.load_table(PATH).metadata
