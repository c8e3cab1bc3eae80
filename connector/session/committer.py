"""Commits what is staged, and keeps trying where a table refuses: with later transactions, and between them."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from connector.host.errors import ConnectorError, FencedError, LostColumnError, RetryableError
from connector.host.logs import Event, fields
from connector.host.signals import Stopped
from connector.iceberg.commits.commit import Committed, Failed, Landed
from connector.model.state import ChainId, StagedCommit, TableId
from connector.session.backlog import Backlog, Limit, WaitingTable

log = logging.getLogger(__name__)

# A runtime ends the process 5 to 10 seconds after the end of its input.
LAST_ATTEMPT: Final = 4.0  # seconds


class Attempt(Protocol):
    """One try at a number of staged commits; see `commit.try_commits`."""

    def __call__(self, staged: Sequence[StagedCommit], *, once: Collection[ChainId]) -> Sequence[Landed | Failed]: ...


class Committer:
    """One session's commits, for any number of threads. What a table refuses stays in the state and is tried again.

    No two attempts work on the same table. `after_commit` is told of each commit that a table took.
    """

    def __init__(
        self, attempt: Attempt, limit: Limit, after_commit: Callable[[Committed], object] = lambda _: None
    ) -> None:
        self._attempt = attempt
        self._after_commit = after_commit
        self._backlog = Backlog(limit)
        self._retried: list[StagedCommit] = []  # have landed, and no `commit` has returned them yet
        self._has_ended = False
        self._changed = threading.Condition()  # guards all of the above

    def commit(self, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        """Try these, and the earlier ones that are due; return what has landed since the last call.

        FencedError when this process has been replaced, LostColumnError when it writes to a column that is gone,
        UserError when too much waits for one table.
        """
        with self._changed:
            self._backlog.add(staged)
        landed = self._try_what_is_due()
        with self._changed:
            self._backlog.check()
            retried, self._retried = self._retried, []
        self.log_waiting()
        return [*retried, *landed]

    def retry(self) -> None:
        """Try what is due; the next `commit` returns what lands. Raises FencedError and LostColumnError, as `commit`
        does."""
        landed = self._try_what_is_due()
        with self._changed:
            self._retried += landed
        self.log_waiting()

    def wait_for_retry(self) -> bool:
        """Wait until something is due to be retried; False when the session has ended."""
        with self._changed:
            while not self._has_ended:
                now, due = time.monotonic(), self._backlog.next_due
                if due is not None and due <= now:
                    return True
                self._changed.wait(None if due is None else due - now)
        return False

    def finish(self, seconds: float) -> None:
        """Try everything that waits one last time, for at most so many seconds. RetryableError if anything is left."""
        with self._changed:
            if not self._backlog.waiting_tables():
                return
            self._backlog.end_pauses()
        threading.Thread(target=self._retry_and_end, name="last-attempt", daemon=True).start()
        with self._changed:
            self._changed.wait_for(self._is_idle, seconds)
            left = self._backlog.waiting_tables()
        if left:
            raise _unfinished(left)

    def end(self) -> None:
        """Let `wait_for_retry` return."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def waiting(self, table: TableId, key_range: str) -> list[StagedCommit]:
        """What a table has not taken yet of what was staged for an overlapping key range."""
        return [commit for commit in self._backlog.waiting(table) if commit.writer.overlaps(key_range)]

    def error_of(self, chain: ChainId) -> ConnectorError | None:
        """Why it is waiting."""
        return self._backlog.error_of(chain)

    def log_waiting(self) -> None:
        """Warn of every table for which an attempt has failed since it took its last commit."""
        with self._changed:
            tables = self._backlog.waiting_tables()
        for table in tables:
            if table.error:
                _log_waiting(table)

    def _retry_and_end(self) -> None:
        with suppress(ConnectorError):  # is kept with what waits for the table
            self.retry()

    def _try_what_is_due(self) -> list[StagedCommit]:
        with self._changed:
            due, failing = self._backlog.take(time.monotonic()), self._backlog.failing
        log.debug("committing %d staged transaction(s) of all tables", len(due))
        outcomes = self._attempt(due, once=failing)
        with self._changed:
            landed, final = self._record(outcomes)
            self._changed.notify_all()
        for outcome in outcomes:
            if isinstance(outcome, Landed) and outcome.commit:
                self._after_commit(outcome.commit)
        if final:
            raise final
        return landed

    def _record(
        self, outcomes: Iterable[Landed | Failed]
    ) -> tuple[list[StagedCommit], FencedError | LostColumnError | None]:
        """What has landed, and the error after which no later attempt can succeed."""
        landed: list[StagedCommit] = []
        final: FencedError | LostColumnError | None = None
        for outcome in outcomes:
            match outcome:
                case Landed(commits):
                    self._backlog.landed(commits[0].chain_id)
                    _log_landed(outcome)
                    landed += commits
                case Failed(commits, error):
                    self._backlog.failed(commits[0].chain_id, error, time.monotonic())
                    if isinstance(error, FencedError | LostColumnError):
                        final = error
        return landed, final

    def _is_idle(self) -> bool:
        due = self._backlog.next_due
        return not self._backlog.is_tried and (due is None or due > time.monotonic())


@contextmanager
def run_retries(committer: Committer, interrupt: Callable[[Exception], None]) -> Iterator[None]:
    """Retry pending commits on a clock of its own until the session ends, and then one last time. A quiet source sends
    no transaction that could do it.

    `interrupt` is given the error that has to end the session. RetryableError if the input ends and rows still wait.
    """
    threading.Thread(target=_retry, args=(committer, interrupt), name="retries", daemon=True).start()
    try:
        yield
        committer.finish(LAST_ATTEMPT)
    except Stopped:
        committer.log_waiting()  # the last record says what is in no table
        raise
    finally:
        committer.end()


def _retry(committer: Committer, interrupt: Callable[[Exception], None]) -> None:
    try:
        while committer.wait_for_retry():
            committer.retry()
    except Exception as error:
        interrupt(error)


def _unfinished(left: Iterable[WaitingTable]) -> RetryableError:
    consequence = (
        "The input has ended, and some rows that were acknowledged are in no table yet. They stay in the task's state: "
        "start the task again with this state, and they are added."
    )
    return RetryableError("\n".join((consequence, *map(str, left))))


def _log_landed(landed: Landed) -> None:
    table = ".".join(landed.commits[0].path)
    event = Event.RECOVERED if landed.commits[0].is_recovered else Event.COMMITTED
    rows, files = sum(commit.rows for commit in landed.commits), sum(commit.file_count for commit in landed.commits)
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
            transactions=len(landed.commits),
            rows=rows,
            files=files,
            bytes=sum(commit.size for commit in landed.commits),
            attempts=landed.attempts,
            seconds=round(landed.seconds, 3),
        ),
    )


def _log_waiting(waiting: WaitingTable) -> None:
    log.warning(
        "%s",
        waiting,
        extra=fields(
            Event.WAITING,
            table=waiting.table,
            transactions=waiting.transactions,
            rows=waiting.rows,
            bytes=waiting.size,
        ),
    )
