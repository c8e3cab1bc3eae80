"""A session remembers the snapshots that it writes, and never in place of others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from connector.iceberg.commits.commit_outcomes import Committed, Failed, Outcome
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.metadata import snapshot_manifests
from connector.iceberg.metadata.listed_files import ListedFile, ManifestCache
from connector.iceberg.metadata.manifests import ManifestListWriter, manifests_of
from connector.iceberg.metadata.snapshot_manifests import KEPT_BYTES
from support.bindings import PATH
from support.rows.staged_files import stage
from support.rows.staged_rows import WRITER
from support.tables.local_tables import foreign_table, ids_of, upgrade_to_version_3
from support.tables.outcomes import try_commits

PARTITIONS: Final = 13  # position in a manifest list


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH)
    return catalog


@dataclass
class Session:
    """What a session has in memory."""

    catalog: Catalog
    manifests: ManifestCache = field(default_factory=ManifestCache)

    def land(self, *ids: int) -> Outcome:
        staged = stage(self.catalog, PATH, WRITER, *ids)
        writers = SnapshotWriters(self.manifests)
        [outcome] = try_commits(self.catalog, [staged], [staged.chain_id], writers)
        return outcome

    def list_files(self) -> list[ListedFile]:
        return self.manifests.list_files(self.catalog.load_table(PATH))


def append(catalog: Catalog, number: int) -> None:
    """As another engine does it."""
    rows = pa.table({"id": [number]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    catalog.load_table(PATH).append(rows)


def lose(catalog: Catalog, *, manifests: bool) -> None:
    """Delete the manifest list of the current snapshot, and its manifests."""
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    locations = [snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io) if manifests)]
    for location in locations:
        Path(location.removeprefix("file://")).unlink()


def test_a_commit_on_top_of_the_session_s_own_needs_no_list_from_the_store(catalog: Catalog) -> None:
    session = Session(catalog)
    session.land(1)
    session.land(2)
    lose(catalog, manifests=False)
    assert isinstance(session.land(3), Committed)
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_what_a_session_has_written_is_listed_without_the_store(catalog: Catalog) -> None:
    session, expected = Session(catalog), ManifestCache()
    for number in range(3):
        session.land(number)
        files = expected.list_files(catalog.load_table(PATH))
        lose(catalog, manifests=number == 2)
        assert session.list_files() == files


def test_what_others_have_committed_in_between_is_kept(catalog: Catalog) -> None:
    sessions = Session(catalog), Session(catalog)
    for number in range(4):
        sessions[number % 2].land(number)
    append(catalog, 100)
    sessions[0].land(4)
    assert ids_of(catalog, PATH) == [0, 1, 2, 3, 4, 100]


def drop_and_create(catalog: Catalog) -> None:
    catalog.drop_table(PATH)
    foreign_table(catalog, PATH)
    append(catalog, 100)


def register_an_older_state(catalog: Catalog) -> None:
    """The table keeps its id."""
    older = catalog.load_table(PATH).metadata.metadata_log[-1].metadata_file
    catalog.drop_table(PATH)
    catalog.register_table(PATH, older)


def roll_back(catalog: Catalog) -> None:
    table = catalog.load_table(PATH)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[-2].snapshot_id).commit()


def roll_back_and_append(catalog: Catalog) -> None:
    roll_back(catalog)
    append(catalog, 100)


def delete_rows(catalog: Catalog) -> None:
    catalog.load_table(PATH).delete("id = 1")


@pytest.mark.parametrize(
    "change",
    [
        drop_and_create,
        register_an_older_state,
        roll_back,
        roll_back_and_append,
        delete_rows,
        partial(upgrade_to_version_3, path=PATH),
    ],
)
@pytest.mark.parametrize("has_listed", [False, True])
def test_a_table_is_read_as_its_catalog_has_it_now(
    catalog: Catalog, change: Callable[[Catalog], None], has_listed: bool
) -> None:
    session = Session(catalog)
    for number in (1, 2):
        session.land(number)
        if has_listed:
            session.list_files()
    change(catalog)
    assert session.list_files() == ManifestCache().list_files(catalog.load_table(PATH))
    before = ids_of(catalog, PATH)
    assert isinstance(session.land(3), Committed)
    assert session.list_files() == ManifestCache().list_files(catalog.load_table(PATH))
    assert ids_of(catalog, PATH) == sorted([*before, 3])


def test_a_commit_that_others_have_rolled_back_does_not_come_back(catalog: Catalog) -> None:
    session = Session(catalog)
    session.land(1)
    session.land(2)
    roll_back(catalog)
    assert isinstance(session.land(3), Committed)
    assert ids_of(catalog, PATH) == [1, 3]


def test_a_long_list_is_read_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_manifests, "KEPT_BYTES", 100)
    session = Session(catalog)
    session.land(1)
    lose(catalog, manifests=False)
    assert isinstance(session.land(2), Failed)


def test_a_session_keeps_a_limited_number_of_bytes_of_a_table(catalog: Catalog) -> None:
    session = Session(catalog)
    for number in range(30):
        session.land(number)
    [kept] = session.manifests.written._newest.values()
    assert len(kept) == 2, "the manifest list and the manifest of one snapshot"
    assert sum(map(len, kept.values())) <= KEPT_BYTES


def test_manifests_of_others_without_partition_summaries_get_empty_ones(catalog: Catalog) -> None:
    """Redshift does not read lists that leave the summaries out."""
    append(catalog, 100)
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = manifests_of(table, snapshot)
    for manifest in manifests:
        manifest[PARTITIONS] = None
    with ManifestListWriter(table.io.new_output(snapshot.manifest_list), 1, None, 1) as writer:
        writer.add_manifests(manifests)
    assert [each.partitions for each in manifests_of(table, snapshot)] == [None]
    Session(catalog).land(1)
    table = catalog.load_table(PATH)
    assert [each.partitions for each in manifests_of(table, table.current_snapshot())] == [[], []]
    assert ids_of(catalog, PATH) == [1, 100]
