"""A webhook is told of each snapshot, also when the process is killed between commit and message."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fixtures.conversation import CONFIG
from support.engines.readers import ledger_table
from support.repository import REPOSITORY
from support.servers.webhook_server import Answer, WebhookServer, webhook_server
from support.sessions.runtime import Runtime

SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with webhook_server() as server:
        yield server


def numbers(server: WebhookServer) -> list[int]:
    """The sequence numbers of the accepted messages."""
    return [posted.event["data"]["sequenceNumber"] for posted in server.accepted]


@pytest.mark.spark
def test_a_successor_tells_what_a_killed_process_did_not(tmp_path: Path, server: WebhookServer) -> None:
    notify: Any = {"url": server.url, "secret": SECRET}
    runtime = Runtime(tmp_path, config={**CONFIG, "notify": notify})
    hangs = threading.Event()
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        server.wait_for_accepted(1)
        server.answers.append(Answer(after=hangs))
        session.transaction({"id": 2})  # is acknowledged although the webhook hangs
        server.wait_for_posts(2)
        session.stage_and_die({"id": 3})  # SIGKILL
    server.accepted.clear()
    with runtime.open() as session:
        server.wait_for_accepted(2)
        session.transaction({"id": 4})
        outcome = session.finish()
    assert outcome.status == 0
    assert numbers(server)[-3:] == [2, 3, 4]
    snapshots = ledger_table(tmp_path).snapshots()
    assert server.snapshots()[-3:] == [("shop.ledger", snapshot.snapshot_id) for snapshot in snapshots[1:]]
    assert all(posted.headers["webhook-signature"].startswith("v1,") for posted in server.accepted)
    assert "tokenOfTheHook" not in outcome.log


def test_nothing_of_notifications_is_loaded_without_a_webhook() -> None:
    program = (
        "import sys; import connector.driver, connector.rpc.open, connector.rpc.apply, connector.session.open_session;"
        "import connector.session.session_threads;"
        "print(*(name for name in sys.modules if name.startswith('connector.notifications')))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert loaded.stdout.strip() == ""
