"""The REST catalog: PyIceberg's, with a time limit for each request, and with tokens and credentials that are
refreshed."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from pyiceberg.catalog import URI
from pyiceberg.catalog.rest import PAGE_SIZE, PREFIX, RestCatalog, TableResponse
from pyiceberg.exceptions import BadRequestError, CommitFailedException, OAuthError, RESTError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import HEADER_PREFIX
from requests import Response, Session, codes
from requests.exceptions import InvalidHeader

from connector.config import catalog as catalog_config
from connector.config.catalog_properties import check_property
from connector.host.errors import UserError
from connector.host.http_time_limits import TimeLimits, limit_time
from connector.host.redaction import hide_obtained
from connector.host.refresh import Refreshed
from connector.iceberg.catalog_messages import make_page_text, read_address
from connector.iceberg.catalogs.rest_errors import GatewayError, RedirectError
from connector.iceberg.catalogs.retry_after import RetryAfter
from connector.iceberg.catalogs.sign_in import (
    DEFAULT_SCOPE,
    OAuth2Client,
    RefreshedToken,
    SignIn,
    StaticHeader,
    TokenSession,
)
from connector.iceberg.metadata.retention import IS_NESSIE
from connector.storage.file_access import (
    ADLS_MACHINE_CREDENTIALS,
    FileCredentials,
    add_expiry,
    file_properties,
    keep_addresses,
    may_be_sent,
)
from connector.storage.file_io import hide_credentials, open_file_io

TIME_LIMITS: Final = TimeLimits(connect=10, read=60)
SIGN_INS: Final = frozenset({"token", "credential"})  # which a server may send, for requests about a table
# What a server's own config may set, besides headers, what opens the files, and the separator of namespaces, which has
# been read by then. PyIceberg would follow more: which code signs in, which certificates count, and which snapshots are
# left out, without which orphan files cannot be told from others.
_SENT: Final = frozenset({IS_NESSIE, PAGE_SIZE, PREFIX, URI})
# Servers answer 400 with these words if a snapshot's numbers are taken. Another engine has committed to another branch
# since the table was loaded, which moves no branch that the commit asserts, or it has upgraded the table.
_OVERTAKEN: Final = ("older than last sequence number", "first-row-id")
# Lakekeeper answers 409 with these words, as if another process had been faster, where it refuses a table property.
_REFUSAL: Final = "unsupported property"
_BECOME_READS: Final = frozenset({codes.moved_permanently, codes.found, codes.see_other})
_DELEGATION: Final = "X-Iceberg-Access-Delegation"  # asks for credentials for a table's files
_NOT_SECRET: Final = frozenset(  # headers that another server gets, too
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent", _DELEGATION.lower()}
)


class RestTables(RestCatalog):
    """PyIceberg's catalog, with changes for which it has no settings. Without them, it waits without limit for a server
    that does not answer, it does not refresh a token before it expires, and a table's properties decide how its files
    are reached."""

    def __init__(
        self,
        sign_in: SignIn,
        credentials: FileCredentials,
        limits: TimeLimits,
        properties: Mapping[str, str],
        has_own_keys: bool = False,
    ) -> None:
        self._sign_in = sign_in
        self._credentials = credentials
        self._limits = limits
        self._own_addresses = properties  # those of the files among them: the server may send others
        self._has_own_keys = has_own_keys  # for the files: those of the catalog are not asked for, and not used
        super().__init__("rest", **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.auth = self._sign_in
        if self._has_own_keys:
            session.headers.pop(_DELEGATION, None)
        keep_headers = partial(_keep_headers_from_others, session)
        session.hooks["response"] += (RetryAfter(), _refuse_to_read_instead, keep_headers, _refuse_page, _tell_refusal)
        return limit_time(_with_fixed_environment(session, self.uri), self._limits)

    def _fetch_config(self) -> None:
        own = self.properties
        super()._fetch_config()
        found = _select_texts(self.properties)
        _hide(found)
        self.properties = own | {
            name: value
            for name, value in found.items()
            if name in _SENT or name.startswith(HEADER_PREFIX) or may_be_sent(name)
        }
        self.uri = self.properties[URI]
        for name, value in sorted(self.properties.items() - own.items()):
            _check_sent(name, value, own[URI])

    def _refresh_token(self) -> None:
        self._sign_in.renew()

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        location, io = str(table_response.metadata_location), self._open_files(table_response)
        return Table(identifier_tuple, table_response.metadata, location, io, self, table_response.config)

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        location, io = table_response.metadata_location or "", self._open_files(table_response)
        return StagedTable(identifier_tuple, table_response.metadata, location, io, self)

    def _open_files(self, answer: TableResponse) -> FileIO:
        for each in answer.storage_credentials:
            _hide(each.config)
        vended = self._resolve_storage_credentials(answer.storage_credentials, answer.metadata_location)
        vended = _select_texts({**answer.config, **vended})
        vended.pop(ADLS_MACHINE_CREDENTIALS, None)  # only the config allows these
        _hide(vended)
        own, obtained = self._credentials(), (self.properties, add_expiry(vended))
        found = file_properties(*obtained, own) if self._has_own_keys else file_properties(own, *obtained)
        return open_file_io(keep_addresses(found, file_properties(self._own_addresses, own)))

    def commit_table(self, *args: Any, **kwargs: Any) -> CommitTableResponse:
        """Commit to a table. CommitFailedException also if another commit has taken the numbers of a snapshot."""
        try:
            response: CommitTableResponse = super().commit_table(*args, **kwargs)
        except BadRequestError as error:
            if any(words in str(error) for words in _OVERTAKEN):
                raise CommitFailedException(str(error)) from error
            raise
        return response

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table, and with `purge_requested` its files. PyIceberg would send `False` or `True`, which not every
        server reads. Without a value, some delete the files."""
        super().drop_table(identifier, str(purge_requested).lower())

    @staticmethod
    def _delete_old_metadata(*_: object) -> None:
        """Delete nothing: the server does it. PyIceberg would delete what the table's log named, unchecked."""

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Whether a view has this name. False if the server does not tell."""
        try:
            return bool(super().view_exists(identifier))
        except RESTError:
            return False  # the server may not have views; creating the table will show it


def _select_texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return what a server sent without values that are no texts, as Iceberg's specification demands."""
    return {name: value for name, value in properties.items() if isinstance(value, str)}


def _check_sent(name: str, value: str, uri: str) -> None:
    """Raise UserError or InvalidHeader if a server's own config has a property that the config could not have."""
    try:
        check_property(name, value)
    except ValueError as error:
        if name.startswith(HEADER_PREFIX):
            raise InvalidHeader(f"{name} {error}") from error
        raise UserError(
            f"{name} {error}. The REST catalog at {read_address(uri)} sends another value in its own config "
            "(/v1/config): correct it there."
        ) from error


def _hide(properties: Mapping[str, str]) -> None:
    """Hide the secrets among the properties that a server sent."""
    hide_credentials(file_properties(properties))
    for name in SIGN_INS & properties.keys():
        hide_obtained(properties[name])


def _refuse_to_read_instead(response: Response, **_: object) -> None:
    """Raise RedirectError instead of following a redirect of a change with a GET, as `requests` does. The answer to the
    GET is the table as it was, and would look like the answer to a commit."""
    method = response.request.method
    if response.status_code in _BECOME_READS and method not in ("GET", "HEAD"):
        target = read_address(urljoin(response.url, response.headers.get("Location", "")))
        raise RedirectError(f"a {method} was answered with HTTP {response.status_code} and {target}", response=response)


def _keep_headers_from_others(session: Session, response: Response, **_: object) -> None:
    """Before a redirect to another server is followed, remove the headers of the request that may be secret. `requests`
    only removes Authorization, but the config, the catalog and signatures of AWS have others."""
    request = response.request
    with suppress(ValueError):  # of a malformed address, to which nothing is sent
        target = urljoin(response.url, session.get_redirect_target(response) or "")
        if session.should_strip_auth(response.url, target):
            for name in [each for each in request.headers if each.lower() not in _NOT_SECRET]:
                del request.headers[name]


def _refuse_page(response: Response, **_: object) -> None:
    """Raise GatewayError for the status 404 without Iceberg's error, such as of a load balancer while the catalog
    restarts. PyIceberg would say that there is no such table.

    Only the answer to the first request, which asks for the config, may show that the address is wrong.
    """
    if response.status_code == codes.not_found and response.request.method != "HEAD" and not _has_error(response):
        is_first = urlsplit(response.url).path.endswith("/v1/config")
        raise (RESTError if is_first else GatewayError)(make_page_text(response.status_code, response.text))


def _tell_refusal(response: Response, **_: object) -> None:
    """Take a conflict for the refusal that it is. PyIceberg would say that the table exists, and a commit would be
    tried again."""
    if response.status_code == codes.conflict and _REFUSAL in response.text:
        response.status_code = HTTPStatus.BAD_REQUEST


def _has_error(response: Response) -> bool:
    """Whether an answer has an error where Iceberg's specification has it. Some catalogs leave out parts of the
    error, such as its type."""
    try:
        return isinstance(response.json()["error"], dict)
    except (ValueError, TypeError, LookupError):
        return False


def _with_fixed_environment(session: Session, uri: str) -> Session:
    """Look up the environment's proxies and certificates once. Doing so for each request takes an eighth of a commit's
    processor time."""
    found = session.merge_environment_settings(uri, {}, None, None, None)
    session.proxies, session.verify, session.cert = found["proxies"], found["verify"], found["cert"]
    session.trust_env = False
    return session


def open_rest(
    catalog: catalog_config.RestCatalog,
    file_addresses: Mapping[str, str],
    limits: TimeLimits = TIME_LIMITS,
    credentials: FileCredentials = dict,
    has_own_keys: bool = False,
) -> RestCatalog:
    """Open the catalog. This asks the server for its config. If the config has keys for the tables' files, no others
    are used, unless it also has the header that asks for them."""
    properties = {**file_addresses, **catalog.properties, "uri": catalog.uri}
    if catalog.warehouse:
        properties["warehouse"] = catalog.warehouse
    header = f"header.{_DELEGATION}".lower()
    asks = any(name.lower() == header and value for name, value in catalog.properties.items())
    return RestTables(_sign_in(catalog, limits), credentials, limits, properties, has_own_keys and not asks)


def _sign_in(catalog: catalog_config.RestCatalog, limits: TimeLimits) -> SignIn:
    if catalog.has_google_sign_in:
        from connector.storage.google_credentials import REST_CATALOG, open_google_tokens  # imports Google's library

        return RefreshedToken(open_google_tokens(REST_CATALOG, catalog.service_account))
    if not catalog.credential:
        return StaticHeader(catalog.token)
    properties = catalog.properties
    own_address = f"{catalog.uri.rstrip('/')}/v1/oauth/tokens"
    uri = catalog.oauth2_server_uri or properties.get("oauth2-server-uri") or own_address
    parameters = {"scope": catalog.scope or DEFAULT_SCOPE}
    parameters |= {name: properties[name] for name in ("audience", "resource") if name in properties}
    client = OAuth2Client(limit_time(TokenSession(), limits), uri, catalog.credential, parameters)
    return RefreshedToken(Refreshed("the token of the REST catalog", client.fetch, refusal=OAuthError))
