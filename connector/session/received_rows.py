"""Counts the rows that a transaction receives, by table, and reports them to the metrics at most once a second."""

import time
from collections.abc import Sequence
from typing import Final

from connector.host import facts
from connector.host.facts import ReceivedRows

REPORT_EVERY: Final = 1.0  # seconds


class ReceivedTotals:
    """The rows that metrics do not know yet. It is made only for a session with metrics."""

    def __init__(self, tables: Sequence[str]) -> None:
        """`tables` has the table of each binding."""
        self._tables = tables
        self._since: float | None = None  # of the first row, in seconds since the epoch
        self._reported = 0.0
        self._pending: dict[int, list[int]] = {}  # by binding: rows and bytes

    def add(self, binding: int, rows: int, size: int, now: float) -> None:
        """Count a run of rows. `now` is monotonic."""
        pending = self._pending.get(binding)
        if pending is None:
            self._pending[binding] = [rows, size]
        else:
            pending[0] += rows
            pending[1] += size
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self.report()

    def report(self) -> None:
        """Report all rows that were not reported yet. A binding that does not exist is an error of the protocol, which
        is found when the rows are decoded."""
        if self._since is None:
            self._since = time.time()
        for binding, (rows, size) in self._pending.items():
            if facts.observe and 0 <= binding < len(self._tables):
                facts.observe(ReceivedRows(self._tables[binding], rows, size, self._since))
        self._pending.clear()
