"""Brings staged commits into their tables, and keeps at it where a table will not take them."""

import logging
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from connector.backlog import Backlog, Limit
from connector.errors import ConnectorError, FencedError
from connector.iceberg import fence
from connector.iceberg.commit import Failed, Landed
from connector.logs import FIELDS
from connector.state import Chain, StagedCommit

log = logging.getLogger(__name__)


class Attempt(Protocol):
    """One try at a number of staged commits; see `commit.attempt`."""

    def __call__(self, staged: Sequence[StagedCommit], *, once: Collection[Chain]) -> Sequence[Landed | Failed]: ...


class Committer:
    """One session's commits. What a table does not take stays in the state and is tried again with later ones."""

    def __init__(self, attempt: Attempt, limit: Limit) -> None:
        self._attempt = attempt
        self._backlog = Backlog(limit)

    def commit(self, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        """Try these, and what is due of earlier ones; returns what has landed.

        FencedError when this process has been replaced; the error of a table for which too much waits.
        """
        self._backlog.add(staged)
        landed: list[StagedCommit] = []
        fenced: FencedError | None = None
        due = self._backlog.due(time.monotonic())
        log.debug("committing %d staged transaction(s) of all tables", len(due))
        for outcome in self._attempt(due, once=self._backlog.failing):
            match outcome:
                case Landed(chain):
                    self._backlog.landed(chain[0].chain_id)
                    _log_landed(outcome)
                    landed += chain
                case Failed(_, FencedError() as error):
                    fenced = error
                case Failed(chain, error):
                    self._backlog.failed(chain[0].chain_id, error, time.monotonic())
        if fenced:
            raise fenced
        self._backlog.check()
        for line in self._backlog.report():
            log.warning("%s", line)
        return landed

    def newest(self, chain: Chain) -> str | None:
        """The fence value of the newest commit that waits, if any: what the chain's next one is staged on."""
        waiting = self._backlog.waiting(chain)
        return fence.chain(waiting)[-1].next if waiting else None

    def is_overlapped(self, chain: Chain) -> bool:
        """Whether something waits for the same table and for a range that overlaps the chain's."""
        path, lineage = chain
        return any(
            other_path == path
            and other != lineage
            and other.state_key == lineage.state_key
            and other.overlaps(lineage.key_range)
            for other_path, other in self._backlog.failing
        )

    def error_of(self, chain: Chain) -> ConnectorError | None:
        """Why it is waiting."""
        return self._backlog.error_of(chain)


def _log_landed(landed: Landed) -> None:
    log.info(
        "table %s: %s %d rows in %d data file(s), %.2f s",
        ".".join(landed.chain[0].path),
        "recovered" if landed.chain[0].is_recovered else "committed",
        sum(commit.rows for commit in landed.chain),
        sum(commit.file_count for commit in landed.chain),
        landed.seconds,
        extra={FIELDS: {"attempts": landed.attempts, "bytes": sum(commit.size for commit in landed.chain)}},
    )
