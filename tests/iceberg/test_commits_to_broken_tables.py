"""Metadata that is damaged: no commit drops rows that it cannot find, and the other tables get their commits."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError as InvalidMetadataError

from connector.host.errors import RetryableError, UserError
from connector.iceberg.commits.commit_outcomes import Committed, Failed
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.loaded_tables import load_table
from connector.iceberg.metadata import avro_files
from connector.iceberg.metadata.manifests import ManifestListWriter, manifests_of
from connector.iceberg.metadata.row_lineage import LIST_FIELDS
from connector.model.state import StagedCommit
from connector.model.table_identifier import TableIdentifier
from support.bindings import PATH
from support.rows.staged_files import place_of
from support.snapshots import check_text
from support.tables.commits_of_ids import ARROW_SCHEMA, SCHEMA, commit_staged, stage_ids
from support.tables.local_tables import change_metadata, cut_manifest, cut_manifest_list, ids_of
from support.tables.outcomes import try_commits


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA)
    return catalog


def record_summary(catalog: Catalog, summary: dict[str, str]) -> None:
    """Let the current snapshot have this summary, as if another engine had written it."""
    record_in_snapshot(catalog, {"summary": {"operation": "append", **summary}})


def record_in_snapshot(catalog: Catalog, fields: dict[str, Any]) -> None:
    change_metadata(catalog.load_table(PATH), lambda metadata: metadata["snapshots"][-1].update(fields))


def test_one_tables_error_does_not_keep_the_others_from_being_committed(catalog: Catalog) -> None:
    gone = replace(stage_ids(catalog, [1]), path=TableIdentifier("shop", "gone"))
    staged = stage_ids(catalog, [2])
    with pytest.raises(UserError, match=r"shop\.gone is gone"):
        commit_staged(catalog, gone, staged)
    assert ids_of(catalog, PATH) == [2]


def in_another_table(catalog: Catalog, staged: StagedCommit) -> StagedCommit:
    """The same rows, staged for a table whose current manifest list is to be spoilt."""
    path = TableIdentifier("shop", "broken")
    table = catalog.create_table(path, SCHEMA)
    table.append(pa.table({"id": [1]}))
    return replace(staged, path=path, table_uuid=str(table.metadata.table_uuid))


def test_no_commit_drops_the_rows_that_the_lost_part_of_a_manifest_lists(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_files, "BLOCK_SIZE", 1)  # each entry is a block
    for first, second in ([1, 2], [3, 4]):
        pending = stage_ids(catalog, [first])
        commit_staged(catalog, pending, stage_ids(catalog, [second], prev=pending.next))
    file, whole = cut_manifest(catalog.load_table(PATH))
    with catalog.load_table(PATH).transaction() as others:  # the next commit reads the manifests, and merges them
        others.set_properties({"commit.manifest.min-count-to-merge": "2"})
    commit_staged(catalog, stage_ids(catalog, [5]))
    file.write_bytes(whole)
    assert ids_of(catalog, PATH) == [1, 2, 3, 4, 5]


def test_no_commit_drops_the_rows_of_a_manifest_list_that_ends_behind_its_header(catalog: Catalog) -> None:
    commit_staged(catalog, stage_ids(catalog, [1]))
    table = catalog.load_table(PATH)
    file, whole = cut_manifest_list(table)
    staged = stage_ids(catalog, [2])
    [failed] = try_commits(catalog, [staged])
    assert isinstance(failed, Failed)
    assert file.name in str(failed.error)
    with pytest.raises(InvalidMetadataError) as error:
        manifests_of(table, table.current_snapshot())
    names = {file.as_uri(): "file:///…/snap-….avro"}
    check_text("commit_errors", "a manifest list that ends behind its header", str(error.value), names)
    file.write_bytes(whole)
    commit_staged(catalog, staged)
    assert ids_of(catalog, PATH) == [1, 2]


@pytest.mark.parametrize("totals", [{}, {"total-data-files": "0"}, {"total-data-files": "many"}])
def test_a_manifest_list_may_be_empty_if_the_summary_names_no_files(catalog: Catalog, totals: dict[str, str]) -> None:
    """Engines write one if the first rows are none. Some count no totals."""
    catalog.load_table(PATH).append(ARROW_SCHEMA.empty_table())
    cut_manifest_list(catalog.load_table(PATH))
    record_summary(catalog, totals)
    commit_staged(catalog, stage_ids(catalog, [1]))
    assert ids_of(catalog, PATH) == [1]


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"no Avro at all" * 9])
def test_broken_metadata_are_one_tables_failure(catalog: Catalog, content: bytes) -> None:
    staged = stage_ids(catalog, [2])
    broken = in_another_table(catalog, staged)
    current = catalog.load_table(broken.path).current_snapshot()
    assert current is not None
    Path(current.manifest_list.removeprefix("file://")).write_bytes(content)
    failed, landed = try_commits(catalog, [broken, staged])
    assert isinstance(failed, Failed)
    assert "shop.broken" in str(failed.error)
    if not content:
        names = {current.manifest_list: "file:///…/snap-….avro"}
        check_text("commit_errors", "metadata that cannot be read", str(failed.error), names)
    assert isinstance(landed, Committed)
    assert ids_of(catalog, PATH) == [2]


@pytest.mark.parametrize("what", ["manifest list", "manifest"])
def test_metadata_in_another_kind_of_store_are_not_opened(catalog: Catalog, what: str) -> None:
    """Of a table in a bucket, who may commit would choose files of this machine. A pipe would stop the task."""
    catalog.load_table(PATH).append(pa.table({"id": [1]}))
    table = catalog.load_table(PATH)
    location = f"s3://payroll/{what}.avro"
    if what == "manifest":
        [manifest] = manifests_of(table, table.current_snapshot())
        manifest[LIST_FIELDS.index("manifest_path")] = location
        location = f"{table.location()}/metadata/list.avro"
        with ManifestListWriter(table.io.new_output(location), 1, None, 1) as writer:
            writer.add_manifests([manifest])
    record_in_snapshot(catalog, {"manifest-list": location})
    [failed] = try_commits(catalog, [stage_ids(catalog, [2])])
    assert isinstance(failed, Failed)
    name = f"a {what} in another kind of store"
    check_text("commit_errors", name, str(failed.error), {table.location(): "file:///…"})


def compress_metadata(catalog: SqlCatalog, spoil: Callable[[bytes], bytes]) -> None:
    """Let the table have compressed metadata, as other engines write them, that are spoilt."""
    file = place_of(catalog.load_table(PATH).metadata_location)
    compressed = file.with_name("newer.gz.metadata.json")
    compressed.write_bytes(spoil(gzip.compress(file.read_bytes())))
    with catalog.engine.begin() as connection:
        update = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?"
        connection.exec_driver_sql(update, (compressed.as_uri(), PATH.name))


RECORDED: Final = {"cut short, compressed": "a damaged metadata file", "empty": "an empty metadata file"}


def spoil_metadata(catalog: SqlCatalog, spoil: Callable[[bytes], bytes]) -> None:
    file = place_of(catalog.load_table(PATH).metadata_location)
    file.write_bytes(spoil(file.read_bytes()))


@pytest.mark.parametrize(
    ("change", "spoil"),
    [
        pytest.param(compress_metadata, lambda content: content[:-20], id="cut short, compressed"),
        pytest.param(compress_metadata, lambda content: content[:20] + bytes(20) + content[40:], id="overwritten"),
        pytest.param(compress_metadata, lambda content: gzip.decompress(content), id="not compressed"),
        pytest.param(compress_metadata, lambda _: gzip.compress(b"\xff"), id="no text"),
        pytest.param(compress_metadata, lambda _: gzip.compress(b"{}"), id="without its parts"),
        pytest.param(spoil_metadata, lambda content: content[:-20], id="cut short"),
        pytest.param(spoil_metadata, lambda _: b"", id="empty"),
    ],
)
def test_a_damaged_metadata_file_is_told_to_commits_and_to_the_next_publication(
    catalog: SqlCatalog,
    change: Callable[[SqlCatalog, Callable[[bytes], bytes]], None],
    spoil: Callable[[bytes], bytes],
    request: pytest.FixtureRequest,
) -> None:
    pending = stage_ids(catalog, [1])
    change(catalog, spoil)
    [failed] = try_commits(catalog, [pending])
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, RetryableError)
    assert str(failed.error).startswith(
        "table shop.orders: its metadata cannot be read (ValidationError: its metadata file is damaged: "
    )
    assert "drop the table in its catalog and publish the task again" in str(failed.error), "no backfill can begin"
    if recorded := RECORDED.get(request.node.callspec.id):
        check_text("commit_errors", recorded, str(failed.error))
    with pytest.raises(UserError, match="its metadata file is broken"):
        load_table(catalog, PATH)


def test_a_mistake_of_the_connector_is_not_taken_for_broken_metadata(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(SnapshotWriter, "append", fail)
    with pytest.raises(KeyError, match="a mistake"):
        try_commits(catalog, [stage_ids(catalog, [1])])


def test_a_partition_spec_that_is_gone_is_one_tables_failure(catalog: Catalog) -> None:
    staged = stage_ids(catalog, [2])
    broken = replace(in_another_table(catalog, staged), spec_id=7)
    failed, landed = try_commits(catalog, [broken, staged])
    assert isinstance(failed, Failed)
    check_text("commit_errors", "staged files of a partition spec that is gone", str(failed.error))
    assert isinstance(landed, Committed)
