"""Counts the rows that a transaction receives, by table, and tells metrics about them at most once a second."""

import time
from collections.abc import Sequence
from typing import Final

from connector.host import facts
from connector.host.facts import ReceivedRows
from protocol.request import Store

TELL_EVERY: Final = 1.0  # seconds


class ReceivedTotals:
    """The rows that metrics do not know yet. It is made only for a session with metrics."""

    def __init__(self, tables: Sequence[str]) -> None:
        """`tables` has the table of each binding."""
        self._tables = tables
        self._since: float | None = None  # of the first row, in seconds since the epoch
        self._told = 0.0
        self._rows: dict[int, int] = {}  # by binding
        self._sizes: dict[int, int] = {}

    def add(self, store: Store, now: float) -> None:
        """Count a run of rows. `now` is monotonic."""
        binding = store.binding
        self._rows[binding] = self._rows.get(binding, 0) + store.count
        self._sizes[binding] = self._sizes.get(binding, 0) + store.size
        if now - self._told >= TELL_EVERY:
            self._told = now
            self.tell()

    def tell(self) -> None:
        """Tell all rows that were not told yet. The driver finds rows of a binding that does not exist later."""
        if self._since is None:
            self._since = time.time()
        for binding, rows in self._rows.items():
            if facts.observe and 0 <= binding < len(self._tables):
                fact = ReceivedRows(self._tables[binding], rows, self._sizes[binding], self._since)
                facts.observe(fact)
        self._rows.clear()
        self._sizes.clear()
