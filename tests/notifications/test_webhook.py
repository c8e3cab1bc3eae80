"""A message is posted once, signed, with limits, and without a word of the address in any error."""

import hashlib
import hmac
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from socket import create_server, socket
from typing import Final

import pytest

from connector.config.endpoint_config import Notification
from connector.config.secret import Secret
from connector.host.http_time_limits import TimeLimits
from connector.notifications.cloud_event import CloudEvent
from connector.notifications.webhook import LIMITS, DeliveryError, Webhook, sign
from support.servers.certificate import new_certificate
from support.servers.odd_servers import Dripping, dripping, silent
from support.servers.server_process import free_address
from support.servers.webhook_server import Answer, WebhookServer, webhook_server
from support.snapshots import check_text

EVENT: Final = CloudEvent("0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6-17", 3, 1_795_262_400.0, b'{"id":"17"}')
KEY: Final = bytes(range(32))
SECRET: Final = f"whsec_{b64encode(KEY).decode()}"
QUICK: Final = TimeLimits(connect=0.3, read=0.3, whole=0.6, reads_content=False)


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with webhook_server() as server:
        yield server


def post(url: str, limits: TimeLimits = QUICK, secret: str | None = None) -> None:
    Webhook(Notification(url=Secret(url), secret=Secret(secret) if secret else None), limits).post(EVENT)


def refusal(url: str, limits: TimeLimits = QUICK) -> DeliveryError:
    """The error; its text is kept in a file to be reviewed."""
    with pytest.raises(DeliveryError) as error:
        post(url, limits, SECRET)
    assert error.value.__context__ is None or error.value.__suppress_context__
    assert "tokenOfTheHook" not in repr(error.value)
    text = re.sub("HTTP [0-9]+", "HTTP 500", str(error.value))
    check_text("notification_errors", re.sub("[0-9]+", "…", text), text)
    return error.value


def test_a_message_is_posted_with_its_id(server: WebhookServer) -> None:
    before = int(time.time())
    post(server.url, LIMITS)
    [posted] = server.posted
    assert (posted.path, posted.body) == ("/hooks/iceberg?token=tokenOfTheHook", EVENT.body)
    assert posted.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert posted.headers["webhook-id"] == EVENT.id
    assert before <= int(posted.headers["webhook-timestamp"]) <= time.time()
    assert "webhook-signature" not in posted.headers
    assert "authorization" not in posted.headers


def test_a_message_is_signed_with_the_secret(server: WebhookServer) -> None:
    post(server.url, LIMITS, SECRET)
    [posted] = server.posted
    content = f"{posted.headers['webhook-id']}.{posted.headers['webhook-timestamp']}.".encode() + posted.body
    version, signature = posted.headers["webhook-signature"].split(",")
    assert version == "v1"
    assert hmac.compare_digest(b64decode(signature), hmac.new(KEY, content, hashlib.sha256).digest())
    assert all(SECRET not in value and SECRET[6:] not in value for value in posted.headers.values())


def test_the_signature_is_that_of_the_standard() -> None:
    """The example of the libraries of Standard Webhooks."""
    event = CloudEvent("msg_p5jXN8AQM9LWM0D4loKWxJek", 0, 0.0, b'{"test": 2432232314}')
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert sign(key, event, "1614265330") == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_is_one(server: WebhookServer, status: int) -> None:
    server.answers.append(Answer(status))
    post(server.url, LIMITS)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 422])
def test_a_message_that_is_not_wanted_is_refused(server: WebhookServer, status: int) -> None:
    server.answers.append(Answer(status, body=b"no, because of tokenOfTheHook"))
    error = refusal(server.url, LIMITS)
    assert (str(error), error.is_refusal, error.retry_after) == (f"HTTP {status}", True, 0.0)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_webhook_that_cannot_answer_now_is_not_available(server: WebhookServer, status: int) -> None:
    server.answers.append(Answer(status))
    error = refusal(server.url, LIMITS)
    assert (str(error), error.is_refusal) == (f"HTTP {status}", False)


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("999999", 3600, 3600),
        ("soon", 0, 0),
        ("-3", 0, 0),
        ("", 0, 0),
        pytest.param("Fri, 31 Dec 9999 23:59:59 -1200", 0, 3600, id="a time in the year 10000"),
        pytest.param("1 Jan 99999999999999999999 00:00:00 GMT", 0, 3600, id="a year that no integer holds"),
    ],
)
def test_the_time_that_the_webhook_asks_for_is_known(
    server: WebhookServer, retry_after: str, least: float, most: float
) -> None:
    server.answers.append(Answer(429, {"Retry-After": retry_after}))
    assert least <= refusal(server.url, LIMITS).retry_after <= most


@pytest.mark.parametrize(("minutes", "least", "most"), [(20, 1000, 1200), (-20, 0, 0)])
def test_the_time_may_be_a_date(server: WebhookServer, minutes: int, least: float, most: float) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
    server.answers.append(Answer(429, {"Retry-After": date}))
    assert least <= refusal(server.url, LIMITS).retry_after <= most


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server: WebhookServer, status: int) -> None:
    with webhook_server() as other:
        server.answers.append(Answer(status, {"Location": other.url}))
        error = refusal(server.url, LIMITS)
        assert (str(error), error.is_refusal) == (f"HTTP {status}: redirects are not followed", True)
        assert not other.posted


@pytest.mark.parametrize("location", ["http://[", "\xff\xfe", "http://a..b/", ""], ids=range(4))
def test_the_target_of_a_redirect_is_not_even_looked_at(server: WebhookServer, location: str) -> None:
    server.answers.append(Answer(302, {"Location": location}))
    assert str(refusal(server.url, LIMITS)) == "HTTP 302: redirects are not followed"


def test_the_content_of_a_redirect_is_not_read() -> None:
    with dripping(Dripping.BODY_OF_A_REDIRECT) as (uri, has_ended):
        assert str(refusal(f"{uri}/tokenOfTheHook")) == "HTTP 302: redirects are not followed"
        assert not has_ended.is_set()


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "*.x"], ids=range(3))
def test_a_host_that_cannot_be_is_not_available(host: str) -> None:
    assert str(refusal(f"http://{host}/tokenOfTheHook")) == "the connection failed"


def test_a_webhook_that_hangs_is_given_up() -> None:
    with silent() as uri:
        error = refusal(f"{uri}/tokenOfTheHook")
    assert (str(error).startswith("no answer after"), error.is_refusal) == (True, False)


def test_headers_that_never_end_are_given_up() -> None:
    with dripping(Dripping.HEADERS) as (uri, has_ended):
        assert refusal(f"{uri}/tokenOfTheHook").is_refusal is False
        assert not has_ended.is_set()


@pytest.mark.parametrize("what", [Dripping.BODY_OF_KNOWN_LENGTH, Dripping.BODY_UNTIL_IT_CLOSES])
def test_content_that_never_ends_is_not_read(what: Dripping) -> None:
    """The webhook has accepted the message: to post it again would go on for ever."""
    with dripping(what) as (uri, has_ended):
        post(uri)
        assert not has_ended.is_set()


def test_a_webhook_that_is_gone_is_not_available() -> None:
    error = refusal(f"http://{free_address()}/hooks?token=tokenOfTheHook")
    assert (str(error), error.is_refusal) == ("the connection failed", False)


def test_a_certificate_that_nobody_has_signed_is_not_accepted(tmp_path: Path) -> None:
    with dripping(Dripping.HEADERS, new_certificate(tmp_path)) as (uri, _):
        error = refusal(f"{uri}/hooks?token=tokenOfTheHook")
    assert (str(error), error.is_refusal) == ("its certificate is not accepted", False)


def test_a_certificate_of_an_authority_of_your_own_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = new_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.certificate))
    with webhook_server(certificate=certificate) as webhook:
        post(webhook.url)
    assert len(webhook.accepted) == 1


def test_certificates_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    error = refusal(f"https://{free_address()}/hooks?token=tokenOfTheHook")
    assert (str(error), error.is_refusal) == ("the certificates of REQUESTS_CA_BUNDLE cannot be read", False)


def test_a_proxy_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{free_address()}")
    error = refusal("http://hooks.example.com/tokenOfTheHook")
    assert (str(error), error.is_refusal) == ("the proxy does not answer", False)


def test_a_webhook_that_takes_no_connection_is_not_available() -> None:
    with create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as connections:
        address = listener.getsockname()
        for _ in range(4):  # fill the queue: a further connection hangs
            connection = connections.enter_context(socket())
            connection.setblocking(False)
            connection.connect_ex(address)
        error = refusal(f"http://127.0.0.1:{address[1]}/tokenOfTheHook")
    assert (str(error).startswith("no connection after"), error.is_refusal) == (True, False)


def test_a_password_of_the_machine_is_not_sent(
    server: WebhookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    post(server.url, LIMITS)
    assert "authorization" not in server.posted[0].headers
