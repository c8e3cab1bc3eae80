"""A webhook: an HTTP server that keeps what is posted to it, and answers as it is told."""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any, Final, TypeAlias

from support.plans import plan
from support.servers.certificate import Certificate
from support.servers.server_thread import QuietHandler, in_thread

Json: TypeAlias = Any
LONG: Final = 30.0  # seconds until something that must happen is given up


@dataclass(frozen=True)
class Posted:
    """A request that the webhook got."""

    path: str
    headers: Mapping[str, str]  # with names in lower case
    body: bytes

    @property
    def event(self) -> Json:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """How the webhook answers one request. It waits for `after` first, if that is set."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: threading.Event | None = None


OK: Final = Answer()


class WebhookServer:
    """What was posted, and the answers to come; `usual` is given when there are none."""

    def __init__(self) -> None:
        self.url = ""
        self.posted: list[Posted] = []
        self.accepted: list[Posted] = []
        self.answers: deque[Answer] = deque()
        self.usual = OK
        self.on_post: Callable[[Posted], object] = lambda _: None
        self._changed = threading.Condition()

    def answer(self, posted: Posted) -> Answer:
        self.on_post(posted)
        with self._changed:
            self.posted.append(posted)
            self._changed.notify_all()
            return self.answers.popleft() if self.answers else self.usual

    def note_answered(self, posted: Posted, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            with self._changed:
                self.accepted.append(posted)
                self._changed.notify_all()

    def wait_until(self, is_so: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, LONG), [each.body for each in self.posted]

    def wait_for_posts(self, number: int) -> None:
        self.wait_until(lambda: len(self.posted) >= number)

    def wait_for_accepted(self, number: int) -> None:
        self.wait_until(lambda: len(self.accepted) >= number)

    def snapshots(self) -> list[tuple[str, int]]:
        """Table and snapshot of each accepted message, in the order in which they came."""
        data = [each.event["data"] for each in self.accepted]
        return [(each["table"], int(each["snapshotId"])) for each in data]


@contextmanager
def webhook_server(certificate: Certificate | None = None) -> Iterator[WebhookServer]:
    """Serve on a free port. With a certificate, the server speaks HTTPS."""
    webhook = WebhookServer()
    plan("each answer of a webhook", lambda: not webhook.answers)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            posted = Posted(self.path, headers, self.read_body())
            answer = webhook.answer(posted)
            if answer.after and not answer.after.wait(LONG):
                return
            webhook.note_answered(posted, answer)  # before the sender can know: a test sees both or neither
            self.respond(answer.status, answer.body, answer.headers)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            """A client that has gone is no error here."""

    http = Server(("127.0.0.1", 0), Handler)
    if certificate:
        http.socket = certificate.served(http.socket)
    scheme = "https" if certificate else "http"
    webhook.url = f"{scheme}://127.0.0.1:{http.server_port}/hooks/iceberg?token=tokenOfTheHook"
    with in_thread(http):
        yield webhook
