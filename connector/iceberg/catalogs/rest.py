"""The REST catalog: PyIceberg's, with a time limit on every call and an error that says what to do."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog, TableResponse
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
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import HEADER_PREFIX
from requests import RequestException, Session
from requests.exceptions import ConnectionError, SSLError, Timeout

from connector.config import settings
from connector.config.secret import Secret
from connector.errors import ConnectorError, RetryableError, UserError
from connector.iceberg.catalogs.metadata_io import metadata_io
from connector.iceberg.catalogs.sign_in import (
    DEFAULT_SCOPE,
    OAuth2Client,
    SignIn,
    StaticHeader,
    TokenServerError,
    halves,
)
from connector.iceberg.catalogs.time_limits import TIME_LIMITS, TimeLimits, time_limited
from connector.iceberg.files.file_access import FileKeys, file_properties, with_end

QUOTED_CHARACTERS: Final = 300


class _RestCatalog(RestCatalog):
    """PyIceberg's, but for what it has no setting for: it waits for ever on a server that does not answer, renews no token
    before it expires, and lets a table's properties say how its files are reached."""

    def __init__(self, sign_in: SignIn, keys: FileKeys, limits: TimeLimits, properties: Mapping[str, str]) -> None:
        self._sign_in = sign_in
        self._keys = keys
        self._limits = limits
        super().__init__("rest", **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.auth = self._sign_in
        return time_limited(session, self._limits)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        # Orphans are what no snapshot refers to: none may be hidden from us, whatever the server likes better.
        self.properties.pop(SNAPSHOT_LOADING_MODE, None)

    def _refresh_token(self) -> None:
        self._sign_in.renew()

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        location = str(table_response.metadata_location)
        vended = self._resolve_storage_credentials(table_response.storage_credentials, location)
        properties = file_properties(self._keys(), self.properties, with_end({**table_response.config, **vended}))
        io = metadata_io(properties)
        return Table(identifier_tuple, table_response.metadata, location, io, self, table_response.config)

    def view_exists(self, identifier: str | Identifier) -> bool:
        try:
            return bool(super().view_exists(identifier))
        except RESTError:
            return False  # whatever a server that knows no views answers: to create the table will tell


def open_rest(
    catalog: settings.RestCatalog,
    file_properties: Mapping[str, str],
    limits: TimeLimits = TIME_LIMITS,
    keys: FileKeys = dict,
) -> RestCatalog:
    properties = {**file_properties, **dict(catalog.properties), "uri": catalog.uri, "warehouse": catalog.warehouse}
    return _RestCatalog(_sign_in(catalog, limits), keys, limits, properties)


def open_signed(
    uri: str,
    warehouse: str,
    sign_in: SignIn,
    file_properties: Mapping[str, str],
    keys: FileKeys,
    limits: TimeLimits = TIME_LIMITS,
) -> RestCatalog:
    """A REST catalog to which every request is signed."""
    return _RestCatalog(sign_in, keys, limits, {**file_properties, "uri": uri, "warehouse": warehouse})


def _sign_in(catalog: settings.RestCatalog, limits: TimeLimits) -> SignIn:
    if not catalog.credential:
        return StaticHeader(catalog.token)
    properties = dict(catalog.properties)
    own_address = f"{catalog.uri.rstrip('/')}/v1/oauth/tokens"
    uri = catalog.oauth2_server_uri or properties.get("oauth2-server-uri") or own_address
    parameters = {"scope": catalog.scope or DEFAULT_SCOPE}
    parameters |= {name: properties[name] for name in ("audience", "resource") if name in properties}
    return OAuth2Client(time_limited(Session(), limits), uri, catalog.credential, parameters)


# What an error calls the catalog, the settings that may be wrong, and who may lack a permission.
REST_WORDS: Final[Mapping[str, str]] = {
    "catalog": "the REST catalog",
    "uri": "/catalog/uri",
    "warehouse": "/catalog/uri and /catalog/warehouse",
    "principal": "the credential's principal",
}
S3_TABLES_WORDS: Final[Mapping[str, str]] = {
    "catalog": "Amazon S3 Tables",
    "uri": "/catalog/table_bucket_arn",
    "warehouse": "/catalog/table_bucket_arn",
    "principal": "the keys of /credentials",
}


@contextmanager
def explained(uri: str, secrets: Collection[str], words: Mapping[str, str] = REST_WORDS) -> Iterator[None]:
    """Turn a server that cannot be reached or that refuses us into an error that says what to do."""
    try:
        yield
    except CommitStateUnknownException:
        # A RESTError too, but the commit may have landed: only who committed can tell what to do.
        raise
    except (RequestException, RESTError, ValidationError, NotImplementedError) as error:
        place = f"{words['catalog']} at {address(uri)}"
        # PyIceberg quotes a page that is no catalog's answer after its own words.
        said, is_no_answer, _ = str(error).partition(": Received unexpected JSON Payload")
        answer = _without(secrets, said)[:QUOTED_CHARACTERS].rstrip(".")
        kind, sentence = next((kind, sentence) for types, kind, sentence in EXPLANATIONS if isinstance(error, types))
        if is_no_answer and sentence is REFUSAL:
            sentence = NO_CATALOG
        raise kind(sentence.format(place=place, answer=answer, **words)) from error


NO_CATALOG: Final = "{place} answers, but not as an Iceberg REST catalog does. Check {uri}, which ends before /v1."
REFUSAL: Final = "{place} refused the request: {answer}. Check {warehouse}."

# The first entry that an error is an instance of explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[type[Exception], ...], type[ConnectorError], str], ...]] = (
    (
        (SSLError,),
        UserError,
        "{place} cannot be spoken to securely: it has no certificate that this machine trusts, or does not speak https. "
        "Check {uri}.",
    ),
    (
        (Timeout,),
        RetryableError,
        "{place} did not answer in time. Check that the server is up and that {uri} is right.",
    ),
    (
        (ConnectionError,),
        RetryableError,
        "{place} cannot be reached. Check that the server is up, that the network allows it, and {uri}.",
    ),
    (
        (RequestException,),
        UserError,
        "{place} has no usable address. Check {uri}.",
    ),
    (
        (ValidationError,),
        UserError,
        NO_CATALOG,
    ),
    (
        (NotImplementedError,),
        UserError,
        "{place} does not offer all that this needs: {answer}. Check {uri}.",
    ),
    (
        (OAuthError, UnauthorizedError, AuthorizationExpiredError),
        UserError,
        "{place} does not accept the sign-in: {answer}. Check /catalog/credential, /catalog/token and /catalog/scope.",
    ),
    (
        (TokenServerError,),
        UserError,
        "{place} cannot be signed in to: {answer}. Check /catalog/uri and /catalog/oauth2_server_uri.",
    ),
    (
        (ForbiddenError,),
        UserError,
        "{place} forbids this: {answer}. Give {principal} the permission that it needs.",
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
        REFUSAL,
    ),
)


def address(uri: str) -> str:
    """The uri without what may be secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def secrets_of(catalog: settings.RestCatalog) -> list[str]:
    """What must not be quoted of the server's answers."""
    credential, token = catalog.credential or Secret(""), catalog.token or Secret("")
    headers = [value for name, value in catalog.properties if name.startswith(HEADER_PREFIX)]
    return [*filter(None, (credential.reveal(), halves(credential)[1], token.reveal(), *headers))]


def _without(secrets: Collection[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
