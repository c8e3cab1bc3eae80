"""Random sessions, with crashes, two key ranges and a webhook that fails: what is promised holds, and a defect that is
planted on purpose is found."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from connector.model.table_identifier import TableIdentifier
from connector.notifications import notified_snapshots, notifier, table_queue
from connector.notifications.cloud_event import CloudEvent
from connector.notifications.notifier import Notifier
from connector.notifications.webhook import DeliveryError
from support import private_connector
from support.servers.webhook_server import Answer, Posted, WebhookServer, webhook_server
from support.sessions.notified_sessions import LEFT, ORDERS, RIGHT, VISITS, killed_shard, shard
from support.tables.local_tables import foreign_table, local_catalog

pytestmark = pytest.mark.long

SEEDS: Final = range(4)
ANSWERS: Final = (200, 200, 200, 429, 500, 503, 400)


class BrokenPromiseError(AssertionError):
    """Something that notifications promise does not hold."""


def hold_random_sessions(warehouse: Path, random: Random) -> None:
    """Raises BrokenPromiseError unless each snapshot was told, in order for each table, after its commit."""
    catalog = local_catalog(warehouse)
    for path in (ORDERS, VISITS):
        foreign_table(catalog, path)
    committed: dict[str, list[int]] = {str(ORDERS): [], str(VISITS): []}
    early: list[str] = []

    def check_is_committed(posted: Posted) -> None:
        data = posted.event["data"]
        if local_catalog(warehouse).load_table(data["table"]).snapshot_by_id(int(data["snapshotId"])) is None:
            early.append(data["snapshotId"])

    with webhook_server() as server:
        server.on_post = check_is_committed
        for _ in range(4):
            server.answers.extend(Answer(random.choice(ANSWERS)) for _ in range(8))
            with ExitStack() as stack:
                shards = [
                    stack.enter_context(random.choice((shard, killed_shard))(catalog, server.url, writer))
                    for writer in (LEFT, RIGHT)
                ]
                for number in range(random.randint(1, 6)):
                    path = random.choice((ORDERS, ORDERS, VISITS))
                    committed[str(path)].append(random.choice(shards).commit(number, path))
        server.answers.clear()
        with shard(catalog, server.url):
            pass  # the end of the input waits for the last messages
        check_promises(server, committed, early)


def hold_all(directory: Path) -> None:
    for seed in SEEDS:
        hold_random_sessions(directory / str(seed), Random(seed))


def check_promises(server: WebhookServer, committed: dict[str, list[int]], early: list[str]) -> None:
    if early:
        raise BrokenPromiseError(f"told before they were committed: {early}")
    for table, snapshots in committed.items():
        told = [snapshot for of_table, snapshot in server.snapshots() if of_table == table]
        if list(dict.fromkeys(told)) != snapshots:
            raise BrokenPromiseError(f"{table}: told {told}, committed {snapshots}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(notifier, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(notifier, "LAST_ATTEMPT", 20.0)
    monkeypatch.setattr(table_queue, "MOST_WAITING", 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_snapshot_is_told_after_its_commit_and_in_order(tmp_path: Path, seed: int) -> None:
    hold_random_sessions(tmp_path, Random(seed))


def post_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    write = getattr(*private_connector.MAKE_SNAPSHOT)

    def post_early(self: Any, table: Table, *rest: Any, **others: Any) -> Snapshot:
        snapshot: Snapshot = write(self, table, *rest, **others)
        try:
            event = CloudEvent.of(TableIdentifier.of(table), str(table.metadata.table_uuid), snapshot)
            self._mark.__self__._post(event)
        except DeliveryError:
            pass
        return snapshot

    patch.setattr(*private_connector.MAKE_SNAPSHOT, post_early)


def take_all_older_snapshots_for_told(patch: pytest.MonkeyPatch) -> None:
    def mark_all(_: str, table: Table, __: int = 0) -> dict[str, str]:
        return {"flow.notified": str(table.metadata.last_sequence_number)}  # type: ignore[union-attr]

    patch.setattr(notifier, "mark_commit", mark_all)


def tell_only_the_newest(patch: pytest.MonkeyPatch) -> None:
    def find_newest(metadata: TableMetadata, materialization: str, after: int) -> list[Snapshot]:
        return notified_snapshots.find_newer(metadata, materialization, after)[-1:]

    patch.setattr(table_queue, "find_newer", find_newest)


def tell_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    def find_reversed(metadata: TableMetadata, materialization: str, after: int) -> list[Snapshot]:
        return notified_snapshots.find_newer(metadata, materialization, after)[::-1]

    patch.setattr(table_queue, "find_newer", find_reversed)


def go_on_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    note = Notifier._note_failure

    def forget(self: Any, queue: Any, event: CloudEvent, error: DeliveryError, *, is_last: bool) -> None:
        note(self, queue, event, error, is_last=is_last)
        queue.end(event)

    patch.setattr(Notifier, "_note_failure", forget)


def forget_what_does_not_fit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Notifier, "_end", lambda _, queue, event: queue.end(event))
    patch.setattr(Notifier, "read_later", lambda *_: None)


DEFECTS: Final[tuple[Callable[[pytest.MonkeyPatch], None], ...]] = (
    post_before_the_commit,
    take_all_older_snapshots_for_told,
    tell_only_the_newest,
    tell_the_newest_first,
    go_on_after_a_failure,
    forget_what_does_not_fit,
)


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(BrokenPromiseError):
        hold_all(tmp_path)
