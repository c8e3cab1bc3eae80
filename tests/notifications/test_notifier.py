"""Each snapshot is told at least once and in order, whatever the webhook, the catalog and the session do."""

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connector.config.endpoint_config import Notification
from connector.config.secret import Secret
from connector.host.errors import RetryableError
from connector.host.redaction import redact
from connector.iceberg.commits import retry_commits
from connector.iceberg.commits.summaries import SUMMARY_MATERIALIZATION
from connector.iceberg.loaded_tables import load_table
from connector.model.table_identifier import TableIdentifier
from connector.notifications import notifier, table_queue
from connector.notifications.cloud_event import CloudEvent
from connector.notifications.notifier import run_notifier
from support.servers.server_process import free_address
from support.servers.webhook_server import LONG, Answer, WebhookServer, webhook_server
from support.sessions.notified_sessions import LEFT, ORDERS, RIGHT, TASK, VISITS, crash, killed_shard, shard
from support.snapshots import check_text
from support.tables.local_tables import foreign_table


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    for path in (ORDERS, VISITS):
        foreign_table(catalog, path)
    return catalog


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with webhook_server() as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(notifier, "LONGEST_PAUSE", 0.05)


def test_each_snapshot_is_told_in_the_order_of_its_table(catalog: Catalog, server: WebhookServer) -> None:
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(number)) for number in range(5)]
        server.wait_for_accepted(5)
    assert server.snapshots() == committed
    assert len({posted.headers["webhook-id"] for posted in server.accepted}) == 5


def test_a_message_says_what_was_committed(catalog: Catalog, server: WebhookServer) -> None:
    with shard(catalog, server.url) as session:
        session.commit(1)
        session.commit(2)
        server.wait_for_accepted(2)
    table = catalog.load_table(ORDERS)
    first, second = table.metadata.snapshots
    assert second.summary
    event = server.accepted[1].event
    at = event.pop("time")
    assert at.endswith("Z")
    assert abs(time.time() - second.timestamp_ms / 1000) < 60
    assert event == {
        "specversion": "1.0",
        "id": f"{table.metadata.table_uuid}-{second.snapshot_id}",
        "source": "/materialize-iceberg/acme/task",
        "type": "flow.iceberg.snapshot.committed",
        "subject": "shop.orders",
        "datacontenttype": "application/json",
        "data": {
            "table": "shop.orders",
            "tableUuid": str(table.metadata.table_uuid),
            "snapshotId": str(second.snapshot_id),
            "parentSnapshotId": str(first.snapshot_id),
            "sequenceNumber": 2,
            "operation": "append",
            "materialization": TASK,
            "stateKey": LEFT.state_key,
            "keyRange": LEFT.key_range,
            "upsertedRows": 1,
            "deletedRows": 0,
            "addedDataFiles": 1,
            "addedDeleteFiles": 0,
            "addedBytes": int(str(second.summary["added-files-size"])),
            "minPublishedAt": None,
            "maxPublishedAt": None,
        },
    }


def test_a_time_that_is_later_than_any_date_fails_no_commit(catalog: Catalog, server: WebhookServer) -> None:
    """Another engine has written microseconds for milliseconds. Each later snapshot is dated after it."""
    metadata = Path(catalog.load_table(ORDERS).metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "last-updated-ms": 1_900_000_000_000_000}))
    with shard(catalog, server.url) as session:
        session.commit(1)
        server.wait_for_accepted(1)
    assert server.accepted[0].event["time"] == "9999-12-31T23:59:59.999Z"


def test_a_commit_does_not_wait_for_a_webhook_that_hangs(catalog: Catalog, server: WebhookServer) -> None:
    hangs = threading.Event()
    server.answers.append(Answer(after=hangs))
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(0))]
        server.wait_for_posts(1)
        committed += [("shop.orders", session.commit(number)) for number in range(1, 4)]
        assert not server.accepted
        hangs.set()
        server.wait_for_accepted(4)
    assert server.snapshots() == committed


def test_a_message_that_fails_is_posted_again_before_the_next(catalog: Catalog, server: WebhookServer) -> None:
    server.answers += [Answer(500), Answer(429), Answer(503), Answer(200), Answer(400), Answer(404)]
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(number)) for number in range(3)]
        server.wait_for_accepted(3)
    assert server.snapshots() == committed
    posted = [each.event["data"]["sequenceNumber"] for each in server.posted]
    assert posted == [1, 1, 1, 1, 2, 2, 2, 3]


def test_a_webhook_that_asks_for_time_gets_it(catalog: Catalog, server: WebhookServer) -> None:
    server.answers.append(Answer(429, {"Retry-After": "1"}))
    posted_at: list[float] = []  # as the server sees it: whoever waits for it may be late
    server.on_post = lambda _: posted_at.append(time.monotonic())
    with shard(catalog, server.url) as session:
        session.commit(1)
        server.wait_for_accepted(1)
    refused, accepted = posted_at
    assert accepted - refused >= 1


def test_a_table_whose_messages_are_refused_delays_no_other(catalog: Catalog, server: WebhookServer) -> None:
    server.answers.append(Answer(400, {"Retry-After": "60"}))
    with killed_shard(catalog, server.url) as session:
        session.commit(1, ORDERS)
        server.wait_for_posts(1)
        visits = [("shop.visits", session.commit(number, VISITS)) for number in range(2)]
        session.commit(2, ORDERS)
        server.wait_for_accepted(2)
        assert server.snapshots() == visits


def test_a_crash_between_commit_and_post_loses_nothing(catalog: Catalog, server: WebhookServer) -> None:
    committed = crash(catalog, 1, 2, 3)
    with shard(catalog, server.url):
        server.wait_for_accepted(3)
    assert server.snapshots() == committed


def test_a_successor_goes_on_before_its_own_snapshots(catalog: Catalog, server: WebhookServer) -> None:
    committed = crash(catalog, 1, 2)
    with shard(catalog, server.url) as session:
        committed = [*committed, ("shop.orders", session.commit(3))]
        server.wait_for_accepted(3)
    assert server.snapshots() == committed


def test_only_what_may_not_have_been_told_is_told_again(catalog: Catalog, server: WebhookServer) -> None:
    """Without the record of a later commit, the last message may have got lost."""
    with shard(catalog, server.url) as session:
        for number in range(4):
            session.commit(number)
            session.wait_until_told()
    with shard(catalog, server.url) as session:
        server.wait_for_accepted(5)
        session.wait_until_told()
        session.commit(5)
    assert [each.event["data"]["sequenceNumber"] for each in server.accepted] == [1, 2, 3, 4, 4, 5]
    assert server.accepted[3].body == server.accepted[4].body


def test_a_commit_whose_answer_was_lost_is_told(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, faults = type(catalog).commit_table, iter([True])

    def lose_the_answer(*arguments: object) -> object:
        answer = send(*arguments)  # type: ignore[arg-type]
        if next(faults, False):
            raise CommitStateUnknownException("no answer")
        return answer

    monkeypatch.setattr(type(catalog), "commit_table", lose_the_answer)
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", 0.001)
    with shard(catalog, server.url) as session:
        committed = session.commit(1)
        server.wait_for_accepted(1)
    assert server.snapshots() == [("shop.orders", committed)]


def test_two_key_ranges_tell_every_snapshot_in_the_order_of_the_table(catalog: Catalog, server: WebhookServer) -> None:
    """Each message may come twice, but never before an older one has come."""
    committed = []
    with shard(catalog, server.url) as left, shard(catalog, server.url, RIGHT) as right:
        for number in range(10):
            committed.append(("shop.orders", (left, right)[number % 2].commit(number)))
        server.wait_until(lambda: len(set(server.snapshots())) == 10)
    first_times = list(dict.fromkeys(server.snapshots()))
    assert first_times == committed


def test_a_key_range_tells_what_the_other_has_not_told(catalog: Catalog, server: WebhookServer) -> None:
    with killed_shard(catalog, f"http://{free_address()}/hook") as left:
        committed = [("shop.orders", left.commit(1))]
        with shard(catalog, server.url, RIGHT) as right:
            committed.append(("shop.orders", right.commit(2)))
            server.wait_for_accepted(2)
    assert server.snapshots() == committed


@pytest.mark.parametrize("is_late", [False, True])
def test_a_refused_message_that_the_other_key_range_has_told_delays_no_later_one(
    catalog: Catalog, server: WebhookServer, is_late: bool
) -> None:
    """The refusal comes before or after the table says that it was told."""
    answers = threading.Event()
    server.answers.append(Answer(400, {"Retry-After": "60"}, after=answers if is_late else None))
    with webhook_server() as other, killed_shard(catalog, server.url) as left:
        left.commit(1)
        server.wait_for_posts(1)
        with shard(catalog, other.url, RIGHT) as right:
            right.commit(2)
            other.wait_for_accepted(2)
            right.wait_until_told()
            committed = [("shop.orders", right.commit(3))]
        committed.append(("shop.orders", left.commit(4)))
        answers.set()
        server.wait_for_accepted(2)
    assert server.snapshots() == committed


def test_what_does_not_fit_into_memory_is_read_from_the_table(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_queue, "MOST_WAITING", 2)
    hangs = threading.Event()
    server.answers.append(Answer(after=hangs))
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(number)) for number in range(7)]
        assert max(queue.waiting for queue in session.notifier._queues.values()) == 2
        hangs.set()
        server.wait_for_accepted(7)
    assert server.snapshots() == committed


def test_a_table_that_cannot_be_read_now_is_read_later(catalog: Catalog, server: WebhookServer) -> None:
    committed = crash(catalog, 1)
    faults = iter([True, True])

    def load(path: TableIdentifier) -> object:
        if next(faults, False):
            raise RetryableError("the catalog does not answer")
        return load_table(catalog, path)

    with run_notifier(load, TASK, Notification(url=Secret(server.url))) as started:  # type: ignore[arg-type]
        started.read_later([ORDERS])
        server.wait_for_accepted(1)
    assert server.snapshots() == committed


def test_the_end_of_the_input_does_not_ask_again_and_again_for_a_table_that_cannot_be_read(
    server: WebhookServer,
) -> None:
    asked: list[TableIdentifier] = []

    def load(path: TableIdentifier) -> None:
        asked.append(path)
        raise RetryableError("the catalog does not answer")

    with run_notifier(load, TASK, Notification(url=Secret(server.url))) as started:
        started.read_later([ORDERS])
    assert 1 <= len(asked) <= 2


def test_a_table_that_cannot_be_read_is_looked_at_again_after_a_pause(
    server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LONGEST_PAUSE", 300.0)
    asked: list[TableIdentifier] = []
    is_read = threading.Event()

    def load(path: TableIdentifier) -> None:
        asked.append(path)
        if len(asked) <= 2:
            started.read_later([VISITS])
        else:
            is_read.set()
        if path == ORDERS:
            raise RetryableError("the catalog does not answer")

    with run_notifier(load, TASK, Notification(url=Secret(server.url))) as started:
        started.read_later([ORDERS])
        assert is_read.wait(LONG)
    assert asked == [ORDERS, VISITS, VISITS, ORDERS]  # the end of the input heeds no pause


def test_an_error_that_no_one_expects_does_not_end_the_messages(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one of a library that posts."""
    send, faults = requests.Session.send, iter([True])

    def fail_once(*arguments: Any, **options: Any) -> Any:
        if next(faults, False):
            raise AttributeError(f"no such thing: {server.url}")
        return send(*arguments, **options)

    monkeypatch.setattr(requests.Session, "send", fail_once)
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(1))]
        server.wait_for_accepted(1)
    assert server.snapshots() == committed
    [text] = re.findall(r"\((unexpected .*)\); it is posted again later", caplog.text)
    check_text("notification_errors", "unexpected error", text)
    assert "tokenOfTheHook" not in caplog.text


def test_pauses_grow_until_the_webhook_is_available_again(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def pause(number: int, _: float) -> float:
        failures.append(number)
        return 0.0

    monkeypatch.setattr(notifier, "_pause", pause)
    refused, down = Answer(404), Answer(500)
    server.answers += [down, down, Answer(), refused, refused, Answer(), down, refused]
    with shard(catalog, server.url) as session:
        for number in range(3):
            session.commit(number)
            server.wait_for_accepted(number + 1)
    assert failures == [1, 2, 1, 2, 1, 1]


def test_a_pause_has_a_limit_however_often_the_webhook_has_failed() -> None:
    assert 0.025 <= notifier._pause(1000, 0.0) <= 0.05
    assert notifier._pause(1000, 7.0) == 7.0


def test_the_source_of_a_message_is_a_uri_whatever_the_name_of_the_task() -> None:
    summary = Summary(Operation.APPEND, **{SUMMARY_MATERIALIZATION: "acme/Läger 1?"})
    snapshot = Snapshot(**{"snapshot-id": 7, "manifest-list": "list.avro", "summary": summary})
    event = json.loads(CloudEvent.of(ORDERS, "a-uuid", snapshot).body)
    assert event["source"] == "/materialize-iceberg/acme/L%C3%A4ger%201%3F"


def test_a_message_that_nobody_takes_for_days_is_given_up(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifier, "GIVE_UP_AFTER", -1.0)
    server.answers.append(Answer(500))
    with shard(catalog, server.url) as session:
        session.commit(1)
        second = session.commit(2)
        server.wait_for_accepted(1)
    assert server.snapshots() == [("shop.orders", second)]
    assert "is not accepted by 127.0.0.1" in caplog.text
    assert "(HTTP 500), and is given up" in caplog.text
    assert "tokenOfTheHook" not in caplog.text


def test_the_end_of_the_input_waits_a_moment_for_the_last_messages(catalog: Catalog, server: WebhookServer) -> None:
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(number)) for number in range(3)]
    assert server.snapshots() == committed


def test_the_end_of_the_input_tries_again_what_has_failed(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(notifier, "LONGEST_PAUSE", 60.0)
    server.answers.append(Answer(500))
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(1))]
        server.wait_for_posts(1)
    assert server.snapshots() == committed


@pytest.mark.parametrize("is_hanging", [True, False])
def test_the_end_of_the_input_does_not_wait_long(
    catalog: Catalog, server: WebhookServer, monkeypatch: pytest.MonkeyPatch, is_hanging: bool
) -> None:
    monkeypatch.setattr(notifier, "LAST_ATTEMPT", 0.3)
    monkeypatch.setattr(notifier, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(notifier, "LONGEST_PAUSE", 60.0)
    hangs = threading.Event()
    server.usual = Answer(after=hangs) if is_hanging else Answer(500)
    with shard(catalog, server.url) as session:
        committed = [("shop.orders", session.commit(number)) for number in range(3)]
        server.wait_for_posts(1)
        began = time.monotonic()
    assert time.monotonic() - began < LONG / 3
    assert len(server.posted) <= 2, "the last attempt ends with the first failure"
    hangs.set()
    server.usual = Answer()
    server.accepted.clear()
    with shard(catalog, server.url):
        server.wait_for_accepted(3)
    assert server.snapshots()[-3:] == committed


def test_the_address_of_the_webhook_is_redacted(server: WebhookServer) -> None:
    Notification(url=Secret(server.url))
    assert redact(f"POST {server.url} failed") == "POST *** failed"
