"""What readers demand of the row ids in tables of format version 3."""

from collections.abc import Iterable
from itertools import pairwise


def find_problem_of_ids(files: Iterable[tuple[str, int | None, int]]) -> str | None:
    """What is wrong with the ids of rows. `files` are the data files: path, id of the first row, number of rows."""
    ranges = []
    for path, first, rows in files:
        if first is None:
            return f"rows of {path} have no ids"
        ranges.append((first, first + rows, path))
    for (_, end, before), (first, _, after) in pairwise(sorted(ranges)):
        if first < end:
            return f"rows of {before} and {after} have the same ids"
    return None
