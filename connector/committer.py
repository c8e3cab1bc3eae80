"""Commits what is staged, and keeps trying where a table refuses."""

import logging
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from connector.backlog import Backlog, Failing, Limit
from connector.errors import ConnectorError, FencedError, LostColumnError
from connector.iceberg.commits.commit import Failed, Landed
from connector.logs import Event, fields
from connector.state import Chain, StagedCommit, TableId

log = logging.getLogger(__name__)


class Attempt(Protocol):
    """One try at a number of staged commits; see `commit.attempt`."""

    def __call__(self, staged: Sequence[StagedCommit], *, once: Collection[Chain]) -> Sequence[Landed | Failed]: ...


class Committer:
    """One session's commits. What a table refuses stays in the state and is tried again with later transactions."""

    def __init__(self, attempt: Attempt, limit: Limit) -> None:
        self._attempt = attempt
        self._backlog = Backlog(limit)

    def commit(self, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        """Try these, and the earlier ones that are due; return what has landed.

        FencedError when this process has been replaced, LostColumnError when it writes to a column that is gone,
        UserError when too much waits for one table.
        """
        self._backlog.add(staged)
        landed: list[StagedCommit] = []
        final: FencedError | LostColumnError | None = None
        due = self._backlog.due(time.monotonic())
        log.debug("committing %d staged transaction(s) of all tables", len(due))
        for outcome in self._attempt(due, once=self._backlog.failing):
            match outcome:
                case Landed(chain):
                    self._backlog.landed(chain[0].chain_id)
                    _log_landed(outcome)
                    landed += chain
                case Failed(_, FencedError() | LostColumnError() as error):
                    final = error
                case Failed(chain, error):
                    self._backlog.failed(chain[0].chain_id, error, time.monotonic())
        if final:
            raise final
        self._backlog.check()
        for failing in self._backlog.failing_tables():
            _log_failing(failing)
        return landed

    def waiting(self, table: TableId, key_range: str) -> list[StagedCommit]:
        """What a table has not taken yet of what was staged for an overlapping key range."""
        return [commit for commit in self._backlog.waiting(table) if commit.lineage.overlaps(key_range)]

    def error_of(self, chain: Chain) -> ConnectorError | None:
        """Why it is waiting."""
        return self._backlog.error_of(chain)


def _log_landed(landed: Landed) -> None:
    table = ".".join(landed.chain[0].path)
    event = Event.RECOVERED if landed.chain[0].is_recovered else Event.COMMITTED
    rows, files = sum(commit.rows for commit in landed.chain), sum(commit.file_count for commit in landed.chain)
    log.info(
        "table %s: %s %d rows in %d data file(s), %.2f s",
        table,
        event,
        rows,
        files,
        landed.seconds,
        extra=fields(
            event,
            table=table,
            transactions=len(landed.chain),
            rows=rows,
            files=files,
            bytes=sum(commit.size for commit in landed.chain),
            attempts=landed.attempts,
            seconds=round(landed.seconds, 3),
        ),
    )


def _log_failing(failing: Failing) -> None:
    log.warning(
        "%s",
        failing,
        extra=fields(
            Event.WAITING,
            table=failing.table,
            transactions=failing.transactions,
            rows=failing.rows,
            bytes=failing.size,
        ),
    )
