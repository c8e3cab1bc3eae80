"""A Load returns the newest row of a key that has several, whatever compactions have done to the files.

Another engine has added a row of a key that the table has already. Its file is not compacted, and that of the older row
is: the new file is younger than the newer row.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from connector.encoding.parquet.file_options import Destination
from connector.host.refresh import Lease
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.manifests import manifests_of
from connector.iceberg.table_view import ViewFactory
from connector.model.binding import Binding, Column
from connector.model.properties import Properties
from connector.model.state import StagedCommit, WriterId
from connector.session.loads import SearchedTable, TransactionLoads
from connector.spark.blocks.transaction_files import TableLayout
from protocol.flow import WHOLE_RANGE
from protocol.request import Load
from support.bindings import PATH
from support.engines.recording_spark import RecordingSpark
from support.layouts import fixed
from support.rows.staged_rows import staged
from support.rows.updated_rows import UPDATES, land, make_table, row, stage_updates
from support.tables.altered_tables import append
from support.tables.compacting import EAGER, compact
from support.tables.local_tables import upgrade_to_version_3

OTHER = WriterId("acme/other", "orders.v1", WHOLE_RANGE.key_range)


@pytest.fixture(params=[2, 3], ids="format version {}".format)
def catalog(request: pytest.FixtureRequest, catalog: Catalog) -> Catalog:
    make_table(catalog)
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)
    if request.param == 3:
        upgrade_to_version_3(catalog, PATH)
    return catalog


def load(catalog: Catalog, directory: Path, number: int, *pending: StagedCommit) -> Any:
    """The value that a Load of this id returns."""
    table = catalog.load_table(PATH)
    view = ViewFactory(ManifestCache()).make(table, pending)
    binding = Binding(0, "key", PATH, (Column("id", "id", 1, LongType(), required=True),), (), None, updates=UPDATES)
    layout = TableLayout(binding, Destination.of_table(table, "prefix"), Lease(Properties(), None))
    searched = SearchedTable(binding, lambda _: view)
    spark: Any = RecordingSpark()
    loads = TransactionLoads(spark, directory / "loads", {0: searched}, fixed(layout))
    loads.add(Load(0, 1, 1, (b'{"load":{"key":[%d]}}\n' % number,)))
    [line] = b"".join(loads.answer()).splitlines()
    loads.close()
    return json.loads(line)["loaded"]["doc"]["value"]


def add(catalog: Catalog, number: int, value: str) -> None:
    """Another program adds a row. PyIceberg cannot write to version 3."""
    if catalog.load_table(PATH).metadata.format_version == 2:
        append(catalog, row(number, value))
    else:
        commit_all_or_raise(catalog, [staged(catalog, row(number, value), writer=OTHER)])


def data_files(catalog: Catalog) -> int:
    files = ManifestCache().list_files(catalog.load_table(PATH))
    return sum(file.content is DataFileContent.DATA for file in files)


def compact_the_older_row(catalog: Catalog) -> None:
    land(catalog, {1: "old", 2: "a"})
    add(catalog, 1, "new")
    land(catalog, {}, removed=[2])
    result = compact(catalog, PATH)
    assert (result.files_before, result.files_after, data_files(catalog)) == (1, 1, 2)


def test_a_compaction_of_older_rows_does_not_make_them_the_newest(catalog: Catalog, tmp_path: Path) -> None:
    compact_the_older_row(catalog)
    assert load(catalog, tmp_path, 1) == "new"


@pytest.mark.parametrize("is_sorted", [False, True], ids=["in the order of the sources", "sorted"])
def test_rows_of_several_compactions_keep_their_order(catalog: Catalog, tmp_path: Path, is_sorted: bool) -> None:
    if is_sorted:
        with catalog.load_table(PATH).update_sort_order() as order:
            order.asc("doc", IdentityTransform())
    compact_the_older_row(catalog)
    for number in range(3, 9):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    assert data_files(catalog) == 1
    assert load(catalog, tmp_path, 1) == "new"
    add(catalog, 1, "newest")
    assert load(catalog, tmp_path, 1) == "newest"


def test_a_pending_row_is_newer_than_all_of_the_table(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "old"})
    pending = stage_updates(catalog, {2: "pending"})
    add(catalog, 2, "of another writer")
    compact(catalog, PATH)
    assert load(catalog, tmp_path, 2, pending) == "pending"


def land_together(catalog: Catalog, *transactions: Sequence[Any]) -> None:
    """Transactions with delta updates that their table has refused until now become one snapshot."""
    run: list[StagedCommit] = []
    for rows in transactions:
        run.append(staged(catalog, *rows, after=run[-1] if run else None, writer=OTHER))
    commit_all_or_raise(catalog, run)
    assert len(catalog.load_table(PATH).snapshots()) == 1


def test_rows_of_transactions_in_one_snapshot_keep_their_order(catalog: Catalog, tmp_path: Path) -> None:
    land_together(catalog, *([row(1, value)] for value in "abcdef"))
    assert load(catalog, tmp_path, 1) == "f"
    compact(catalog, PATH)
    assert data_files(catalog) == 1
    assert load(catalog, tmp_path, 1) == "f"


@pytest.mark.parametrize("is_sorted", [False, True], ids=["in the order of the sources", "sorted"])
def test_a_compaction_of_some_transactions_of_a_snapshot_keeps_the_order_of_all(
    catalog: Catalog, tmp_path: Path, is_sorted: bool
) -> None:
    if is_sorted:
        with catalog.load_table(PATH).update_sort_order() as order:
            order.asc("doc", IdentityTransform())
    land_together(catalog, [row(1, "z"), row(2, "a")], [row(1, "m")], [row(3, "b")])
    land(catalog, {}, removed=[2])
    result = compact(catalog, PATH)
    assert (result.files_before, result.files_after, data_files(catalog)) == (1, 1, 3)
    assert load(catalog, tmp_path, 1) == "m"
    for number in range(4, 9):
        land(catalog, {number: "a"})
    compact(catalog, PATH)
    assert data_files(catalog) == 1
    assert load(catalog, tmp_path, 1) == "m"


def test_a_conflict_gives_new_sequence_numbers_to_transactions_of_one_snapshot(catalog: Catalog) -> None:
    """Otherwise deletes that the other commit has brought would apply to the new rows, or an older row would win."""
    run = [staged(catalog, row(1, "a"), writer=OTHER)]
    run.append(staged(catalog, row(1, "b"), after=run[0], writer=OTHER))
    written = SnapshotWriter()
    table = catalog.load_table(PATH)
    written.append(table, run)
    land(catalog, {7: "x"})
    table = catalog.load_table(PATH)
    assert not isinstance(table.metadata, TableMetadataV1)
    snapshot = written.append(table, run)
    last = table.metadata.last_sequence_number
    assert snapshot.sequence_number == last + 2
    manifests = manifests_of(table, snapshot)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    assert sorted(entry.sequence_number or 0 for entry in entries) == [last, last + 1, last + 2]
