"""Progress for a person: a log record for each step of a transaction, and one every few seconds in between."""

import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from connector.host.logs import Event, fields
from connector.model.invalid_values import Tally, Treatment
from connector.model.state import StagedCommit
from protocol.request import Store

log = logging.getLogger(__name__)

REPORT_EVERY: Final = 10.0  # seconds, in the log
REDRAW_EVERY: Final = 0.2  # seconds, on a terminal

WARNINGS: Final = {
    Treatment.CLAMPED: "{0.count} date(s) outside the years 1 to 9999 were clamped to the nearest of them",
    Treatment.NULLED: "{0.count} value(s) that do not fit the column became null, such as that of {0.example}",
    Treatment.REJECTED: "{0.count} row(s) go to the table of rejected rows, such as that of {0.example}",
}


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
            log.info(
                "transaction %d: %s so far",
                self._number,
                self._sentence(now),
                extra=fields(Event.RECEIVING, **self._received(now)),
            )

    def staged(self, staged: Sequence[StagedCommit], treated: Iterable[Tally] = ()) -> None:
        self._clear()
        if self._began is None:
            return
        now = time.monotonic()
        totals = _totals(treated)
        log.info(
            "transaction %d: %s; staged %s in %d data file(s) of %d table(s)%s",
            self._number,
            self._sentence(now),
            megabytes(sum(commit.size for commit in staged)),
            sum(commit.file_count for commit in staged),
            len(staged),
            "".join(f"; {total} {treatment}" for treatment, total in totals.items() if total),
            extra=fields(
                Event.STAGED,
                **self._received(now),
                tables=len(staged),
                files=sum(commit.file_count for commit in staged),
                fileBytes=sum(commit.size for commit in staged),
                **totals,
            ),
        )

    def _received(self, now: float) -> dict[str, float]:
        assert self._began is not None
        return {
            "transaction": self._number,
            "rows": self._rows,
            "bytes": self._size,
            "seconds": round(now - self._began, 3),
        }

    def _sentence(self, now: float) -> str:
        assert self._began is not None
        rate = megabytes(self._size / max(now - self._began, 0.001))
        return f"{self._rows:,} rows, {megabytes(self._size)} received, {rate}/s"

    def _clear(self) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", file=self._terminal, flush=True)


class TreatmentWarnings:
    """Warns, once a session and field, of values that do not land as they were sent."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables
        self._said: set[tuple[int, str, Treatment]] = set()

    def warn(self, treated: Mapping[int, Tally]) -> None:
        """`treated` is what was done in a transaction, by binding."""
        for index, tally in treated.items():
            for field, treatment, values in tally:
                if (index, field, treatment) not in self._said:
                    self._said.add((index, field, treatment))
                    what = WARNINGS[treatment].format(values)
                    log.warning(
                        "table %s, field %r: %s; this is said once a session",
                        self._tables[index],
                        field,
                        what,
                        extra=fields(Event(treatment), table=self._tables[index], field=field, count=values.count),
                    )


def _totals(treated: Iterable[Tally]) -> dict[str, int]:
    tallies = list(treated)
    return {treatment.value: sum(tally.total(treatment) for tally in tallies) for treatment in Treatment}


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
