"""Reports the progress of transactions.

A person gets one log record when a transaction is staged, and one every few seconds until then. The metrics get the
received rows every second.
"""

import logging
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from connector.host import facts
from connector.host.facts import EndedTransaction, LoadedTransaction, ReceivedRows, StagedRows, TreatedValues
from connector.host.logs import Event, fields, format_bytes, name_some
from connector.model.invalid_values import Tally, Treatment
from connector.model.state import StagedCommit
from protocol.request import BackfillComplete, Store

log = logging.getLogger(__name__)

REPORT_EVERY: Final = 10.0  # seconds, in the log
REDRAW_EVERY: Final = 0.2  # seconds, on a terminal
METRICS_EVERY: Final = 1.0  # seconds


class TransactionProgress:
    """Counts the rows and bytes of one transaction, and reports them."""

    def __init__(self, number: int, tables: Sequence[str] = ()) -> None:
        """`tables` has the table of each binding."""
        self._number = number
        self._tables = tables
        self._received = _ReceivedTotals(tables) if facts.report is not facts.drop else None
        self._began: float | None = None
        self._reported = self._drawn = 0.0
        self._rows = self._size = 0
        self._terminal = sys.stderr if sys.stderr.isatty() else None

    def report_received(self, store: Store) -> None:
        """Count rows. Update the terminal, or log a record, if the last one is old enough."""
        now = time.monotonic()
        if self._began is None:
            self._began = self._reported = now
        size = store.size
        self._rows += store.count
        self._size += size
        if self._received:
            self._received.add(store.binding, store.count, size, now)
        if self._terminal and now - self._drawn >= REDRAW_EVERY:
            self._drawn = now
            print(
                f"\r\x1b[2Ktransaction {self._number}: {self._describe(now)}", end="", file=self._terminal, flush=True
            )
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self._clear_line()
            log.info(
                "transaction %d: %s so far",
                self._number,
                self._describe(now),
                extra=fields(Event.RECEIVING, **self._count_received(now)),
            )

    def end_received(self) -> None:
        """Report the last rows to the metrics, before they are staged."""
        if self._received:
            self._received.report()

    def report_loading(self, asked: int) -> None:
        """Log that the Loads are being answered."""
        log.info(
            "transaction %d: looking up %d keys",
            self._number,
            asked,
            extra=fields(Event.LOADING, transaction=self._number, loads=asked),
        )

    def report_loaded(self, asked: int, found: int, began: float, flushed: float) -> None:
        """Report that all Loads are answered. The first one came at `began`, and the flush at `flushed`."""
        now = time.monotonic()
        loaded = LoadedTransaction(now - began, now - flushed)
        log.info(
            "transaction %d: %d keys loaded, %d of them found, %.2f s",
            self._number,
            asked,
            found,
            loaded.seconds,
            extra=fields(
                Event.LOADED,
                transaction=self._number,
                loads=asked,
                found=found,
                seconds=round(loaded.seconds, 3),
                searchSeconds=round(loaded.search_seconds, 3),
            ),
        )
        facts.report(loaded)

    def report_outdated(self, backfills: Iterable[BackfillComplete]) -> None:
        """Log for which tables captures have read their sources again: no row is removed."""
        for backfill in backfills:
            if not 0 <= backfill.binding < len(self._tables):
                continue
            table = self._tables[backfill.binding]
            log.info(
                "table %s: a capture has read its source again. Rows that were published before %s may be outdated. "
                "They stay in the table",
                table,
                backfill.timestamp,
                extra=fields(Event.OUTDATED, table=table, before=backfill.timestamp),
            )

    def report_staged(self, staged: Sequence[StagedCommit], treated: Mapping[int, Tally]) -> None:
        """Report the end of the transaction. `treated` has the treated values of each binding."""
        self._clear_line()
        for commit in staged:
            facts.report(StagedRows(str(commit.path), commit.next, commit.rows, commit.size))
        for binding, tally in treated.items():
            for _, treatment, values in tally:
                facts.report(TreatedValues(self._tables[binding], treatment, values.count))
        if self._began is None:
            return
        now = time.monotonic()
        facts.report(EndedTransaction(self._rows, now - self._began))
        totals = _sum_treatments(treated.values())
        log.info(
            "transaction %d: %s; staged %s in %d data file(s) of %d table(s)%s",
            self._number,
            self._describe(now),
            format_bytes(sum(commit.size for commit in staged)),
            sum(commit.file_count for commit in staged),
            len(staged),
            "".join(f"; {total} {treatment}" for treatment, total in totals.items() if total),
            extra=fields(
                Event.STAGED,
                **self._count_received(now),
                tables=len(staged),
                files=sum(commit.file_count for commit in staged),
                fileBytes=sum(commit.size for commit in staged),
                **totals,
            ),
        )

    def _count_received(self, now: float) -> dict[str, float]:
        assert self._began is not None
        return {
            "transaction": self._number,
            "rows": self._rows,
            "bytes": self._size,
            "seconds": round(now - self._began, 3),
        }

    def _describe(self, now: float) -> str:
        assert self._began is not None
        rate = format_bytes(self._size / max(now - self._began, 0.001))
        return f"{self._rows:,} rows, {format_bytes(self._size)} received, {rate}/s"

    def _clear_line(self) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", file=self._terminal, flush=True)


class _ReceivedTotals:
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
        if now - self._reported >= METRICS_EVERY:
            self._reported = now
            self.report()

    def report(self) -> None:
        """Report all rows that were not reported yet. A binding that does not exist is an error of the protocol, which
        is found when the rows are decoded."""
        if self._since is None:
            self._since = time.time()
        for binding, (rows, size) in self._pending.items():
            if 0 <= binding < len(self._tables):
                facts.report(ReceivedRows(self._tables[binding], rows, size, self._since))
        self._pending.clear()


def log_opened(tables: Sequence[str], backfilled: Sequence[str]) -> None:
    """Log that a session has these tables. The next commit of those that are backfilled replaces all of their rows."""
    log.info(
        "%d table(s) are open%s",
        len(tables),
        f". A backfill replaces the rows of {name_some(backfilled)} when the first new ones come" if backfilled else "",
        extra=fields(Event.OPENED, tables=len(tables), backfills=len(backfilled)),
    )


def _sum_treatments(tallies: Collection[Tally]) -> dict[str, int]:
    return {treatment.value: sum(tally.total(treatment) for tally in tallies) for treatment in Treatment}
