"""Divides things into groups: by their keys, or consecutive ones up to a limit."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


def group_by(items: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items of each key. Keys and items are in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups


def divide(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in groups of consecutive ones, each as large as the limit allows. A larger item is alone."""
    group, size = list[T](), 0
    for item in items:
        added = size_of(item)
        if group and size + added > limit:
            yield group
            group, size = [], 0
        group.append(item)
        size += added
    if group:
        yield group
