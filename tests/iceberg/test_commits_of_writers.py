"""Which writers a table takes commits from: after a split, in a new session, or when the table was replaced."""

import uuid
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from connector.host.errors import FencedError, UserError
from connector.iceberg.commits.commit_outcomes import Committed, Failed
from connector.iceberg.fences import fence
from connector.model.state import StagedCommit
from support.bindings import PATH
from support.snapshots import check_text
from support.tables.commits_of_ids import LEFT, REFUSED, RIGHT, SCHEMA, WHOLE, commit_staged, foreign_append, stage_ids
from support.tables.local_tables import ids_of
from support.tables.outcomes import try_commits
from support.tables.planted_faults import Fault, do_first, plant, plant_always


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA)
    return catalog


def test_a_stale_process_is_refused_by_the_table(catalog: Catalog) -> None:
    stale, successor = stage_ids(catalog, [1]), stage_ids(catalog, [2])
    commit_staged(catalog, successor)
    with pytest.raises(FencedError):
        commit_staged(catalog, stale)
    assert ids_of(catalog, PATH) == [2]


def test_a_stale_process_is_refused_in_the_middle_of_a_conflict(catalog: Catalog) -> None:
    """Its successor commits between its look at the table and its commit: a blind retry would append twice."""
    stale, successor = stage_ids(catalog, [1]), stage_ids(catalog, [2])
    plant(catalog, [do_first(lambda: commit_staged(catalog, successor))])
    with pytest.raises(FencedError):
        commit_staged(catalog, stale)
    assert ids_of(catalog, PATH) == [2]


def test_a_table_that_was_replaced_gets_nothing(catalog: Catalog) -> None:
    staged = stage_ids(catalog, [1])
    catalog.drop_table(PATH)
    with pytest.raises(UserError) as gone:
        commit_staged(catalog, staged)
    check_text("commit_errors", "a table that is gone", str(gone.value), {staged.table_uuid: "UUID"})
    new = catalog.create_table(PATH, SCHEMA)
    with pytest.raises(UserError) as replaced:
        commit_staged(catalog, staged)
    uuids = {staged.table_uuid: "UUID", str(new.metadata.table_uuid): "NEW UUID"}
    check_text("commit_errors", "a table that was replaced", str(replaced.value), uuids)
    assert ids_of(catalog, PATH) == []


def test_the_fence_survives_the_expiry_of_our_snapshots(catalog: Catalog) -> None:
    first = stage_ids(catalog, [1])
    commit_staged(catalog, first)
    foreign_append(catalog, 100)
    table = catalog.load_table(PATH)
    ours = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    commit_staged(catalog, first, is_recovery=True)
    assert ids_of(catalog, PATH) == [1, 100]


def test_a_child_finishes_its_parents_transaction_and_fences_the_parent(catalog: Catalog) -> None:
    first = stage_ids(catalog, [1])
    commit_staged(catalog, first)
    pending = stage_ids(catalog, [2], prev=first.next)
    for _ in (LEFT, RIGHT):
        commit_staged(catalog, pending, is_recovery=True)
    commit_staged(catalog, stage_ids(catalog, [3], key_range=LEFT))
    commit_staged(catalog, stage_ids(catalog, [4], key_range=RIGHT))
    with pytest.raises(FencedError):
        commit_staged(catalog, stage_ids(catalog, [5], prev=pending.next))
    assert ids_of(catalog, PATH) == [1, 2, 3, 4]


@pytest.mark.parametrize("older", [WHOLE, LEFT])
def test_a_range_that_has_never_committed_is_fenced_by_the_first_commit_of_one_that_overlaps_it(
    catalog: Catalog, older: str
) -> None:
    """It has no property that could be closed, be it a parent before a split or a child before a join."""
    newer = LEFT if older == WHOLE else WHOLE
    stale = stage_ids(catalog, [1], key_range=older)
    commit_staged(catalog, stage_ids(catalog, [2], key_range=newer))
    with pytest.raises(FencedError):
        commit_staged(catalog, stale)
    assert ids_of(catalog, PATH) == [2]


def test_a_first_transaction_that_the_log_committed_lands_whatever_happened_to_the_ranges_before_it(
    catalog: Catalog,
) -> None:
    parents = stage_ids(catalog, [1])
    childs = stage_ids(catalog, [2], key_range=LEFT)
    commit_staged(catalog, parents, is_recovery=True)
    commit_staged(catalog, childs, is_recovery=True)
    assert ids_of(catalog, PATH) == [1, 2]


def test_what_earlier_sessions_staged_lands_before_a_sessions_own(catalog: Catalog) -> None:
    """Our commit closes the value that theirs is staged on, and what is staged on a closed value may be deleted."""
    parents = replace(stage_ids(catalog, [1]), is_recovered=True)
    own = stage_ids(catalog, [2], key_range=LEFT, waiting=[parents])
    try_commits(catalog, [own, parents])
    newest = [snapshot.summary["flow.fence"] for snapshot in catalog.load_table(PATH).snapshots() if snapshot.summary]
    assert newest == [parents.next, own.next]


def test_a_table_that_has_refused_what_earlier_sessions_staged_is_not_asked_for_a_sessions_own(
    catalog: Catalog,
) -> None:
    parents = replace(stage_ids(catalog, [1]), is_recovered=True)
    own = stage_ids(catalog, [2], key_range=LEFT, waiting=[parents])
    plant(catalog, [REFUSED])
    outcomes = try_commits(catalog, [own, parents], without_retry={parents.chain_id})
    assert [type(outcome) for outcome in outcomes] == [Failed] * 2
    assert ids_of(catalog, PATH) == []


def test_what_waits_for_a_table_that_was_replaced_holds_up_nothing(catalog: Catalog) -> None:
    of_the_old_one = replace(stage_ids(catalog, [1]), is_recovered=True, table_uuid=str(uuid.uuid4()))
    outcomes = try_commits(catalog, [stage_ids(catalog, [2], key_range=LEFT), of_the_old_one])
    assert {type(outcome) for outcome in outcomes} == {Failed, Committed}
    assert ids_of(catalog, PATH) == [2]


def test_an_old_state_key_goes_inert_with_the_first_commit_of_the_new_one(catalog: Catalog) -> None:
    """A backfill that keeps the rows goes on in the same table."""
    old = stage_ids(catalog, [1])
    commit_staged(catalog, old)
    stale = stage_ids(catalog, [666], prev=old.next)
    commit_staged(catalog, stage_ids(catalog, [2], state_key="orders.v2"))
    with pytest.raises(FencedError):
        commit_staged(catalog, stale)
    assert fence.read_value(catalog.load_table(PATH).properties, old.writer) == f"closed:{old.next}"
    commit_staged(catalog, old, is_recovery=True)
    assert ids_of(catalog, PATH) == [1, 2]


def test_siblings_do_not_fence_each_other(catalog: Catalog) -> None:
    commit_staged(catalog, stage_ids(catalog, [1]))
    left, right = stage_ids(catalog, [2], key_range=LEFT), stage_ids(catalog, [3], key_range=RIGHT)
    commit_staged(catalog, left)
    commit_staged(catalog, right)
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_a_range_that_was_split_and_joined_goes_on_from_the_closed_value(catalog: Catalog) -> None:
    first = stage_ids(catalog, [1])
    commit_staged(catalog, first)
    commit_staged(catalog, stage_ids(catalog, [2], key_range=LEFT))
    recorded = fence.read_value(catalog.load_table(PATH).properties, first.writer)
    assert recorded == f"closed:{first.next}"
    commit_staged(catalog, stage_ids(catalog, [3], prev=recorded))
    left = fence.read_value(catalog.load_table(PATH).properties, replace(first.writer, key_range=LEFT))
    assert left.startswith("closed:")
    assert ids_of(catalog, PATH) == [1, 2, 3]


def answer_with(table: Table) -> Fault:
    """The catalog answers with a table as it was: from a replica that lags, or from a cache."""
    return lambda _: table


@pytest.fixture
def older(catalog: Catalog) -> Table:
    """The table as it was before its last commit."""
    commit_staged(catalog, stage_in_order(catalog, 1))
    table = catalog.load_table(PATH)
    commit_staged(catalog, stage_in_order(catalog, 2))
    return table


def stage_in_order(catalog: Catalog, number: int, key_range: str = WHOLE) -> StagedCommit:
    staged = stage_ids(catalog, [number], key_range=key_range)
    return replace(staged, next=fence.new_value(staged.prev))


@pytest.mark.parametrize("key_range", [WHOLE, LEFT])
def test_an_older_answer_is_not_taken_for_the_commit_of_another_process(
    catalog: Catalog, older: Table, key_range: str
) -> None:
    """It has an older value of the session's own range, or of the one that was split."""
    staged = stage_in_order(catalog, 3, key_range)
    plant(catalog, [answer_with(older)], "load_table")
    commit_staged(catalog, staged)
    assert ids_of(catalog, PATH) == [1, 2, 3]


def test_one_older_answer_ends_no_session_whose_table_has_failed_before(catalog: Catalog, older: Table) -> None:
    """Such a table gets a single attempt, but one answer does not show that the table was restored."""
    staged = stage_in_order(catalog, 3)
    plant(catalog, [answer_with(older)], "load_table")
    [outcome] = try_commits(catalog, [staged], [staged.chain_id])
    assert isinstance(outcome, Committed)
    assert ids_of(catalog, PATH) == [1, 2, 3]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_process_stops_if_the_table_stays_older(
    catalog: Catalog, older: Table, monkeypatch: pytest.MonkeyPatch, *, has_failed: bool
) -> None:
    """Its catalog was restored."""
    monkeypatch.setattr("connector.iceberg.commits.commit.RETRY_FOR", 0.01)
    staged = stage_in_order(catalog, 3)
    plant_always(catalog, answer_with(older), "load_table")
    [outcome] = try_commits(catalog, [staged], [staged.chain_id] if has_failed else [])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, FencedError)
    assert "lacks the last 1 transaction" in str(outcome.error)
