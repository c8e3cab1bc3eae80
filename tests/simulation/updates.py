"""Rows with keys: how a row's name says its key, what a transaction does to keys, and what a log leaves of them.

A key is a sixteenth of the key space. The row `4=v0.first` is a version of key 4, stored under the state
key of backfill 0. Were its name `4=v0.first~`, it would delete the key.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from protocol.request import Load, Store

KEYS: Final = (1, 4, 6, 9, 13)  # in as many ranges as topologies make


@dataclass(frozen=True)
class Update:
    """A Store of a key: its row, and what the runtime says of it."""

    row: str
    exists: bool
    is_deleted: bool

    @classmethod
    def parse(cls, text: bytes) -> "Update":
        row, exists, is_deleted = text.decode().split()
        return cls(row, exists == "True", is_deleted == "True")

    def request(self, binding: int) -> Store:
        return Store(binding, 0, 1, (f"{self.row} {self.exists} {self.is_deleted}".encode(),))


def is_in_range(key: int, key_range: str) -> bool:
    begin, end = key_range.split("-")
    return begin <= f"{key:x}0000000" <= end


def loads_of(binding: int, keys: Iterable[int]) -> Load:
    lines = [b'{"load":{"binding":%d,"key":[%d]}}\n' % (binding, key) for key in keys]
    return Load(binding, 1, len(lines), tuple(lines))


def key_of(row: str) -> int | None:
    """None: the row has no key, for its table has a row for each stored document, or another engine has added it."""
    key, is_keyed, _ = row.partition("=")
    return int(key) if is_keyed else None


def last_versions(rows: Iterable[str]) -> Mapping[int, str]:
    """The rows that these, in the order of a log, leave of their keys."""
    last: dict[int, str] = {}
    for row in rows:
        if (key := key_of(row)) is None:
            continue
        if row.endswith("~"):
            last.pop(key, None)
        else:
            last[key] = row
    return last


def remaining(rows: Iterable[str]) -> Counter[str]:
    """What a table has after these rows, in the order of a log."""
    rows = list(rows)
    return Counter([*(row for row in rows if key_of(row) is None), *last_versions(rows).values()])


def doubled_keys(rows: Iterable[str]) -> set[int]:
    counts = Counter(key for row in rows if (key := key_of(row)) is not None)
    return {key for key, count in counts.items() if count > 1}
