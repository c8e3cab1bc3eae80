"""Groups of things."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


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
