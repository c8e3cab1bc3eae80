"""Tells a webhook of each snapshot that the task commits: at least once, and in order for each table.

A thread posts the messages, so no transaction waits for the webhook. What it does not get to is not lost: the summaries
of the snapshots say what the webhook has been told, and a later session tells the rest.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connector.config.endpoint_config import Notification
from connector.host import facts
from connector.host.facts import Delivery, WaitingNotifications
from connector.host.logs import Event, fields
from connector.iceberg.commits.commit_outcomes import AlreadyCommitted, Committed, Outcome
from connector.model.table_identifier import TableIdentifier
from connector.notifications.cloud_event import CloudEvent
from connector.notifications.notified_snapshots import mark_commit
from connector.notifications.table_queue import TableQueue
from connector.notifications.webhook import DeliveryError, Webhook

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0  # seconds, doubled with every attempt up to LONGEST_PAUSE
LONGEST_PAUSE: Final = 300.0
# Seconds after its commit. Snapshots are kept for three days at most: a successor may not see an older one any more.
GIVE_UP_AFTER: Final = 2 * 86_400.0
# Seconds at the end of the input, after the last attempts of commits. A runtime then stops the process soon.
LAST_ATTEMPT: Final = 2.0

LoadTable: TypeAlias = Callable[[TableIdentifier], Table | None]  # None: there is no such table
Post: TypeAlias = Callable[[CloudEvent], None]  # raises DeliveryError


class Notifier:
    """The messages that wait, by table, and the thread that posts them."""

    def __init__(self, load: LoadTable, materialization: str, host: str, post: Post) -> None:
        self._load = load
        self._materialization = materialization
        self._host = host
        self._post = post
        self._queues: dict[UUID, TableQueue] = {}
        self._unread: dict[TableIdentifier, float] = {}  # tables to be looked at, and when
        self._failures = 0  # attempts since the webhook has last been available
        self._due = 0.0  # when the webhook may be available
        self._is_busy = self._is_ending = self._has_given_up = self._has_ended = False
        self._changed = threading.Condition()  # guards all of the above

    def mark(self, table: Table) -> dict[str, str]:
        """Return what the summary of a commit that is based on this table says about notifications."""
        with self._changed:
            queue = self._queues.get(table.metadata.table_uuid)
            return mark_commit(self._materialization, table, queue.notified if queue else 0)

    def note_outcome(self, outcome: Outcome) -> None:
        """Queue the messages about a commit, and about earlier ones of its table that were not told yet."""
        match outcome:
            case Committed(staged, commit=commit):
                self._add(staged[0].path, commit.after)
            case AlreadyCommitted(staged):
                self.read_later([staged[0].path])

    def read_later(self, paths: Sequence[TableIdentifier]) -> None:
        """Let the thread look at these tables for snapshots that were not told yet."""
        with self._changed:
            self._unread |= dict.fromkeys(paths, 0.0)
            self._changed.notify_all()

    def run(self) -> None:
        """Post messages until `end` is called."""
        while (work := self._wait_for_work()) is not None:
            if isinstance(work, TableQueue):
                self._post_first(work)
            else:
                self._read(work)

    def finish(self, seconds: float) -> None:
        """Make a last attempt for all messages, until one fails, for at most so many seconds."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_done, seconds)
            if left := sum(queue.waiting for queue in self._queues.values()):
                log.warning(
                    "%d notification(s) are not posted yet: the next session posts them",
                    left,
                    extra=fields(Event.UNDELIVERED, host=self._host, waiting=left),
                )

    def end(self) -> None:
        """Let `run` return."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _add(self, path: TableIdentifier, metadata: TableMetadata) -> None:
        with self._changed:
            queue = self._queues.setdefault(metadata.table_uuid, TableQueue(path))
            queue.add(metadata, self._materialization)
            _report_waiting(queue)
            self._changed.notify_all()

    def _wait_for_work(self) -> TableQueue | TableIdentifier | None:
        """Return a queue whose first message is due, or a table that must be looked at. None at the end."""
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
            while not self._has_ended:
                now = time.monotonic()
                if work := next((work for work, at in self._find_due_times() if at <= now), None):
                    self._is_busy = True
                    return work
                self._changed.wait(min((at - now for _, at in self._find_due_times()), default=None))
        return None

    def _find_due_times(self) -> Iterator[tuple[TableQueue | TableIdentifier, float]]:
        """Yield when each table is due that must be looked at, and each queue with messages."""
        if self._has_given_up:
            return
        for path, at in self._unread.items():
            yield path, 0.0 if self._is_ending else at
        for queue in self._queues.values():
            if queue.first:
                yield queue, 0.0 if self._is_ending else max(queue.due, self._due)

    def _read(self, path: TableIdentifier) -> None:
        with self._changed:
            self._unread.pop(path, None)
            is_last = self._is_ending
        try:
            if table := self._load(path):
                self._add(path, table.metadata)
        except Exception as error:  # noqa: BLE001 - a catalog that does not answer must not end the thread
            with self._changed:
                self._unread[path] = time.monotonic() + LONGEST_PAUSE
                self._has_given_up = is_last
            log.warning("table %s: notifications are late: %s: %s", path, type(error).__name__, error)

    def _post_first(self, queue: TableQueue) -> None:
        with self._changed:
            event, is_last = queue.first, self._is_ending
        if event is None:  # another shard has told it meanwhile
            return
        try:
            self._post(event)
        except Exception as error:  # noqa: BLE001 - an error that no one expects must not end the thread
            # The text of an unexpected error may contain the address.
            failure = error if isinstance(error, DeliveryError) else DeliveryError(f"unexpected {type(error).__name__}")
            facts.report(Delivery(str(queue.path), has_failed=True))
            self._note_failure(queue, event, failure, is_last=is_last)
        else:
            facts.report(Delivery(str(queue.path), has_failed=False))
            self._note_success(queue, event)

    def _note_success(self, queue: TableQueue, event: CloudEvent) -> None:
        with self._changed:
            self._failures, self._due = 0, 0.0
            self._end(queue, event)
            uuid = next(uuid for uuid, each in self._queues.items() if each is queue)
            self._queues[uuid] = self._queues.pop(uuid)  # the tables take turns
            self._changed.notify_all()

    def _note_failure(self, queue: TableQueue, event: CloudEvent, error: DeliveryError, *, is_last: bool) -> None:
        is_given_up = time.time() - event.committed > GIVE_UP_AFTER
        with self._changed:
            if not error.is_refusal:
                self._failures += 1
                self._due = time.monotonic() + _pause(self._failures, error.retry_after)
            elif queue.first is event:  # otherwise another shard has told it meanwhile
                queue.refusals += 1
                queue.due = time.monotonic() + _pause(queue.refusals, error.retry_after)
            self._has_given_up = is_last
            if is_given_up:
                self._end(queue, event)
            waiting = sum(queue.waiting for queue in self._queues.values())
            self._changed.notify_all()
        log.warning(
            "table %s: the notification of a snapshot is not accepted by %s (%s)%s",
            queue.path,
            self._host,
            error,
            ", and is given up" if is_given_up else "; it is posted again later",
            extra=fields(Event.UNDELIVERED, table=str(queue.path), host=self._host, waiting=waiting),
        )

    def _end(self, queue: TableQueue, event: CloudEvent) -> None:
        queue.end(event)
        _report_waiting(queue)
        if queue.is_cut and not queue.first:
            self._unread[queue.path] = 0.0

    def _is_done(self) -> bool:
        return not self._is_busy and next(self._find_due_times(), None) is None


def _report_waiting(queue: TableQueue) -> None:
    facts.report(WaitingNotifications(str(queue.path), queue.first.committed if queue.first else None))


def _pause(failures: int, retry_after: float) -> float:
    pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE)
    return max(pause * random.uniform(0.5, 1), retry_after)


@contextmanager
def run_notifier(load: LoadTable, materialization: str, notification: Notification) -> Iterator[Notifier]:
    """Run a thread that posts messages until the session ends, and then for a moment more if the input has ended."""
    webhook = Webhook(notification)
    notifier = Notifier(load, materialization, webhook.host, webhook.post)
    threading.Thread(target=notifier.run, name="notifications", daemon=True).start()
    try:
        yield notifier
        notifier.finish(LAST_ATTEMPT)
    finally:
        notifier.end()
