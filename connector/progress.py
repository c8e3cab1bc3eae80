"""What a person wants to see while it runs: a record per step of a transaction, and one every few seconds meanwhile."""

import logging
import sys
import time
from collections.abc import Sequence
from typing import Final

from connector.logs import FIELDS
from connector.state import StagedCommit
from protocol.request import Store

log = logging.getLogger(__name__)

REPORT_EVERY: Final = 10.0  # seconds, in the log
REDRAW_EVERY: Final = 0.2  # seconds, on a terminal


class TransactionProgress:
    """Counts one transaction's rows and bytes as they arrive."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._began: float | None = None
        self._reported = self._drawn = 0.0
        self._rows = self._size = 0
        self._terminal = sys.stderr if sys.stderr.isatty() else None

    def received(self, store: Store) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = self._reported = now
        self._rows += store.count
        self._size += store.size
        if self._terminal and now - self._drawn >= REDRAW_EVERY:
            self._drawn = now
            print(
                f"\r\x1b[2Ktransaction {self._number}: {self._sentence(now)}", end="", file=self._terminal, flush=True
            )
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self._clear()
            log.info("transaction %d: %s so far", self._number, self._sentence(now))

    def staged(self, staged: Sequence[StagedCommit]) -> None:
        self._clear()
        if self._began is None:
            return
        now = time.monotonic()
        log.info(
            "transaction %d: %s; staged %s in %d data file(s) of %d table(s)",
            self._number,
            self._sentence(now),
            megabytes(sum(commit.size for commit in staged)),
            sum(commit.file_count for commit in staged),
            len(staged),
            extra={
                FIELDS: {
                    "transaction": self._number,
                    "rows": self._rows,
                    "bytes": self._size,
                    "fileBytes": sum(commit.size for commit in staged),
                    "seconds": round(now - self._began, 3),
                }
            },
        )

    def _sentence(self, now: float) -> str:
        assert self._began is not None
        rate = megabytes(self._size / max(now - self._began, 0.001))
        return f"{self._rows:,} rows, {megabytes(self._size)} received, {rate}/s"

    def _clear(self) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", file=self._terminal, flush=True)


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
