"""Sessions of a task as far as notifications see them: commits, and a process that may be killed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from pyiceberg.catalog import Catalog

from connector.config.endpoint_config import Notification
from connector.config.secret import Secret
from connector.iceberg.commits.commit import try_commits
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.loaded_tables import load_table
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.notifications.notifier import Notifier, run_notifier
from connector.session.backlog import Limit
from connector.session.committer import Committer
from support.rows.staged_files import stage
from support.servers.server_process import free_address
from support.servers.webhook_server import LONG

TASK: Final = "acme/task"
ORDERS, VISITS = TableIdentifier("shop", "orders"), TableIdentifier("shop", "visits")
LEFT: Final = WriterId(TASK, "orders.v1", "00000000-7fffffff")
RIGHT: Final = replace(LEFT, key_range="80000000-ffffffff")


class Shard:
    """What a session has of commits and notifications."""

    def __init__(self, catalog: Catalog, notifier: Notifier, writer: WriterId) -> None:
        self._catalog = catalog
        self._writer = writer
        self.notifier = notifier
        attempt = partial(try_commits, catalog, writers=SnapshotWriters(mark=notifier.mark))
        self._committer = Committer(attempt, Limit(100, 1 << 30), [notifier.note_outcome])

    def commit(self, number: int, path: TableIdentifier = ORDERS) -> int:
        """Commit one row; returns the snapshot's id."""
        staged = replace(stage(self._catalog, path, self._writer, number), is_recovered=True)
        assert self._committer.commit([staged]) == [staged]
        snapshot = self._catalog.load_table(path).current_snapshot()
        assert snapshot
        return snapshot.snapshot_id

    def wait_until_told(self) -> None:
        with self.notifier._changed:
            assert self.notifier._changed.wait_for(
                lambda: not any(queue.waiting for queue in self.notifier._queues.values()), LONG
            )


@contextmanager
def shard(catalog: Catalog, url: str, writer: WriterId = LEFT) -> Iterator[Shard]:
    """A session of this task, until its input ends."""
    with run_notifier(partial(load_table, catalog), TASK, Notification(url=Secret(url))) as started:
        started.read_later([ORDERS, VISITS])
        yield Shard(catalog, started, writer)


class KilledError(Exception):
    """The process is killed."""


@contextmanager
def killed_shard(catalog: Catalog, url: str, writer: WriterId = LEFT) -> Iterator[Shard]:
    """A session whose process is killed in the end."""
    with suppress(KilledError), shard(catalog, url, writer) as session:
        yield session
        raise KilledError


def crash(catalog: Catalog, *numbers: int) -> Sequence[tuple[str, int]]:
    """A session that commits, and whose process is killed before a webhook answers; returns what it has committed."""
    with killed_shard(catalog, f"http://{free_address()}/hook") as session:
        return [("shop.orders", session.commit(number)) for number in numbers]
