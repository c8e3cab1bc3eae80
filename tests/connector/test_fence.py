"""The fence's rules, as pure functions of property values and staged commits."""

import pytest

from connector.errors import FencedError
from connector.iceberg import fence
from connector.state import Lineage, StagedCommit

WHOLE = "00000000-ffffffff"
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"


def staged(prev: str, next: str, key_range: str = WHOLE) -> StagedCommit:
    lineage = Lineage("acme/orders", "orders.v1", key_range)
    return StagedCommit(lineage, prev, next, ("shop", "orders"), "a-uuid", 0, 0, ())


FIRST, SECOND, THIRD = staged("v0", "v1"), staged("v1", "v2"), staged("v2", "v3")
CHAIN = [FIRST, SECOND, THIRD]


@pytest.mark.parametrize(
    ("value", "rest"),
    [("v0", CHAIN), ("v1", [SECOND, THIRD]), ("v2", [THIRD]), ("v3", [])],
)
@pytest.mark.parametrize("is_recovery", [True, False])
def test_the_recorded_value_says_what_of_a_chain_has_landed(
    value: str, rest: list[StagedCommit], is_recovery: bool
) -> None:
    assert list(fence.unlanded(CHAIN, value, is_recovery=is_recovery)) == rest


@pytest.mark.parametrize("value", ["v9", "", "closed:v9", "closed:"])
@pytest.mark.parametrize("is_recovery", [True, False])
def test_any_other_value_is_fenced(value: str, is_recovery: bool) -> None:
    with pytest.raises(FencedError, match="another process has taken over acme/orders"):
        fence.unlanded(CHAIN, value, is_recovery=is_recovery)


def test_the_first_transaction_of_a_lineage_finds_no_value() -> None:
    assert list(fence.unlanded([staged("", "v1")], "", is_recovery=False)) == [staged("", "v1")]


@pytest.mark.parametrize(("value", "rest"), [("closed:v0", CHAIN), ("closed:v1", [SECOND, THIRD]), ("closed:v3", [])])
def test_a_closed_value_tells_a_recovery_what_has_landed(value: str, rest: list[StagedCommit]) -> None:
    assert list(fence.unlanded(CHAIN, value, is_recovery=True)) == rest


@pytest.mark.parametrize("value", ["closed:v0", "closed:v1", "closed:v2"])
def test_a_stale_process_cannot_build_on_a_value_that_its_successor_closed(value: str) -> None:
    with pytest.raises(FencedError):
        fence.unlanded(CHAIN, value, is_recovery=False)


def test_a_stale_process_whose_work_landed_before_the_range_was_closed_has_nothing_left_to_do() -> None:
    assert list(fence.unlanded(CHAIN, "closed:v3", is_recovery=False)) == []


def test_a_range_that_opens_again_builds_on_the_closed_value_that_it_read() -> None:
    reopened = [staged("closed:v3", "v4")]
    assert list(fence.unlanded(reopened, "closed:v3", is_recovery=False)) == reopened
    with pytest.raises(FencedError):
        fence.unlanded(reopened, "closed:v5", is_recovery=False)


def test_a_chain_is_put_in_the_order_in_which_it_was_staged() -> None:
    assert fence.chain([THIRD, FIRST, SECOND]) == CHAIN


def test_commits_that_form_no_chain_are_a_defect() -> None:
    with pytest.raises(AssertionError):
        fence.chain([FIRST, THIRD])


def test_fence_values_are_random() -> None:
    values = {fence.new_value() for _ in range(100)}
    assert len(values) == 100
    assert {len(value) for value in values} == {32}


def test_a_property_is_named_by_lineage() -> None:
    names = {
        fence.property_name(Lineage(materialization, state_key, key_range))
        for materialization in ("a", "b")
        for state_key in ("x.v1", "x.v2")
        for key_range in (WHOLE, LEFT)
    }
    assert len(names) == 8
    assert all(len(name) < 60 and name.startswith("flow.fence.") for name in names)


def test_a_commit_advances_its_own_range_and_closes_every_overlapping_one() -> None:
    child = staged("", "c1", LEFT)
    parent, sibling = (fence.property_name(staged("", "", key_range).lineage) for key_range in (WHOLE, RIGHT))
    other_task = fence.property_name(Lineage("acme/other", "orders.v1", WHOLE))
    properties = {parent: "p7", sibling: "s1", other_task: "o1", "owner": "me"}
    assert fence.advanced(properties, child, LEFT) == {
        fence.property_name(child.lineage): "c1",
        parent: "closed:p7",
    }


def test_a_range_is_closed_once() -> None:
    parent = fence.property_name(FIRST.lineage)
    child = staged("c1", "c2", LEFT)
    assert fence.advanced({parent: "closed:p7"}, child, LEFT) == {fence.property_name(child.lineage): "c2"}


@pytest.mark.parametrize("key_range", [LEFT, None])
def test_what_is_finished_for_a_departed_range_is_closed_at_once(key_range: str | None) -> None:
    left = fence.property_name(staged("", "", LEFT).lineage)
    assert fence.advanced({left: "c1"}, THIRD, key_range) == {fence.property_name(THIRD.lineage): "closed:v3"}


def test_what_a_new_range_follows_may_land_after_it_was_opened() -> None:
    """A table refused the parent's commits; its children open all the same, and the parent's rows land in between."""
    parent = staged("v0", "v1")
    before = {fence.property_name(parent.lineage): "v0"}
    after = {fence.property_name(parent.lineage): "closed:v1"}
    left = staged("", "v2", LEFT).lineage
    opened = fence.staged_on(fence.recorded(before, left), follows_waiting=True)
    child = [staged(opened, "v2", LEFT)]
    assert list(fence.unlanded(child, fence.recorded(after, left), is_recovery=False)) == child


def test_a_value_that_a_range_has_committed_is_what_it_stages_on_whoever_waits_beside_it() -> None:
    assert fence.staged_on("00000001" + "a" * 24, follows_waiting=True) == "00000001" + "a" * 24
