"""A key has one row, whatever happens between the search for its older row and the commit that deletes it."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import DoubleType, StringType

from connector.encoding.search.row_search import search
from connector.host.errors import UnfitCommitError
from connector.iceberg.commits import row_deletes
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.reset import Decision, perform_reset, plan_reset
from connector.iceberg.commits.row_deletes import RowDeletes
from connector.iceberg.metadata import listed_files
from connector.iceberg.metadata.listed_files import ManifestCache
from connector.iceberg.metadata.manifests import ManifestWriter, manifests_of
from connector.model.binding import KeyPart, Updates
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.engines.foreign_deletes import delete_position
from support.engines.snapshot_refs import point
from support.rows.staged_rows import WRITER
from support.rows.updated_rows import land, make_table, row, stage_updates, values_of
from support.snapshots import check_text
from support.tables import compacting
from support.tables.altered_tables import append, entries, fit, wanted
from support.tables.compacting import EAGER
from support.tables.local_tables import local_catalog, rewrite_by_another_engine
from support.tables.planted_faults import do_first, plant, refuse

LEFT, RIGHT = (replace(WRITER, key_range=key_range) for key_range in ("00000000-7fffffff", "80000000-ffffffff"))


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_table(catalog)
    return catalog


@pytest.fixture
def searched() -> Iterator[list[str]]:
    """The files that commits have searched."""
    found: list[str] = []

    def note(io: Any, file: Any, *arguments: Any, **options: Any) -> Any:
        found.append(file.path)
        return search(io, file, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_deletes, "search", note)
        yield found


def roll_back(catalog: Catalog, snapshot_id: int) -> None:
    """Another engine makes an older snapshot the current one."""
    point(catalog, PATH, MAIN_BRANCH, snapshot_id)


def delete_files(catalog: Catalog) -> int:
    return sum(entry.data_file.content is DataFileContent.POSITION_DELETES for entry in entries(catalog))


def test_a_new_version_takes_the_place_of_the_old_one_in_one_snapshot(catalog: Catalog, searched: list[str]) -> None:
    land(catalog, {1: "a", 2: "b"})
    before = len(catalog.load_table(PATH).snapshots())
    land(catalog, {2: "c", 3: "d"})
    assert values_of(catalog) == {1: "a", 2: "c", 3: "d"}
    assert len(catalog.load_table(PATH).snapshots()) == before + 1
    assert not searched, "the table is as the search found it"


def test_a_repeated_commit_deletes_nothing_more(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    staged = land(catalog, {1: "b"})
    commit_all_or_raise(catalog, [replace(staged, is_recovered=True)])
    assert values_of(catalog) == {1: "b"}


def test_a_transaction_may_only_delete(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "b"})
    staged = land(catalog, {}, removed=[1])
    assert staged.file_count == 0
    assert values_of(catalog) == {2: "b"}


def test_transactions_that_waited_land_in_one_snapshot_each_deleting_rows_of_the_one_before(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    pending: list[StagedCommit] = []
    for values, removed in (({1: "b", 2: "b"}, ()), ({2: "c"}, (1,)), ({1: "d", 2: "d"}, ())):
        pending.append(stage_updates(catalog, values, removed, after=pending))
    commit_all_or_raise(catalog, pending)
    assert values_of(catalog) == {1: "d", 2: "d"}


def test_a_part_of_what_waited_may_have_landed(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    first = stage_updates(catalog, {1: "b"})
    second = stage_updates(catalog, {1: "c"}, after=[first])
    commit_all_or_raise(catalog, [first])
    commit_all_or_raise(catalog, [first, second])
    assert values_of(catalog) == {1: "c"}


def test_rows_that_another_engine_has_moved_are_found_by_their_keys(catalog: Catalog) -> None:
    land(catalog, dict.fromkeys(range(10), "a"))
    staged = stage_updates(catalog, {1: "b", 8: "b"}, removed=[3])
    rewrite_by_another_engine(catalog, PATH)
    commit_all_or_raise(catalog, [staged])
    expected = {number: "b" if number in (1, 8) else "a" for number in range(10) if number != 3}
    assert values_of(catalog) == expected


def test_rows_that_move_in_the_middle_of_a_commit_are_found(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})
    other = local_catalog(tmp_path)
    plant(catalog, [do_first(lambda: rewrite_by_another_engine(other, PATH))])
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_rows_that_moved_while_transactions_waited_are_found(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a", 3: "a"})
    first = stage_updates(catalog, {1: "b", 4: "b"})
    second = stage_updates(catalog, {1: "c", 2: "c", 4: "c"}, after=[first])
    rewrite_by_another_engine(catalog, PATH)
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in (first, second)])
    assert values_of(catalog) == {1: "c", 2: "c", 3: "a", 4: "c"}


def test_a_file_is_searched_once_for_all_transactions_that_waited(
    catalog: Catalog, searched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Any] = []

    def note(table: Any, snapshot: Any) -> Any:
        listed.append(snapshot)
        return manifests_of(table, snapshot)

    land(catalog, dict.fromkeys(range(10), "a"))
    pending: list[StagedCommit] = []
    for number in range(5):
        pending.append(stage_updates(catalog, {number: "b", 9: f"c{number}"}, after=pending))
    rewrite_by_another_engine(catalog, PATH)
    append(catalog, row(10, "foreign"))
    monkeypatch.setattr(listed_files, "manifests_of", note)
    commit_all_or_raise(catalog, pending)
    assert len(searched) == len(set(searched)) == 2
    assert len(listed) == 1, "the current manifest list"
    kept, updated = dict.fromkeys(range(5, 9), "a"), dict.fromkeys(range(5), "b")
    assert values_of(catalog) == {**updated, **kept, 9: "c4", 10: "foreign"}


def test_a_search_for_several_transactions_finds_for_each_the_rows_of_its_own_keys(
    catalog: Catalog, searched: list[str]
) -> None:
    """One of them may be committed alone by the next attempt."""
    land(catalog, dict.fromkeys(range(4), "a"))
    pending: list[StagedCommit] = []
    for number in range(3):
        pending.append(stage_updates(catalog, {number: "b", 3: f"c{number}"}, after=pending))
    rewrite_by_another_engine(catalog, PATH)
    table, deletes = catalog.load_table(PATH), RowDeletes(ManifestCache())
    [file] = {entry.data_file.file_path for entry in entries(catalog)}
    ids = dict(enumerate(table.scan().to_arrow()["id"].to_pylist()))
    for chosen, expected in ((pending, {0, 1, 2, 3}), (pending[1:], {1, 2, 3}), (pending[2:], {2, 3})):
        rows = deletes.find(table, chosen, chosen)
        assert rows
        assert {ids[position] for position in rows.positions[file].tolist()} == expected
    assert len(searched) == 1


def test_many_keys_of_transactions_that_waited_are_not_in_memory_at_once(
    catalog: Catalog, searched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_deletes, "KEYS_AT_ONCE", 8)
    land(catalog, dict.fromkeys(range(10), "a"))
    pending: list[StagedCommit] = []
    for number in range(5):
        pending.append(stage_updates(catalog, {2 * number: "b", 2 * number + 1: "b"}, after=pending))
    rewrite_by_another_engine(catalog, PATH)
    commit_all_or_raise(catalog, pending)
    assert values_of(catalog) == dict.fromkeys(range(10), "b")
    assert len(searched) == 3


def test_a_row_of_the_same_key_that_another_engine_has_added_is_replaced_too(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    staged = stage_updates(catalog, {1: "b"})
    append(catalog, row(1, "foreign"))
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b"}


def test_rows_that_moved_are_found_in_files_of_which_it_is_not_known_when_they_were_added(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = {"commit.manifest.min-count-to-merge": "2"}
    land(catalog, {1: "a"})
    staged = stage_updates(catalog, {1: "b"})
    rewrite_by_another_engine(catalog, PATH)
    write_existing = ManifestWriter.existing

    def write_as_an_old_writer(self: ManifestWriter, entry: ManifestEntry) -> Any:
        entry.file_sequence_number = None  # type: ignore[assignment]
        return write_existing(self, entry)

    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(merges)
    with monkeypatch.context() as patch:
        patch.setattr(ManifestWriter, "existing", write_as_an_old_writer)
        append(catalog, row(2, "a"))
        land(catalog, {3: "a"}, writer=replace(WRITER, materialization="acme/other"))
    assert None in {entry.file_sequence_number for entry in entries(catalog)}
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a", 3: "a"}
    land(catalog, {2: "b", 3: "b"})
    assert values_of(catalog) == {1: "b", 2: "b", 3: "b"}


def test_rows_that_another_engine_has_deleted_are_none_to_delete(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})
    catalog.load_table(PATH).delete("id = 1")
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_a_table_that_was_rolled_back_is_searched_anew(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    before = catalog.load_table(PATH).current_snapshot()
    assert before
    rewrite_by_another_engine(catalog, PATH)
    staged = stage_updates(catalog, {1: "b"})
    roll_back(catalog, before.snapshot_id)
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_a_row_that_a_rollback_brings_back_is_replaced_though_its_key_was_not_there(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    before = catalog.load_table(PATH).current_snapshot()
    assert before
    land(catalog, {}, removed=[1])
    staged = stage_updates(catalog, {1: "b", 2: "b", 3: "b"})
    roll_back(catalog, before.snapshot_id)
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "b", 3: "b"}


def test_rows_that_an_older_image_has_staged_replace_what_their_loads_have_found(catalog: Catalog) -> None:
    """It did not record where new rows have their keys."""
    land(catalog, {1: "a"})
    staged = replace(stage_updates(catalog, {1: "b"}), updates=None, is_recovered=True)
    append(catalog, row(2, "foreign"))
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "foreign"}


def test_new_keys_that_their_column_cannot_tell_apart_are_told_apart_by_their_documents(catalog: Catalog) -> None:
    updates = Updates((KeyPart(1, "/id", is_exact=False),), document_id=2)
    land(catalog, {1: "a"})
    staged = stage_updates(catalog, {7: "b", 8: "b"}, updates=updates)
    append(catalog, row(7, "foreign"), {"id": 7, "doc": '{"id": "7", "value": "text"}'})
    commit_all_or_raise(catalog, [staged])
    documents = map(json.loads, catalog.load_table(PATH).scan().to_arrow()["doc"].to_pylist())
    expected = [(1, "a"), ("7", "text"), (7, "b"), (8, "b")]
    assert sorted(((each["id"], each["value"]) for each in documents), key=str) == sorted(expected, key=str)


def test_a_row_that_another_engine_has_added_is_replaced_though_its_key_was_not_there(
    catalog: Catalog, searched: list[str]
) -> None:
    land(catalog, {1: "a"})
    staged = stage_updates(catalog, {2: "b"})
    append(catalog, row(2, "foreign"))
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "a", 2: "b"}
    assert len(searched) == 1, "the Load has seen the other file"


def test_files_that_were_only_rewritten_are_not_searched_for_keys_that_were_not_there(
    catalog: Catalog, searched: list[str]
) -> None:
    with catalog.load_table(PATH).transaction() as transaction:
        transaction.set_properties(EAGER)
    land(catalog, {1: "a"})
    land(catalog, {2: "a", 4: "a"})
    land(catalog, {}, removed=[2])
    staged = stage_updates(catalog, {3: "b"})
    assert compacting.compact(catalog, PATH).commits == 1
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "a", 3: "b", 4: "a"}
    assert not searched


def test_a_row_that_a_rollback_brings_back_while_commits_wait_is_replaced(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    before = catalog.load_table(PATH).current_snapshot()
    assert before
    land(catalog, {}, removed=[1])
    pending = [stage_updates(catalog, {1: "b"})]
    pending.append(stage_updates(catalog, {1: "c"}, after=pending))
    roll_back(catalog, before.snapshot_id)
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in pending])
    assert values_of(catalog) == {1: "c"}


def test_a_row_that_a_rollback_brings_back_between_two_attempts_is_replaced(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})
    rewrite_by_another_engine(catalog, PATH)
    compacted = catalog.load_table(PATH).current_snapshot()
    [file] = entries(catalog)
    delete_position(catalog.load_table(PATH), file.data_file.file_path, 1)
    assert values_of(catalog) == {2: "a"}
    assert compacted
    other = local_catalog(tmp_path)
    plant(catalog, [do_first(lambda: roll_back(other, compacted.snapshot_id))])
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_a_snapshot_that_has_expired_since_the_search_is_not_needed(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})
    assert staged.located
    rewrite_by_another_engine(catalog, PATH)
    catalog.load_table(PATH).maintenance.expire_snapshots().by_id(staged.located.snapshot_id or 0).commit()
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b", 2: "a"}


def test_shards_with_other_keys_cost_no_search(catalog: Catalog, searched: list[str]) -> None:
    land(catalog, {1: "a"}, writer=LEFT)
    staged = stage_updates(catalog, {1: "b"}, writer=LEFT)
    land(catalog, {2: "a"}, writer=RIGHT)
    commit_all_or_raise(catalog, [staged])
    assert not searched
    staged = stage_updates(catalog, {1: "c"}, writer=LEFT)
    rewrite_by_another_engine(catalog, PATH)
    commit_all_or_raise(catalog, [staged])
    assert searched
    assert values_of(catalog) == {1: "c", 2: "a"}


def test_a_row_that_a_shard_of_another_task_adds_is_replaced(catalog: Catalog) -> None:
    """Its key ranges say nothing about the keys of this task."""
    staged = stage_updates(catalog, {1: "b"}, writer=LEFT)
    land(catalog, {1: "a"}, writer=replace(RIGHT, materialization="acme/other"))
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "b"}


def test_rows_are_found_after_their_key_column_was_converted(catalog: Catalog) -> None:
    land(catalog, {7: "a", 8: "a"})
    first = stage_updates(catalog, {7: "b", 9: "b"})
    second = stage_updates(catalog, {7: "c", 9: "c"}, after=[first])
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in (first, second)])
    found = catalog.load_table(PATH).scan().to_arrow().sort_by("id").to_pylist()
    assert [(each["id"], each["doc"][-4:]) for each in found] == [("7", '"c"}'), ("8", '"a"}'), ("9", '"c"}')]


def test_a_row_of_a_new_key_is_replaced_after_its_key_column_was_converted(catalog: Catalog) -> None:
    land(catalog, {7: "a"})
    staged = stage_updates(catalog, {8: "b"})
    append(catalog, row(8, "foreign"))
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    commit_all_or_raise(catalog, [replace(staged, is_recovered=True)])
    found = catalog.load_table(PATH).scan().to_arrow().sort_by("id").to_pylist()
    assert [(each["id"], each["doc"][-4:]) for each in found] == [("7", '"a"}'), ("8", '"b"}')]


def test_a_file_that_was_rewritten_has_rows_of_all_shards_whatever_its_name_says(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a"}, writer=LEFT)
    land(catalog, {3: "a", 4: "a"}, writer=RIGHT)
    staged = [stage_updates(catalog, {1: "b"}, writer=LEFT), stage_updates(catalog, {3: "b"}, writer=RIGHT)]
    fit(catalog, wanted("id", StringType()), wanted("doc", StringType()))
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in staged])
    assert sorted(catalog.load_table(PATH).scan().to_arrow()["id"].to_pylist()) == ["1", "2", "3", "4"]


def test_keys_that_a_converted_column_cannot_tell_apart_are_told_apart_by_their_documents(catalog: Catalog) -> None:
    even, odd = 2**53, 2**53 + 1
    land(catalog, {even: "a", odd: "a"})
    staged = replace(stage_updates(catalog, {}, removed=[odd]), is_recovered=True)
    catalog.load_table(PATH).delete(f"id = {odd}")
    fit(catalog, wanted("id", DoubleType()), wanted("doc", StringType()))
    commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {even: "a"}


def test_a_key_column_that_another_engine_has_dropped_is_named(catalog: Catalog) -> None:
    """The transaction only deletes rows: it has no files that would lose a column."""
    land(catalog, {1: "a"})
    updates = Updates((KeyPart(1, "/id"),), document_id=2)
    staged = replace(stage_updates(catalog, {}, removed=[1], updates=updates), is_recovered=True)
    table = catalog.load_table(PATH)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    table = catalog.load_table(PATH)
    table.overwrite(table.scan().to_arrow())
    with pytest.raises(UnfitCommitError) as error:
        commit_all_or_raise(catalog, [staged])
    check_text("update_errors", "another engine drops a key column while rows are to be deleted", str(error.value))


def test_a_skipped_transaction_does_not_leave_the_rows_that_it_would_have_deleted(catalog: Catalog) -> None:
    """The next one has found the rows of the skipped one, not those that are in the table."""
    land(catalog, {1: "a", 2: "a"})
    lost = stage_updates(catalog, {1: "b"})
    kept = stage_updates(catalog, {1: "c"}, after=[lost])
    Path(lost.locations[0].removeprefix("file://")).unlink()
    table = catalog.load_table(PATH)
    perform_reset(table, plan_reset(table, [lost], Decision.SKIP), "a test")
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in (lost, kept)])
    assert values_of(catalog) == {1: "c", 2: "a"}


def test_a_skipped_delete_does_not_leave_its_row_beside_the_next_one_of_the_key(catalog: Catalog) -> None:
    """The Loads of the next transaction have found no row of the key."""
    land(catalog, {1: "a", 2: "a"})
    lost = stage_updates(catalog, {}, removed=[1])
    kept = [lost, stage_updates(catalog, {1: "c"}, after=[lost])]
    kept.append(stage_updates(catalog, {3: "d"}, after=kept))
    Path(lost.locations[0].removeprefix("file://")).unlink()
    table = catalog.load_table(PATH)
    perform_reset(table, plan_reset(table, [lost], Decision.SKIP), "a test")
    commit_all_or_raise(catalog, [replace(each, is_recovered=True) for each in kept])
    assert values_of(catalog) == {1: "c", 2: "a", 3: "d"}


def test_a_transaction_that_only_deletes_may_have_landed_or_not_as_far_as_a_reset_can_tell(catalog: Catalog) -> None:
    land(catalog, {1: "a", 2: "a", 3: "a"})
    chain = [stage_updates(catalog, {5: "a"})]
    for values, removed in (({}, [1]), ({2: "b"}, []), ({}, [3]), ({}, [2])):
        chain.append(stage_updates(catalog, values, removed, after=chain))
    commit_all_or_raise(catalog, chain)
    land(catalog, {4: "a"})
    said = plan_reset(catalog.load_table(PATH), chain, Decision.SKIP).consequences[0]
    assert said.startswith("0 row(s) of 2 staged transaction(s) may be in the table or not")


def test_a_reset_says_that_newer_rows_may_be_replaced(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    stale = stage_updates(catalog, {1: "b"})
    land(catalog, {1: "c"})
    said = plan_reset(catalog.load_table(PATH), [stale], Decision.ADD).consequences[0]
    assert "replace all rows of the keys that they have updated" in said


def test_a_process_that_made_the_same_commits_first_has_deleted_their_located_rows(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(catalog, {1: "a"})
    staged = replace(stage_updates(catalog, {1: "b"}), is_recovered=True)
    assert staged.located
    assert staged.located.location
    load, other = SqlCatalog.load_table, local_catalog(tmp_path)
    located = staged.located.location

    def commit_first() -> None:
        commit_all_or_raise(other, [staged])
        other.load_table(PATH).io.delete(located)

    first = [commit_first]

    def load_before(self: SqlCatalog, identifier: Any) -> Any:
        table = load(self, identifier)
        if first and self is catalog:
            first.pop()()
        return table

    monkeypatch.setattr(SqlCatalog, "load_table", load_before)
    commit_all_or_raise(catalog, [staged])
    assert values_of(other) == {1: "b"}


def test_located_rows_that_are_gone_keep_their_commit_pending(catalog: Catalog) -> None:
    land(catalog, {1: "a"})
    staged = replace(stage_updates(catalog, {1: "b"}), is_recovered=True)
    assert staged.located
    assert staged.located.location
    catalog.load_table(PATH).io.delete(staged.located.location)
    with pytest.raises(UnfitCommitError, match="staged file\\(s\\) are gone"):
        commit_all_or_raise(catalog, [staged])
    assert values_of(catalog) == {1: "a"}


def test_an_attempt_that_was_refused_leaves_its_delete_file_to_the_next_one(catalog: Catalog, tmp_path: Path) -> None:
    land(catalog, {1: "a", 2: "a"})
    staged = stage_updates(catalog, {1: "b"})

    plant(catalog, [refuse(CommitFailedException("branch main has changed"))] * 2)
    commit_all_or_raise(catalog, [staged])
    assert len(list(tmp_path.rglob("*-deletes.parquet"))) == 1
    assert values_of(catalog) == {1: "b", 2: "a"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_transactions_leave_the_rows_of_a_dictionary(catalog: Catalog, seed: int) -> None:
    """Other engines compact, delete and append in between; transactions wait, land in parts, and are repeated."""
    chance = random.Random(seed)
    expected: dict[int, Any] = {}
    pending: list[StagedCommit] = []
    for number in range(30):
        ids = chance.sample(range(30), chance.randint(1, 12))
        removed = {each for each in ids if each in expected and chance.random() < 0.3}
        values = {each: number for each in ids if each not in removed}
        pending.append(stage_updates(catalog, values, removed, after=pending))
        expected = {key: value for key, value in expected.items() if key not in removed} | values
        if chance.random() < 0.2 and catalog.load_table(PATH).current_snapshot():
            rewrite_by_another_engine(catalog, PATH)
        if chance.random() < 0.6:
            commit_all_or_raise(catalog, pending[: chance.randint(1, len(pending))])
            for _ in range(2):
                commit_all_or_raise(catalog, pending)
            pending = []
            assert values_of(catalog) == dict(sorted(expected.items()))
    commit_all_or_raise(catalog, pending)
    assert values_of(catalog) == dict(sorted(expected.items()))
