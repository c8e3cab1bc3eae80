"""The fence's rules, as pure functions of property values and staged commits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from connector.host.errors import FencedError, OlderTableError, UserError
from connector.iceberg.commits import lost_commits
from connector.iceberg.fences import fence
from connector.iceberg.fences.fence import WriterFence
from connector.iceberg.fences.passed_values import is_passed, is_void, reset_value
from connector.model.state import FinishedCommit, Known, StagedCommit, WriterId
from support.bindings import PATH
from support.snapshots import check_text

WHOLE = "00000000-ffffffff"
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"
OLD_KEY, KEY = "orders.v0", "orders.v1"


def writer(key_range: str = WHOLE, state_key: str = KEY, materialization: str = "acme/orders") -> WriterId:
    return WriterId(materialization, state_key, key_range)


def value_of(name: str) -> str:
    """A fence value for a short name, which may be marked as closed or reset."""
    marks, colon, value = name.rpartition(":")
    return f"{marks}{colon}{value.encode().hex():0>32}" if value and len(value) < 32 else name


def staged(
    prev: str, next: str, of: WriterId | None = None, *, known: Known | None = None, is_recovered: bool = False
) -> StagedCommit:
    path = PATH
    return StagedCommit(
        of or writer(),
        value_of(prev),
        value_of(next),
        path,
        "a-uuid",
        0,
        0,
        (),
        is_recovered=is_recovered,
        known=known or {},
    )


def recovered(chain: Sequence[StagedCommit]) -> list[StagedCommit]:
    return [replace(commit, is_recovered=True) for commit in chain]


def recorded(values: dict[WriterId, str]) -> dict[str, str]:
    """The properties of a table that holds these values."""
    return {fence.property_name(of): value_of(value) for of, value in values.items()}


def whole(value: str) -> dict[str, str]:
    return recorded({writer(): value})


FIRST, SECOND, THIRD = staged("a0", "a1"), staged("a1", "a2"), staged("a2", "a3")
CHAIN = [FIRST, SECOND, THIRD]


# What has landed


@pytest.mark.parametrize(
    ("value", "rest"),
    [("a0", CHAIN), ("a1", [SECOND, THIRD]), ("a2", [THIRD]), ("a3", [])],
)
@pytest.mark.parametrize("chain", [CHAIN, recovered(CHAIN)], ids=["own", "recovered"])
def test_the_recorded_value_says_what_of_a_chain_has_landed(
    chain: list[StagedCommit], value: str, rest: list[StagedCommit]
) -> None:
    assert list(fence.remaining_commits(chain, whole(value))) == rest


@pytest.mark.parametrize("properties", [whole("a9"), {}, whole("closed:a9")])
@pytest.mark.parametrize("chain", [CHAIN, recovered(CHAIN)], ids=["own", "recovered"])
def test_any_other_value_is_fenced(chain: list[StagedCommit], properties: dict[str, str]) -> None:
    with pytest.raises(FencedError, match="another process has taken over acme/orders"):
        fence.remaining_commits(chain, properties)


def test_the_first_transaction_of_a_writer_finds_no_value() -> None:
    assert list(fence.remaining_commits([staged("", "a1")], {})) == [staged("", "a1")]


@pytest.mark.parametrize(("value", "rest"), [("closed:a0", CHAIN), ("closed:a1", [SECOND, THIRD]), ("closed:a3", [])])
def test_a_closed_value_tells_a_recovery_what_has_landed(value: str, rest: list[StagedCommit]) -> None:
    assert list(fence.remaining_commits(recovered(CHAIN), whole(value))) == rest


# Who has been replaced


@pytest.mark.parametrize("value", ["closed:a0", "closed:a1", "closed:a2"])
def test_a_stale_process_cannot_build_on_a_value_that_its_successor_closed(value: str) -> None:
    with pytest.raises(FencedError):
        fence.remaining_commits(CHAIN, whole(value))


def test_a_stale_process_whose_work_landed_before_the_range_was_closed_has_nothing_left_to_do() -> None:
    assert list(fence.remaining_commits(CHAIN, whole("closed:a3"))) == []


def test_a_range_that_opens_again_builds_on_the_closed_value_that_it_read() -> None:
    reopened = [staged("closed:a3", "a4")]
    assert list(fence.remaining_commits(reopened, whole("closed:a3"))) == reopened
    for other in ("closed:a5", "closed:0a1b2c3d:a3"):
        with pytest.raises(FencedError):
            fence.remaining_commits(reopened, whole(other))


def opened(of: WriterId, properties: dict[str, str], *waiting: StagedCommit) -> list[StagedCommit]:
    """The first transaction of a session that finds these properties."""
    writer_fence = WriterFence.begin(properties, of, recovered(waiting))
    return [staged(writer_fence.prev, "own-1", of, known=writer_fence.known)]


def test_a_session_cannot_build_on_the_value_that_it_has_read_once_it_is_closed() -> None:
    session = opened(writer(), whole("a3"))
    with pytest.raises(FencedError):
        fence.remaining_commits(session, whole("closed:a3"))


@pytest.mark.parametrize("successor", [writer(LEFT), writer(RIGHT), writer(LEFT, OLD_KEY), writer(WHOLE, OLD_KEY)])
@pytest.mark.parametrize("own", ["a3", "closed:a3", None], ids=["committed", "reopened", "never-committed"])
def test_whoever_commits_for_a_part_of_the_key_range_stops_a_session_that_was_open(
    successor: WriterId, own: str | None
) -> None:
    """Under which state key does not matter: a backfill may have kept the table's rows."""
    before = whole(own) if own else {}
    session = opened(writer(), before)
    assert list(fence.remaining_commits(session, before)) == session
    with pytest.raises(FencedError, match=r"nothing newer than it has read"):
        fence.remaining_commits(session, before | recorded({successor: "s1"}))


def test_a_successor_of_a_writer_that_had_committed_before_stops_a_session_too() -> None:
    before = recorded({writer(): "closed:a3", writer(LEFT): "l1", writer(RIGHT): "r1"})
    session = opened(writer(), before)
    with pytest.raises(FencedError):
        fence.remaining_commits(session, before | recorded({writer(LEFT): "l2"}))


@pytest.mark.parametrize("other", [writer(RIGHT), writer(RIGHT, OLD_KEY), writer(materialization="acme/other")])
def test_others_beside_a_session_do_not_stop_it(other: WriterId) -> None:
    session = opened(writer(LEFT), {})
    assert list(fence.remaining_commits(session, recorded({other: "s1"}))) == session


def test_a_sibling_may_close_what_both_follow() -> None:
    """The first child to commit closes the parent's value."""
    child = opened(writer(LEFT), whole("a3"))
    assert list(fence.remaining_commits(child, whole("closed:a3"))) == child


WAITING = staged("a3", "a4")


@pytest.mark.parametrize("value", ["a3", "closed:a3", "a4", "closed:a4"])
def test_what_waited_when_a_session_opened_may_land_later_and_stops_nobody(value: str) -> None:
    """A table refused the parent's commits; its children open all the same, and the parent's rows land in between."""
    child = opened(writer(LEFT), whole("a3"), WAITING)
    assert list(fence.remaining_commits(child, whole(value))) == child


@pytest.mark.parametrize("successor", [writer(), writer(RIGHT), writer(WHOLE, OLD_KEY)])
def test_a_session_that_opened_while_something_waited_is_stopped_by_a_successor_all_the_same(
    successor: WriterId,
) -> None:
    session = opened(writer(RIGHT), whole("a3"), WAITING)
    with pytest.raises(FencedError):
        fence.remaining_commits(session, whole("closed:a4") | recorded({successor: "s1"}))


@pytest.mark.parametrize(("value", "lands"), [("a3", 2), ("closed:a3", 2), ("a4", 1), ("closed:a4", 1)])
def test_a_session_goes_on_from_what_waits_for_its_own_range(value: str, lands: int) -> None:
    """An older process may land what the log has committed, under its own eyes or ours, and close our value with it."""
    [own] = opened(writer(), whole("a3"), WAITING)
    assert own.prev == value_of("a4")
    assert len(fence.remaining_commits([replace(WAITING, is_recovered=True), own], whole(value))) == lands


@pytest.mark.parametrize("successor", [writer(LEFT), writer(WHOLE, OLD_KEY)])
def test_a_session_that_goes_on_from_what_waits_is_stopped_by_a_successor(successor: WriterId) -> None:
    """One commit would add both: what has waited, and what only this session has staged."""
    [own] = opened(writer(), whole("a3"), WAITING)
    chain = [replace(WAITING, is_recovered=True), own]
    with pytest.raises(FencedError):
        fence.remaining_commits(chain, whole("a3") | recorded({successor: "s1"}))


def test_a_value_that_was_reset_is_nobodys_even_if_something_waited() -> None:
    """Files that were staged on it may have been deleted since."""
    session = opened(writer(), whole("a3"), staged("l1", "l2", writer(LEFT)))
    with pytest.raises(FencedError):
        fence.remaining_commits(session, whole(reset_value("a3")))


# What file names say


def test_files_bear_the_value_that_they_are_staged_on() -> None:
    writer_fence = WriterFence.begin(whole("a3"), writer(), [])
    assert (writer_fence.prev, writer_fence.in_file_names) == (value_of("a3"), value_of("a3"))
    following = writer_fence.after(staged("a3", "a4"))
    assert (following.prev, following.in_file_names) == (value_of("a4"), value_of("a4"))


@pytest.mark.parametrize("waits_for", [writer(), writer(LEFT), writer(LEFT, OLD_KEY)])
def test_while_something_waits_files_bear_a_value_that_is_still_to_come(waits_for: WriterId) -> None:
    """What waits may land under an older process, which then closes the value that they are staged on."""
    value = fence.new_value()
    writer_fence = WriterFence.begin(
        whole(value), writer(), [staged(value, fence.new_value(value), waits_for, is_recovered=True)]
    )
    assert (
        fence.read_ordinal(writer_fence.in_file_names)
        > fence.read_ordinal(writer_fence.prev)
        >= fence.read_ordinal(value)
    )


# Chains and values


def test_a_chain_is_put_in_the_order_in_which_it_was_staged() -> None:
    assert fence.order_commits([THIRD, FIRST, SECOND]) == CHAIN


def test_a_chain_may_go_on_from_a_closed_value() -> None:
    following = staged("closed:a1", "a2")
    assert fence.order_commits([following, FIRST]) == [FIRST, following]


def test_commits_that_form_no_chain_are_a_defect() -> None:
    with pytest.raises(AssertionError):
        fence.order_commits([FIRST, THIRD])


# Which values no commit can follow any more


@pytest.mark.parametrize(("ordinal", "expected"), [(6, (True, True)), (7, (True, False)), (8, (False, False))])
def test_a_recovery_may_still_build_on_the_closed_value(ordinal: int, expected: tuple[bool, bool]) -> None:
    """No session may. So the files of such a transaction are no orphans as long as a state may name them."""
    value, closed = ordinal_value(ordinal), f"closed:{ordinal_value(7)}"
    assert (is_passed(value, closed), is_void(value, closed)) == expected


@pytest.mark.parametrize(("ordinal", "expected"), [(6, True), (7, False)])
def test_after_a_reset_the_value_that_was_reset_is_not_passed(ordinal: int, expected: bool) -> None:
    """The rows that the operator wants to add are staged on it."""
    assert is_passed(ordinal_value(ordinal), reset_value(ordinal_value(7))) is expected


# Tables that were restored from an older copy


def finished(ordinal: int, of: WriterId | None = None) -> FinishedCommit:
    return FinishedCommit(of or writer(), "a-uuid", ordinal_value(ordinal))


def ordinal_value(ordinal: int, random: str = "b") -> str:
    return f"{ordinal:08x}{random * 24}"


@pytest.mark.parametrize("marks", ["", "closed:", "closed:0a1b2c3d:"])
@pytest.mark.parametrize(("ordinal", "lost"), [(6, 1), (5, 2), (0, 7), (7, 0), (8, 0)])
def test_an_older_value_than_the_newest_finished_one_says_how_many_transactions_are_lost(
    ordinal: int, lost: int, marks: str
) -> None:
    assert fence.count_lost(whole(f"{marks}{ordinal_value(ordinal, 'c')}"), writer(), ordinal_value(7)) == lost


@pytest.mark.parametrize("properties", [{}, whole("closed:0a1b2c3d:")])
def test_a_writer_without_a_value_has_lost_all_transactions(properties: dict[str, str]) -> None:
    assert fence.count_lost(properties, writer(), ordinal_value(7)) == 7


def test_the_table_of_another_writer_says_nothing() -> None:
    with pytest.raises(OlderTableError, match="1 transaction"):
        lost_commits.check_lost(PATH, recorded({writer(LEFT): ordinal_value(9)}), finished(1))


def test_what_is_staged_after_a_finished_commit_is_compared_instead() -> None:
    others = [finished(7, writer(LEFT)), replace(finished(7), table_uuid="another-uuid")]
    later = [staged(ordinal_value(number), ordinal_value(number + 1)) for number in (9, 8, 10)]
    assert lost_commits.list_newest([finished(7), *others], later) == [finished(8), *others]


@pytest.mark.parametrize("is_recovered", [True, False])
def test_a_table_that_is_older_than_what_is_staged_is_not_said_to_be_taken_over(is_recovered: bool) -> None:
    chain = [staged(f"closed:{ordinal_value(7)}", ordinal_value(8), is_recovered=is_recovered)]
    for properties, said in ((whole(ordinal_value(5)), "last 2 transaction"), ({}, "last 7 transaction")):
        with pytest.raises(FencedError, match=said):
            fence.remaining_commits(chain, properties)
    for newer in (ordinal_value(7, "c"), ordinal_value(9)):
        with pytest.raises(FencedError, match="another process has taken over"):
            fence.remaining_commits(chain, whole(newer))


@pytest.mark.parametrize("waiting", [[], [staged(ordinal_value(7), ordinal_value(8))]], ids=["alone", "waiting"])
@pytest.mark.parametrize("marks", ["", "closed:"])
def test_an_older_value_of_another_writer_is_no_takeover_either(waiting: list[StagedCommit], marks: str) -> None:
    """Both values of a range that was split, for example, are in each answer of the catalog."""
    session = opened(writer(LEFT), whole(f"{marks}{ordinal_value(7)}"), *waiting)
    with pytest.raises(OlderTableError) as error:
        fence.remaining_commits(session, whole(ordinal_value(6)))
    names = {fence.property_name(writer()): "PROPERTY"}
    assert f"is {ordinal_value(6)}, and was {marks}{ordinal_value(7)} before" in str(error.value)
    if not marks:
        check_text("commit_errors", "a table with an older value of another writer", str(error.value), names)
    for other in (ordinal_value(7, "c"), ordinal_value(9)):
        with pytest.raises(FencedError, match="another process has taken over"):
            fence.remaining_commits(session, whole(other))


def test_a_value_that_a_table_has_got_since_the_commit_of_a_recovery_is_its_last_one() -> None:
    fences = fence.LastFences()
    commit = staged(ordinal_value(6), ordinal_value(7))
    fences.note_committed(commit)
    fences.note_opened(commit.table_id, whole(ordinal_value(8)), writer())
    assert fences.find(commit.table_id) == whole(ordinal_value(8))


def test_a_table_with_an_older_value_is_refused() -> None:
    with pytest.raises(OlderTableError) as error:
        lost_commits.check_lost(PATH, whole(ordinal_value(5)), finished(7))
    check_text("commit_errors", "a table that was restored from an older copy", str(error.value))


NO_VALUES = [
    "",
    "zz",
    "closed:",
    "closed:zz",
    "closed:0a1b2c3d:zz",
    f"{'0' * 31}G",
    "0" * 33,
    f"{'0' * 32}\n",
    "é" * 32,
]


@pytest.mark.parametrize("of", [writer(), writer(LEFT), writer(WHOLE, OLD_KEY)])
@pytest.mark.parametrize("value", NO_VALUES)
def test_a_property_that_was_changed_by_hand_is_taken_for_no_value(value: str, of: WriterId) -> None:
    properties = whole("a0") | {fence.property_name(of): value}
    for chain in (CHAIN, recovered(CHAIN), [staged("", "a1")]):
        with pytest.raises(FencedError, match="which is no fence value of this connector"):
            fence.remaining_commits(chain, properties)
    assert not is_passed(value_of("a0"), value)
    assert not is_void(value_of("a0"), value)
    assert fence.count_lost(properties, of, ordinal_value(7)) == 0


def test_a_property_whose_name_was_changed_by_hand_is_named() -> None:
    name = f"{fence.property_name(writer())}-1"
    with pytest.raises(FencedError, match=name):
        fence.remaining_commits(CHAIN, whole("a0") | {name: value_of("a1")})


def test_what_others_keep_beside_our_properties_is_no_concern_of_ours() -> None:
    others = {fence.property_name(writer(materialization="acme/other")): "zz", "flow.fence-reset.x": "zz"}
    assert list(fence.remaining_commits(CHAIN, whole("a0") | others)) == CHAIN


def test_no_value_follows_the_last_ordinal_number() -> None:
    assert fence.read_ordinal(fence.new_value("fffffffe" + "0" * 24)) == 0xFFFFFFFF
    with pytest.raises(UserError) as error:
        fence.new_value("f" * 32)
    check_text("commit_errors", "the last fence value", str(error.value))


def test_fence_values_are_random() -> None:
    values = {fence.new_value() for _ in range(100)}
    assert len(values) == 100
    assert {len(value) for value in values} == {32}


def test_a_property_is_named_by_writer() -> None:
    names = {
        fence.property_name(writer(key_range, state_key, materialization))
        for materialization in ("a", "b")
        for state_key in ("x.v1", "x.v2")
        for key_range in (WHOLE, LEFT)
    }
    assert len(names) == 8
    assert all(len(name) < 60 and name.startswith("flow.fence.") for name in names)


# What a commit sets


def test_a_sessions_commit_advances_its_own_range_and_closes_every_overlapping_one() -> None:
    child = writer(LEFT)
    others = {writer(RIGHT): "s1", writer(materialization="acme/other"): "o1"}
    closed = {writer(): "p7", writer(LEFT, OLD_KEY): "k3"}
    properties = recorded(others | closed) | {"owner": "me"}
    assert fence.advance(properties, staged("", "c1", child)) == recorded(
        {child: "c1", writer(): "closed:p7", writer(LEFT, OLD_KEY): "closed:k3"}
    )


def test_a_range_is_closed_once() -> None:
    child = staged("c1", "c2", writer(LEFT))
    assert fence.advance(whole("closed:p7"), child) == recorded({writer(LEFT): "c2"})


def test_what_a_recovery_finishes_is_closed_at_once_and_closes_nothing_else() -> None:
    properties = recorded({writer(): "a2", writer(LEFT): "c1"})
    assert fence.advance(properties, replace(THIRD, is_recovered=True)) == whole("closed:a3")
