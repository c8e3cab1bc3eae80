"""The table says which snapshots were told: also after a crash, with several shards, and when it was turned off."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.model.state import StagedCommit, WriterId, encode_added
from connector.model.table_identifier import TableIdentifier
from connector.notifications.notified_snapshots import find_mark, find_newer, mark_commit
from connector.notifications.table_queue import TableQueue
from connector.rpc.apply import apply
from protocol import request
from protocol.flow import MaterializationBinding
from support.bindings import (
    ID,
    MATERIALIZATION,
    PATH,
    collection,
    local_config,
    materialization,
    materialization_binding,
    projection,
)
from support.rows.staged_files import stage
from support.rows.staged_rows import WRITER
from support.tables.local_tables import foreign_table, local_catalog

TASK: Final = "acme/task"
LEFT: Final = WriterId(TASK, "orders.v1", "00000000-7fffffff")
RIGHT: Final = replace(LEFT, key_range="80000000-ffffffff")


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH)
    return catalog


def metadata_of(catalog: Catalog) -> TableMetadata:
    return catalog.load_table(PATH).metadata


def commit(catalog: Catalog, id_: int, writer: WriterId = LEFT, notified: int | None = 0) -> StagedCommit:
    """A commit of a process that has told the snapshots up to `notified`; None: notifications are off."""
    staged = replace(stage(catalog, PATH, writer, id_), is_recovered=True)
    mark = partial(mark_commit, writer.materialization, notified=notified or 0)
    writers = SnapshotWriters() if notified is None else SnapshotWriters(mark=mark)
    commit_all_or_raise(catalog, [staged], writers)
    return staged


def untold(catalog: Catalog) -> Sequence[int]:
    """The sequence numbers of the snapshots that a new session tells."""
    metadata = metadata_of(catalog)
    mark = find_mark(metadata, TASK)
    assert mark is not None
    return [snapshot.sequence_number or 0 for snapshot in find_newer(metadata, TASK, mark)]


def test_a_table_without_a_mark_has_nothing_to_tell(catalog: Catalog) -> None:
    commit(catalog, 1, notified=None)
    assert find_mark(metadata_of(catalog), TASK) is None
    assert find_newer(metadata_of(catalog), TASK, 0) == []


def test_what_was_committed_before_notifications_were_turned_on_is_not_told(catalog: Catalog) -> None:
    commit(catalog, 1, notified=None)
    commit(catalog, 2)
    assert untold(catalog) == [2]
    assert find_mark(metadata_of(catalog), TASK) == 1


def test_a_crash_before_the_first_message_leaves_all_to_the_successor(catalog: Catalog) -> None:
    for id_ in (1, 2, 3):
        commit(catalog, id_)
    assert untold(catalog) == [1, 2, 3]


def test_a_successor_goes_on_after_what_was_told(catalog: Catalog) -> None:
    commit(catalog, 1)
    commit(catalog, 2, notified=1)
    commit(catalog, 3, notified=2)
    assert untold(catalog) == [3]


def test_snapshots_are_told_in_their_order_whatever_the_order_in_the_metadata(catalog: Catalog) -> None:
    """Servers that are written in Rust keep snapshots in a hash map."""
    for id_ in (1, 2, 3, 4):
        commit(catalog, id_, notified=id_ // 2)
    metadata = metadata_of(catalog)
    mixed = metadata.model_copy(update={"snapshots": [metadata.snapshots[place] for place in (1, 3, 0, 2)]})
    assert find_mark(mixed, TASK) == 2
    assert [snapshot.sequence_number for snapshot in find_newer(mixed, TASK, 1)] == [2, 3, 4]


def test_a_mark_never_decreases(catalog: Catalog) -> None:
    """A shard that has just started has told nothing itself; the other one has."""
    commit(catalog, 1)
    commit(catalog, 2, notified=1)
    commit(catalog, 3, RIGHT, notified=0)
    assert find_mark(metadata_of(catalog), TASK) == 1
    assert untold(catalog) == [2, 3]


def test_a_mark_is_not_below_that_of_another_shard(catalog: Catalog) -> None:
    """That shard has told more snapshots than this one."""
    for id_ in (1, 2, 3):
        commit(catalog, id_, notified=id_ - 1)
    commit(catalog, 4, RIGHT, notified=1)
    assert find_mark(metadata_of(catalog), TASK) == 2
    assert untold(catalog) == [3, 4]


def test_a_message_that_another_shard_has_told_is_not_posted(catalog: Catalog) -> None:
    queue = TableQueue(TableIdentifier(*PATH))
    for id_ in (1, 2, 3):
        commit(catalog, id_)
    queue.add(metadata_of(catalog), TASK)
    assert [queue.waiting, queue.first and queue.first.sequence_number] == [3, 1]
    commit(catalog, 4, RIGHT, notified=2)
    queue.add(metadata_of(catalog), TASK)
    assert [queue.waiting, queue.first and queue.first.sequence_number] == [2, 3]


def test_what_was_committed_while_notifications_were_off_is_not_told(catalog: Catalog) -> None:
    commit(catalog, 1)
    commit(catalog, 2, notified=None)
    commit(catalog, 3)
    assert untold(catalog) == [1, 3]


@pytest.mark.parametrize("is_on", [True, False])
def test_what_an_apply_commits_is_left_to_the_next_session(tmp_path: Path, is_on: bool) -> None:
    """Before it alters a table, an apply commits what a session has staged for it."""
    bound = collection(ID, projection("note", "string"))
    notify = {"notify": {"url": "https://hooks.example.com/"}} if is_on else {}
    old, new = materialization_binding(bound), materialization_binding(bound, "note")

    def apply_binding(binding: MaterializationBinding, **others: Any) -> None:
        task = materialization(local_config(tmp_path / "lake") | notify, binding)
        apply(request.Apply(task, **others))

    apply_binding(old)
    catalog = local_catalog(tmp_path / "lake")
    staged = stage(catalog, PATH, WRITER, 1, 2)
    before = materialization(local_config(tmp_path / "lake"), old)
    apply_binding(new, last_materialization=before, state=encode_added([staged]))
    [snapshot] = metadata_of(catalog).snapshots
    assert (find_mark(metadata_of(catalog), MATERIALIZATION) == 0) is is_on
    assert find_newer(metadata_of(catalog), MATERIALIZATION, 0) == [snapshot] * is_on


def test_commits_of_others_are_not_told(catalog: Catalog) -> None:
    commit(catalog, 1)
    catalog.load_table(PATH).append(
        pa.table({"id": [7]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    )
    commit(catalog, 3, replace(LEFT, materialization="acme/other"))
    commit(catalog, 4)
    assert untold(catalog) == [1, 4]


def test_a_mark_that_was_changed_by_hand_is_none(catalog: Catalog) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    for mark in ("many", "-1", "9" * 30, ""):
        summary = {"flow.materialization": TASK, "flow.notified": mark}
        catalog.load_table(PATH).append(pa.table({"id": [7]}, schema=schema), summary)
    assert find_mark(metadata_of(catalog), TASK) is None
