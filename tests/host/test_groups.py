"""Things are divided into groups up to a limit, or by their keys."""

from collections.abc import Sequence

import pytest

from connector.host.groups import divide, group_by


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([1, 2, 3, 4], [[1, 2], [3], [4]], id="a group is as large as the limit at most"),
        pytest.param([3, 1, 3], [[3], [1], [3]], id="only consecutive ones are together"),
        pytest.param([1, 9, 1, 1], [[1], [9], [1, 1]], id="a larger one is alone"),
        pytest.param([9, 0, 0, 3], [[9], [0, 0, 3]], id="a larger one is also without those of no size"),
    ],
)
def test_things_are_divided_into_groups_up_to_the_limit(sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> None:
    assert [*divide(sizes, 3, lambda size: size)] == groups


def test_things_are_grouped_by_their_keys_in_the_order_in_which_they_come() -> None:
    assert [*group_by(["b1", "a1", "b2"], lambda text: text[0]).items()] == [("b", ["b1", "b2"]), ("a", ["a1"])]
