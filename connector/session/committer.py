"""Commits staged commits. If a table fails, its commits are retried with later transactions, and between them."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from connector.host.errors import ConnectorError, FencedError, LostColumnError, RetryableError
from connector.host.logs import Event, fields, name_some
from connector.host.signals import Stopped
from connector.iceberg.commits.commit_outcomes import (
    AlreadyCommitted,
    Committed,
    Failed,
    Outcome,
    Superseded,
    Tell,
    warn_superseded,
)
from connector.iceberg.fences.fence import LastFences
from connector.model.state import ChainId, StagedCommit, TableId
from connector.session.backlog import Backlog, Limit, WaitingTable

log = logging.getLogger(__name__)

# A runtime stops the process 5 to 10 seconds after it has closed the input.
LAST_ATTEMPT: Final = 4.0  # seconds
ENDING: Final = (FencedError, LostColumnError)  # after these, no later attempt of a session can succeed


class Attempt(Protocol):
    """Tries to commit staged commits, a single time for each chain in `without_retry`; see `commit.try_commits`."""

    def __call__(self, staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> object: ...


class Committer:
    """Commits for one session, from any number of threads. Two attempts never work on the same table.

    Commits that fail stay in the connector state, and are retried, unless the error is one of those `ending` the
    session. `listeners` are told of each outcome, from several threads.
    """

    def __init__(
        self,
        attempt: Attempt,
        limit: Limit,
        listeners: Sequence[Tell] = (),
        ending: tuple[type[ConnectorError], ...] = ENDING,
    ) -> None:
        self._attempt = attempt
        self._listeners, self._ending = listeners, ending
        self.fences = LastFences()
        self._backlog = Backlog(limit)
        self._ended: list[StagedCommit] = []  # committed or void, and not returned by `commit` yet
        self._has_ended = False
        self._defect: Exception | None = None  # of an attempt between transactions, or of the last one
        self._changed = threading.Condition()  # guards all of the above

    def commit(self, staged: Sequence[StagedCommit]) -> list[StagedCommit]:
        """Try these commits, and pending ones that are due. Returns all that were committed since the last call.

        Raises FencedError if another process has taken over, LostColumnError if a column of the rows no longer exists,
        and other errors that end the session.
        """
        with self._changed:
            self._backlog.add(staged)
        self._commit_due()
        with self._changed:
            ended, self._ended = self._ended, []
        self.log_waiting()
        return ended

    def check_limit(self, bound: Collection[ChainId]) -> None:
        """Raise UserError if too much is pending to add more to one of these chains, those of the bound tables."""
        with self._changed:
            self._backlog.check_limit(bound)

    def supersede(self, chain_ids: Iterable[ChainId]) -> None:
        """Give up the pending commits of chains that a backfill has made void."""
        with self._changed:
            given_up = [Superseded(tuple(self._backlog.drop(chain_id))) for chain_id in chain_ids]
        for superseded in given_up:
            warn_superseded(superseded)
            self._tell(superseded)

    def retry(self) -> None:
        """Try the pending commits that are due. The next `commit` returns those that succeed.

        Raises the errors that end the session, like `commit`.
        """
        tried, has_ended = self._commit_due()
        if has_ended:
            self.log_running()
        self.log_waiting(tried)

    def wait_for_retry(self) -> bool:
        """Wait until a pending commit is due. Returns False if the session has ended."""
        with self._changed:
            while not self._has_ended:
                now, due = time.monotonic(), self._backlog.next_due
                if due is not None and due <= now:
                    return True
                self._changed.wait(None if due is None else due - now)
        return False

    def finish(self, seconds: float) -> None:
        """Try all pending commits one last time, for at most `seconds`. Raises RetryableError if any stay pending."""
        with self._changed:
            if not self._backlog.list_waiting():
                return
            self._backlog.end_pauses()
        threading.Thread(target=self._retry_last, name="last-attempt", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._defect or self._is_idle(), seconds)
            left = self._backlog.list_waiting()
        if self._defect:
            raise self._defect
        if left:
            raise _explain_pending(left)

    def note_error(self, error: Exception) -> None:
        """Let `finish` raise an error of an attempt, unless the backlog keeps it as that of a table."""
        if not isinstance(error, ConnectorError):
            with self._changed:
                self._defect = error
                self._changed.notify_all()

    def end(self) -> None:
        """End the session: `wait_for_retry` returns."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def find_pending(self, table: TableId, key_range: str) -> list[StagedCommit]:
        """Return the pending commits of a table whose key ranges overlap this one."""
        with self._changed:
            pending = self._backlog.find_pending(table)
        return [commit for commit in pending if commit.writer.overlaps(key_range)]

    def find_error(self, chain_id: ChainId) -> ConnectorError | None:
        """Return the reason why a chain is pending. None if it is not pending, or was not tried yet."""
        with self._changed:
            return self._backlog.find_error(chain_id)

    def log_running(self) -> None:
        """Log which tables refuse commits, and to which an attempt is still committing."""
        with self._changed:
            tables = self._backlog.list_waiting()
        _log_running(
            [table.table for table in tables if table.error], [table.table for table in tables if not table.error]
        )

    def log_waiting(self, of: Collection[str] | None = None) -> None:
        """Log a warning for each of these tables, or of all, whose last attempt failed."""
        with self._changed:
            tables = self._backlog.list_waiting()
        for table in tables:
            if table.error and (of is None or table.table in of):
                _log_waiting(table)

    def _retry_last(self) -> None:
        try:
            self.retry()
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self.note_error(error)

    def _commit_due(self) -> tuple[set[str], bool]:
        """Return the tables that were tried, and whether any commits succeeded or are void."""
        with self._changed:
            due, failing = self._backlog.take(time.monotonic()), self._backlog.failing
        log.debug("committing %d staged transaction(s) of all tables", len(due))
        ended: list[StagedCommit] = []
        fatal: list[ConnectorError] = []  # errors that end the session

        def note(outcome: Outcome) -> None:
            self._tell(outcome)  # before another thread may commit to the same table, and tell of that first
            with self._changed:
                match self._record(outcome):
                    case ConnectorError() as error:
                        fatal.append(error)
                    case commits:
                        ended.extend(commits)
                        # In this step: another thread may report later ones of the chain now, and never without these.
                        self._ended += commits
                self._changed.notify_all()

        self._attempt(due, without_retry=failing, tell=note)
        if fatal:
            raise fatal[0]
        return {str(commit.path) for commit in due}, bool(ended)

    def _tell(self, outcome: Outcome) -> None:
        for listener in self._listeners:
            listener(outcome)

    def _record(self, outcome: Outcome) -> Sequence[StagedCommit] | ConnectorError:
        """Return the commits that succeeded or are void, or the error that ends the session."""
        chain_id = outcome.staged[0].chain_id
        if isinstance(outcome, Failed):
            self._backlog.record_failure(chain_id, outcome.error, time.monotonic())
            return outcome.error if isinstance(outcome.error, self._ending) else ()
        if not isinstance(outcome, Superseded):
            self.fences.note_committed(outcome.staged[-1])  # before it leaves the pending ones
        self._backlog.record_commit(chain_id)
        match outcome:
            case Committed(_, added, attempts, seconds):
                _log_commit(added, attempts, seconds)
            case AlreadyCommitted(staged):
                _log_commit(staged, 0, 0.0)
        return outcome.staged

    def _is_idle(self) -> bool:
        due = self._backlog.next_due
        return not self._backlog.is_attempting and (due is None or due > time.monotonic())


@contextmanager
def run_retries(committer: Committer, interrupt: Callable[[Exception], None]) -> Iterator[None]:
    """Retry pending commits in a thread until the session ends, and then one last time. Without the thread, they would
    wait for the next transaction, and a quiet source sends none.

    If an error must end the session, the thread calls `interrupt` with it. Raises RetryableError if the input has ended
    and commits are still pending.
    """
    threading.Thread(target=_retry, args=(committer, interrupt), name="retries", daemon=True).start()
    try:
        yield
        committer.finish(LAST_ATTEMPT)
    except Stopped:
        committer.log_waiting()  # the last records name all pending commits
        raise
    finally:
        committer.end()


def _retry(committer: Committer, interrupt: Callable[[Exception], None]) -> None:
    try:
        while committer.wait_for_retry():
            committer.retry()
    except Exception as error:  # noqa: BLE001 - the session raises it
        committer.note_error(error)  # the input may have ended
        interrupt(error)


def _explain_pending(left: Iterable[WaitingTable]) -> RetryableError:
    consequence = (
        "The input has ended, and some acknowledged rows are not in their tables yet. They stay in the task's state. "
        "Start the task again with this state to commit them."
    )
    return RetryableError("\n".join((consequence, *map(str, left))))


def _log_commit(staged: Sequence[StagedCommit], attempts: int, seconds: float) -> None:
    table = str(staged[0].path)
    event = Event.RECOVERED if staged[0].is_recovered else Event.COMMITTED
    rows, files = sum(commit.rows for commit in staged), sum(commit.file_count for commit in staged)
    log.info(
        "table %s: %s %d rows in %d data file(s), %.2f s",
        table,
        event,
        rows,
        files,
        seconds,
        extra=fields(
            event,
            table=table,
            transactions=len(staged),
            rows=rows,
            files=files,
            bytes=sum(commit.size for commit in staged),
            attempts=attempts,
            seconds=round(seconds, 3),
        ),
    )


def _log_running(refusing: Sequence[str], committing: Sequence[str]) -> None:
    text = "running" if refusing or committing else "running: all committed transactions are in their tables"
    if refusing:
        text += f", but {len(refusing)} table(s) refuse commits, and their rows stay staged: {name_some(refusing)}"
    if committing:  # by an attempt that began before their newest rows came
        text += f", and {len(committing)} table(s) are still being committed: {name_some(committing)}"
    log.info("%s", text, extra=fields(Event.RUNNING, refusing=len(refusing)))


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
