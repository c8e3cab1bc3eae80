"""The REST catalog: PyIceberg's, with a time limit on every call and an error that says what to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError, SSLError, Timeout

from connector import config
from connector.errors import ConnectorError, RetryableError, UserError

QUOTED_CHARACTERS: Final = 300


class TimeLimits(NamedTuple):
    """Seconds to wait for a connection, and for each piece of an answer."""

    connect: float
    read: float


TIME_LIMITS: Final = TimeLimits(connect=10, read=60)


class _TimeLimitedAdapter(HTTPAdapter):
    """Sends requests that name no time limit with one."""

    def __init__(self, limits: TimeLimits) -> None:
        super().__init__()
        self._limits = limits

    def send(
        self, request: PreparedRequest, stream: bool = False, timeout: Any = None, *args: Any, **kwargs: Any
    ) -> Response:
        return super().send(request, stream, timeout or tuple(self._limits), *args, **kwargs)


class _TimeLimitedRestCatalog(RestCatalog):
    """PyIceberg's sessions wait for ever on a server that does not answer: these do not."""

    def __init__(self, limits: TimeLimits, **properties: str) -> None:
        self._limits = limits
        super().__init__("rest", **properties)

    def _config_headers(self, session: Session) -> None:
        # The first step with a new session: the next one already fetches a token.
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _TimeLimitedAdapter(self._limits))


def open_rest(
    catalog: config.RestCatalog, file_properties: Mapping[str, str], limits: TimeLimits = TIME_LIMITS
) -> RestCatalog:
    properties = {"uri": catalog.uri, "warehouse": catalog.warehouse, **file_properties}
    if catalog.credential:
        properties["credential"] = catalog.credential.reveal()
        # The address that PyIceberg would take anyway; it warns where it has to guess.
        properties["oauth2-server-uri"] = f"{catalog.uri.rstrip('/')}/v1/oauth/tokens"
    if catalog.token:
        properties["token"] = catalog.token.reveal()
    if catalog.scope:
        properties["scope"] = catalog.scope
    return _TimeLimitedRestCatalog(limits, **properties)


@contextmanager
def explained(catalog: config.RestCatalog) -> Iterator[None]:
    """Turn a server that cannot be reached or that refuses us into an error that says what to do."""
    try:
        yield
    except CommitStateUnknownException:
        # A RESTError too, but the commit may have landed: only who committed can tell what to do.
        raise
    except (RequestException, RESTError, ValidationError) as error:
        place = f"the REST catalog at {_address(catalog.uri)}"
        answer = _without_secrets(str(error), catalog)[:QUOTED_CHARACTERS].rstrip(".")
        kind, sentence = next((kind, sentence) for types, kind, sentence in EXPLANATIONS if isinstance(error, types))
        raise kind(sentence.format(place=place, answer=answer)) from error


# The first entry that an error is an instance of explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[type[Exception], ...], type[ConnectorError], str], ...]] = (
    (
        (SSLError,),
        UserError,
        "the certificate of {place} cannot be verified. Check /catalog/uri.",
    ),
    (
        (Timeout,),
        RetryableError,
        "{place} did not answer in time. Check that the server is up and that /catalog/uri is right.",
    ),
    (
        (ConnectionError,),
        RetryableError,
        "{place} cannot be reached. Check that the server is up, that the network allows it, and /catalog/uri.",
    ),
    (
        (RequestException,),
        UserError,
        "{place} has no usable address. Check /catalog/uri.",
    ),
    (
        (ValidationError,),
        UserError,
        "{place} answers, but not as an Iceberg REST catalog does. Check /catalog/uri, which ends before /v1.",
    ),
    (
        (OAuthError, UnauthorizedError, AuthorizationExpiredError),
        UserError,
        "{place} does not accept the sign-in: {answer}. Check /catalog/credential, /catalog/token and /catalog/scope.",
    ),
    (
        (ForbiddenError,),
        UserError,
        "{place} forbids this: {answer}. Give the credential's principal the permission that it needs.",
    ),
    (
        (ServiceUnavailableError, TooManyRequestsError, ServerError),
        RetryableError,
        "{place} is not able to answer now: {answer}. If it stays so, see the server's log, and check that it may use "
        "/bucket.",
    ),
    (
        (RESTError,),
        UserError,
        "{place} refused the request: {answer}. Check /catalog/uri and /catalog/warehouse.",
    ),
)


def _address(uri: str) -> str:
    """The uri without what may be secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _without_secrets(text: str, catalog: config.RestCatalog) -> str:
    for secret in filter(None, (catalog.credential, catalog.token)):
        for part in (secret.reveal(), secret.reveal().rpartition(":")[2]):
            text = text.replace(part, "***") if part else text
    return text
