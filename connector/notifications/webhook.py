"""Posts messages to a webhook: one request each, with time limits, without redirects, signed as Standard Webhooks says.

No text of a client or a server becomes part of an error, because the address may contain a token.
"""

import hashlib
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from requests import Response, Session
from requests.exceptions import ConnectTimeout, ProxyError, RequestException, SSLError, Timeout

from connector.config.endpoint_config import Notification
from connector.config.secret import Secret
from connector.config.values import SIGNING_SECRET_PREFIX
from connector.host.http_time_limits import TimeLimits, limit_time
from connector.iceberg.catalogs.retry_after import read_retry_after
from connector.notifications.cloud_event import MEDIA_TYPE, CloudEvent

# The status says all. An answer's content could be of any length.
LIMITS: Final = TimeLimits(connect=5, read=15, whole=20, reads_content=False)
LONGEST_RETRY_AFTER: Final = 3600.0  # seconds
REFUSALS: Final = range(400, 500)
NO_REFUSALS: Final = (408, 425, 429)  # the same message may be accepted later
_CAUSES: Final[Mapping[type[RequestException], str]] = {
    ConnectTimeout: f"no connection after {LIMITS.connect:.0f} s",
    Timeout: f"no answer after {LIMITS.read:.0f} s",
    SSLError: "its certificate is not accepted",
    ProxyError: "the proxy does not answer",
}


class DeliveryError(Exception):
    """The webhook has not accepted a message.

    `is_refusal` says whether it does not want this message. Otherwise it is not available for any message.
    """

    def __init__(self, reason: str, retry_after: float = 0.0, *, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.retry_after, self.is_refusal = retry_after, is_refusal


class Webhook:
    """The webhook of a task."""

    def __init__(self, notification: Notification, limits: TimeLimits = LIMITS) -> None:
        self._url = notification.url
        self._key = _read_key(notification.secret) if notification.secret else None
        self._session = limit_time(_SessionWithoutRedirects(), limits)
        # Otherwise the password that a .netrc file has for this host would be sent.
        self._session.auth = lambda request: request
        self.host = urlsplit(notification.url.reveal()).netloc  # the rest of the address may be secret

    def post(self, event: CloudEvent) -> None:
        """Post a message. Raises DeliveryError unless the webhook has accepted it."""
        sent = str(int(time.time()))
        headers = {"content-type": MEDIA_TYPE, "webhook-id": event.id, "webhook-timestamp": sent}
        if self._key:
            headers["webhook-signature"] = sign(self._key, event, sent)
        try:
            with self._session.post(self._url.reveal(), data=event.body, headers=headers, stream=True) as answer:
                status, retry_after = answer.status_code, answer.headers.get("retry-after", "")
        except (OSError, ValueError) as error:  # urllib3 refuses some hosts by a ValueError
            raise DeliveryError(_explain(error)) from None
        if 300 <= status < 400:
            raise DeliveryError(f"HTTP {status}: redirects are not followed", is_refusal=True)
        if not 200 <= status < 300:
            is_refusal = status in REFUSALS and status not in NO_REFUSALS
            raise DeliveryError(
                f"HTTP {status}", read_retry_after(retry_after, LONGEST_RETRY_AFTER), is_refusal=is_refusal
            )


class _SessionWithoutRedirects(Session):
    """Follows no redirect. The parameter `allow_redirects` would still read all of its content and parse its target."""

    def get_redirect_target(self, resp: Response) -> None:  # noqa: ARG002
        return None


def sign(key: bytes, event: CloudEvent, sent: str) -> str:
    """Return the signature of a message that is sent at this time, in seconds since 1970."""
    content = b".".join((event.id.encode(), sent.encode(), event.body))
    return f"v1,{b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


def _read_key(secret: Secret) -> bytes:
    return b64decode(secret.reveal().removeprefix(SIGNING_SECRET_PREFIX))


def _explain(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and not isinstance(error, RequestException):
        return "the certificates of REQUESTS_CA_BUNDLE cannot be read"  # requests looks for them itself
    return next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), "the connection failed")
