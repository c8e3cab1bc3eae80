"""Authorizes requests to a REST catalog: with a token of the config, or with tokens that are refreshed, such as those
of an OAuth2 client.

PyIceberg's `AuthManager` cannot do this. It gives only a header, so it cannot sign a request with SigV4
(`signed_rest`). PyIceberg makes it from the config, by the name of a class, so it cannot share our credentials. So
`rest` overrides private methods instead: see `RestCatalog._create_session` and `_refresh_token` in docs/pyiceberg.md.
"""

import math
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec
from pyiceberg.exceptions import OAuthError, RESTError
from requests import PreparedRequest, Response, Session
from requests.auth import AuthBase
from requests.exceptions import (
    ChunkedEncodingError,
    ConnectionError,
    ContentDecodingError,
    InvalidSchema,
    InvalidURL,
    MissingSchema,
    RequestException,
    SSLError,
    Timeout,
    TooManyRedirects,
)

from connector.config.secret import Secret
from connector.host.refresh import Lease, Refreshed
from connector.iceberg.catalog_messages import read_address

DEFAULT_SCOPE: Final = "catalog"
_TOKEN: Final = re.compile(r"[ -~]+")  # RFC 6749, appendix A.12
UNTRUSTED: Final = "this machine does not trust its certificate, or it does not speak https"


class TokenServerError(RESTError):
    """The token server does not answer as an OAuth2 server does."""


class BrokenTokenServerError(RESTError):
    """The token server cannot be reached, or answers with an error of its own."""


# Why a token server gives no answer that can be read. The first line that has the error's class decides.
_FAILURES: Final[tuple[tuple[tuple[type[RequestException], ...], type[RESTError], str], ...]] = (
    ((SSLError,), TokenServerError, f"has no secure connection: {UNTRUSTED}"),
    ((Timeout,), BrokenTokenServerError, "did not answer in time"),
    ((ConnectionError,), BrokenTokenServerError, "cannot be reached"),
    ((TooManyRedirects,), TokenServerError, "answers with too many redirects, which may lead in a circle"),
    ((ChunkedEncodingError,), BrokenTokenServerError, "has broken off its answer, or sent it malformed"),
    ((ContentDecodingError,), BrokenTokenServerError, "has sent an answer that cannot be decompressed"),
    (
        (InvalidURL, InvalidSchema, MissingSchema),
        TokenServerError,
        "has no usable address, or redirects to one that cannot be used",
    ),
)


class SignIn(Protocol):
    """Authorizes a request. `requests` calls it for each one."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest: ...

    def renew(self) -> None:
        """Get a new credential, if possible: the server has refused the current one."""


class StaticHeader(AuthBase):
    """Sends the user's token, or nothing."""

    def __init__(self, token: Secret | None) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return request

    def renew(self) -> None:
        """Do nothing: there is no other token."""


def _split_credential(credential: Secret) -> tuple[str, str]:
    """Return the client id, which may be empty, and the secret of a credential."""
    client_id, colon, secret = credential.reveal().partition(":")
    return (client_id, secret) if colon else ("", client_id)


class _Granted(msgspec.Struct):
    """The answer with a token: RFC 6749, section 5.1."""

    access_token: str
    expires_in: float | None = None  # seconds; some servers write it as a text


class _Refused(msgspec.Struct):
    """The answer with an error: RFC 6749, section 5.2."""

    error: str
    error_description: str = ""


class RefreshedToken(AuthBase):
    """Sends a token that is refreshed before it expires, or after it is refused."""

    def __init__(self, token: Refreshed[Secret]) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token.current().value.reveal()}"
        return request

    def renew(self) -> None:
        """Get a new token for the next request: the server has refused this one."""
        self._token.discard()


class TokenSession(Session):
    """Sends a client's secret to its token server, and to no other one. A redirect to another server is an error."""

    def __init__(self) -> None:
        super().__init__()
        # Otherwise the password that a .netrc file has for the server would be sent.
        self.auth = lambda request: request

    def get_redirect_target(self, resp: Response) -> str | None:
        """Return where an answer leads; None if it is no redirect. TokenServerError if that is another server."""
        target = super().get_redirect_target(resp)
        other = _resolve(resp.url, target or "")
        if urlsplit(other)[:2] != urlsplit(resp.url)[:2]:
            raise TokenServerError(
                f"the OAuth2 server at {read_address(resp.url)} redirects to {read_address(other)}, and the client's "
                "secret is not sent to another server"
            )
        return target


def _resolve(url: str, target: str) -> str:
    try:
        return urljoin(url, target)
    except ValueError:
        return url  # `requests` says that the target is malformed


class OAuth2Client:
    """Exchanges a client's credential for tokens."""

    def __init__(self, session: Session, uri: str, credential: Secret, parameters: Mapping[str, str]) -> None:
        self._session, self._uri, self._credential, self._parameters = session, uri, credential, parameters

    def fetch(self) -> Lease[Secret]:
        """Return a new token. Raises a RESTError if there is none."""
        client_id, secret = _split_credential(self._credential)
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret, **self._parameters}
        asked_at = time.time()
        response = self._post({name: value for name, value in form.items() if value})
        try:
            if response.ok:
                granted = msgspec.json.decode(response.content, type=_Granted, strict=False)
                if not _TOKEN.fullmatch(granted.access_token):
                    raise TokenServerError(f"{self._server} answers with a token that has characters of no token")
                lifetime = granted.expires_in or 0.0  # servers write 0, too, for a token without a lifetime
                expires_at = asked_at + lifetime if 0 < lifetime < math.inf else None
                return Lease.until(Secret(granted.access_token), expires_at)
            refused = msgspec.json.decode(response.content, type=_Refused)
        except msgspec.MsgspecError:
            status = f"status {response.status_code}, but not in the form of OAuth2"
            kind = BrokenTokenServerError if _may_pass(response) else TokenServerError
            raise kind(f"{self._server} answers with {status}") from None
        answer = ": ".join(filter(None, (refused.error, refused.error_description)))
        raise BrokenTokenServerError(f"{self._server} answers {answer}") if _may_pass(response) else OAuthError(answer)

    @property
    def _server(self) -> str:
        return f"the OAuth2 server at {read_address(self._uri)}"

    def _post(self, form: Mapping[str, str]) -> Response:
        try:
            # An idle connection may be closed before the next token is needed. A closed Session can be used again.
            with self._session:
                return self._session.post(self._uri, data=form)
        except RequestException as error:
            for classes, kind, failure in _FAILURES:
                if isinstance(error, classes):
                    raise kind(f"{self._server} {failure}") from error
            raise


def _may_pass(response: Response) -> bool:
    return (
        response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status_code == HTTPStatus.TOO_MANY_REQUESTS
    )
