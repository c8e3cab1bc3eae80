"""A session remembers the manifest lists that it writes, and never in place of somebody else's."""

from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from connector.iceberg.commits import commit
from connector.iceberg.commits.outcomes import Committed, Failed, Outcome
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.metadata import manifests
from connector.iceberg.metadata.manifests import WrittenLists
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.staged_files import stage
from support.tables import foreign_table, ids_of, local_catalog

PATH: Final = TableIdentifier("shop", "orders")
WRITER: Final = WriterId("acme/task", "orders.v1", WHOLE_RANGE.key_range)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = local_catalog(tmp_path)
    foreign_table(catalog, PATH)
    return catalog


def land(session: WrittenLists, catalog: Catalog, *ids: int) -> Outcome:
    staged = stage(catalog, PATH, WRITER, *ids)
    [outcome] = commit.try_commits(catalog, [staged], [staged.chain_id], partial(SnapshotWriter, session))
    return outcome


def lose_the_manifest_list(catalog: Catalog) -> None:
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()


def test_a_commit_on_top_of_the_session_s_own_needs_no_list_from_the_store(catalog: Catalog) -> None:
    session = WrittenLists()
    land(session, catalog, 1)
    land(session, catalog, 2)
    lose_the_manifest_list(catalog)
    assert isinstance(land(session, catalog, 3), Committed)
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_what_others_have_committed_in_between_is_kept(catalog: Catalog) -> None:
    sessions = WrittenLists(), WrittenLists()
    for number in range(4):
        land(sessions[number % 2], catalog, number)
    rows = pa.table({"id": [100]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    catalog.load_table(PATH).append(rows)
    land(sessions[0], catalog, 4)
    assert ids_of(catalog, PATH) == [0, 1, 2, 3, 4, 100]


def test_a_long_list_is_read_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "KEPT_BYTES", 100)
    session = WrittenLists()
    land(session, catalog, 1)
    lose_the_manifest_list(catalog)
    assert isinstance(land(session, catalog, 2), Failed)
