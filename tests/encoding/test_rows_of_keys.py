"""The rows that a search has found: small on their way, and of each key one is the newest."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, compress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.encoding.search.rows_of_keys import RowsOfKeys, choose_newest
from connector.encoding.values.arrays import Numbers

KEYS = 6
Row = tuple[int, int, int, int]  # the file's place, the key's, the position, the row id
CHANGES = (5, 3, 3, 7)  # the commits that last changed the rows at each position, from the first on
rows = st.tuples(st.integers(0, 3), st.integers(0, KEYS - 1), st.integers(0, 9), st.integers(-1, 2**40))


def rows_of(found: list[Row]) -> RowsOfKeys:
    files, keys, positions, ids = np.array(found, np.int64).reshape(-1, 4).T
    return RowsOfKeys(files, keys, positions, ids if found else None)


def find_changes(found: RowsOfKeys) -> Numbers:
    return np.array(CHANGES)[found.positions % len(CHANGES)]


def age(row: Row) -> tuple[int, Row]:
    return CHANGES[row[2] % len(CHANGES)], row


@given(st.lists(st.lists(rows, unique_by=lambda row: row[:3]), min_size=1))
def test_the_newest_row_of_a_key_is_that_of_the_last_commit_and_there_the_last_one(found: list[list[Row]]) -> None:
    parts = [
        [(10 * place + file, key, position, number) for file, key, position, number in part]
        for place, part in enumerate(found)
    ]
    together = [row for part in parts for row in part]
    expected = [max((row for row in together if row[1] == key), key=age, default=None) for key in range(KEYS)]
    masks = choose_newest([rows_of(part) for part in parts], KEYS, find_changes)
    assert [*map(len, masks)] == [*map(len, parts)]
    chosen = compress(together, chain.from_iterable(masks))
    assert sorted(chosen) == sorted(row for row in expected if row)


class CountedKeys(np.ndarray[Any, Any]):
    """The keys of rows. They count the numbers that NumPy makes of them."""

    made = 0

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], given: Iterable[Any], options: Mapping[str, Any]
    ) -> Any:
        result = super().__array_function__(function, types, given, options)
        CountedKeys.made += np.size(result)
        return result


def test_the_work_is_not_that_of_all_keys_for_each_part() -> None:
    parts = [rows_of([(0, key, 0, -1)]) for key in range(1000)]
    counted = [RowsOfKeys(part.files, part.keys.view(CountedKeys), part.positions, part.row_ids) for part in parts]
    masks = choose_newest(counted, len(parts), find_changes)
    assert all(mask.tolist() == [True] for mask in masks)
    assert len(parts) <= CountedKeys.made < 10 * len(parts)


@pytest.mark.parametrize(("number", "size"), [(200, 1), (60_000, 2), (2**31, 4), (2**40, 8)])
def test_joined_rows_take_as_many_bytes_as_their_numbers_need(number: int, size: int) -> None:
    joined = RowsOfKeys.join([rows_of([(0, 1, number, -1)]), rows_of([]), rows_of([(1, 2, 3, 7)])])
    assert joined.positions.tolist() == [number, 3]
    assert joined.row_ids is not None
    assert joined.row_ids.tolist() == [-1, 7]
    assert (joined.files.itemsize, joined.keys.itemsize, joined.positions.itemsize) == (1, 1, size)


def test_slices_have_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.encoding.search.rows_of_keys._AT_ONCE", 2)
    slices = [*rows_of([(0, key, key, key) for key in range(5)]).slices()]
    assert [some.keys.tolist() for some in slices] == [[0, 1], [2, 3], [4]]
