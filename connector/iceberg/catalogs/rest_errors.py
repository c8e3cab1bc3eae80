"""The errors of REST catalogs, in words that say what to do."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from requests import RequestException
from requests.exceptions import (
    ChunkedEncodingError,
    ConnectionError,
    ContentDecodingError,
    InvalidHeader,
    InvalidProxyURL,
    InvalidSchema,
    InvalidURL,
    MissingSchema,
    ProxyError,
    SSLError,
    Timeout,
    TooManyRedirects,
)
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from connector.host.errors import ErrorTable, Matcher, RetryableError, Translation, UserError, is_a, translate
from connector.host.redaction import redact_and_shorten
from connector.iceberg.catalog_messages import read_address, read_message
from connector.iceberg.catalogs.rest_error_words import REST_WORDS
from connector.iceberg.catalogs.sign_in import BrokenTokenServerError, TokenServerError
from connector.storage.aws_errors import EXPIRED_SESSION, UNKNOWN_KEY, WRONG_CLOCK, WRONG_SECRET


class RedirectError(RequestException):
    """The server has answered a change with a redirect that makes it a read: the client must not follow it."""


class GatewayError(RESTError):
    """A gateway has answered a request in place of the catalog, which has answered others before."""


def translate_errors(uri: str, words: Mapping[str, str] = REST_WORDS) -> AbstractContextManager[None]:
    """Translate the errors of requests to a REST catalog, but not those of a commit that may have been done."""

    def read_facts(error: Exception) -> dict[str, str]:
        answer = redact_and_shorten(read_message(error).text)
        return {**words, "of": "", "place": f"{words['catalog']} at {read_address(uri)}", "answer": answer}

    return translate((*SIGNATURE_ERRORS, *REST_ERRORS) if "signing" in words else REST_ERRORS, read_facts)


def _is_refusal(error: Exception) -> bool:
    # CommitStateUnknownException is a RESTError, too. Only the code that sent the commit can tell what to do.
    return isinstance(error, RESTError) and not isinstance(error, CommitStateUnknownException)


def _is_of_proxy(error: Exception) -> bool:
    """Whether the environment's address of a proxy is malformed. The error may be that of the request's own address."""
    if isinstance(error, InvalidURL) and error.request is not None:
        try:
            return bool(parse_url(str(error.request.url)).host)
        except LocationParseError:
            return False
    return isinstance(error, InvalidProxyURL)


def _refuses(*causes: str) -> Matcher:
    """Match the answers of AWS that refuse a request for one of these causes. Its gateways do not send the code."""
    return is_a(BadRequestError, ForbiddenError, UnauthorizedError, saying=causes)


# Of requests that are signed with AWS credentials. All of these answers may have the status of a missing permission.
SIGNATURE_ERRORS: Final[ErrorTable] = (
    Translation(
        _refuses("Signature expired", "Signature not yet current"),
        UserError,
        WRONG_CLOCK,
    ),
    Translation(
        _refuses("Credential should be scoped"),
        UserError,
        "{place} does not accept the signature ({answer}). Check {signing}.",
    ),
    Translation(
        _refuses("request signature"),
        UserError,
        WRONG_SECRET,
    ),
    Translation(
        _refuses("security token included in the request is expired", "ExpiredToken"),
        UserError,
        EXPIRED_SESSION,
    ),
    Translation(
        _refuses("security token", "UnrecognizedClient", "InvalidClientTokenId"),
        UserError,
        UNKNOWN_KEY,
    ),
)

LOCATION_REFUSED: Final = (
    "Invalid locations",
    "conflicts with existing table or namespace",
    "tabular locations have to be empty",
    "already taken by another table or view",
)
NO_CATALOG: Final = "{place} answers, but not as an Iceberg REST catalog does. Check {uri}, which must end before /v1."

REST_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(SSLError, saying=("certificate is not yet valid", "certificate has expired")),
        UserError,
        "{place} has no secure connection: by the clock of this machine, its certificate is not valid now. Set the "
        "clock if it is wrong. If it is right, the server needs a new certificate.",
    ),
    Translation(
        is_a(SSLError),
        UserError,
        "{place} has no secure connection: this machine does not trust its certificate, or it does not speak https. "
        "Check {uri}. To trust an authority of your own, set the variable REQUESTS_CA_BUNDLE to a file with its "
        "certificate.",
    ),
    Translation(
        is_a(OSError, saying=("a suitable TLS CA certificate bundle",)),
        UserError,
        "{place} cannot be reached, because there is no file of certificates where the environment says ({answer}). "
        "Correct the variable REQUESTS_CA_BUNDLE, or CURL_CA_BUNDLE.",
    ),
    Translation(
        is_a(Timeout),
        RetryableError,
        "{place} did not answer in time. Check that the server is up and that {uri} is right.",
    ),
    Translation(
        is_a(ProxyError),
        RetryableError,
        "{place} cannot be reached through the proxy that the environment names. Check that the proxy is up, and the "
        "variables HTTP_PROXY and HTTPS_PROXY.",
    ),
    Translation(
        is_a(ConnectionError),
        RetryableError,
        "{place} cannot be reached. Check that the server is up, that the network allows it, and {uri}.",
    ),
    Translation(
        is_a(RedirectError),
        UserError,
        "{place} has another address: {answer}. Change {uri} to that server; it must end before /v1.",
    ),
    Translation(
        is_a(TooManyRedirects),
        UserError,
        "{place} answers with too many redirects, which may lead in a circle. Check {uri}, and that server.",
    ),
    Translation(
        is_a(ChunkedEncodingError),
        RetryableError,
        "{place} has broken off its answer, or sent it malformed. If this repeats, see the logs of the catalog and of "
        "the proxies before it.",
    ),
    Translation(
        is_a(ContentDecodingError),
        RetryableError,
        "{place} has sent an answer that cannot be decompressed. If this repeats, see the proxies before the catalog: "
        "one of them may change answers.",
    ),
    Translation(
        is_a(InvalidHeader),
        UserError,
        "a request to {place} has an invalid header. Check the properties that begin with header. in "
        "/catalog/properties, and those in the catalog's own config.",
    ),
    Translation(
        _is_of_proxy,
        UserError,
        "{place} cannot be reached, because the environment has a malformed address of a proxy. Correct the variables "
        "HTTP_PROXY and HTTPS_PROXY.",
    ),
    Translation(
        is_a(InvalidURL, InvalidSchema, MissingSchema),
        UserError,
        "{place} has no usable address, or redirects to one that cannot be used. Check {uri}.",
    ),
    Translation(
        is_a(RequestException),
        RetryableError,
        "{place} cannot be asked: {answer}. If this repeats, check {uri}, and the proxies before the catalog.",
    ),
    Translation(is_a(ValidationError), UserError, NO_CATALOG),
    Translation(
        is_a(NotImplementedError),
        UserError,
        "{place} does not support everything that the connector needs: {answer}. Check {uri}.",
    ),
    Translation(
        is_a(OAuthError, UnauthorizedError, AuthorizationExpiredError),
        UserError,
        "{place} does not accept the sign-in: {answer}. Check {sign_in}.",
    ),
    Translation(
        is_a(BrokenTokenServerError),
        RetryableError,
        "{place} cannot be signed in to now: {answer}. Check that the OAuth2 server is up (its log may say more), that "
        "the network allows it, and /catalog/oauth2_server_uri. If this is not set, check /catalog/uri: then the "
        "catalog is its own OAuth2 server.",
    ),
    Translation(
        is_a(TokenServerError),
        UserError,
        "{place} cannot be signed in to: {answer}. Check /catalog/uri and /catalog/oauth2_server_uri.",
    ),
    # The next answers are those of Apache Polaris, Lakekeeper, Snowflake Horizon, BigLake, AWS Glue and Databricks.
    Translation(
        lambda error: _is_refusal(error) and "Failed to get subscoped credentials" in str(error),
        RetryableError,
        "{place} cannot get credentials for the tables' files: {answer}. If this repeats, correct the storage settings "
        "of the catalog: its role, its region and its endpoints.",
    ),
    Translation(
        is_a(BadRequestError, saying=("Credential vending was requested",)),
        UserError,
        "{place} has no credentials to vend for the tables' files: {answer}. If the config has credentials for them, "
        "set header.X-Iceberg-Access-Delegation to an empty text in /catalog/properties. Otherwise, let the catalog "
        "vend credentials.",
    ),
    Translation(
        is_a(ForbiddenError, BadRequestError, saying=LOCATION_REFUSED),
        UserError,
        "{place} does not allow a table at the location that the config asks for: {answer}. Leave out /bucket and "
        "/prefix, or /storage: then the catalog chooses the location. Or choose a prefix that the catalog allows, and "
        "below which no other table has or had files.",
    ),
    Translation(
        is_a(BadRequestError, saying=("Setting table location is not allowed", "does not match the expected path")),
        UserError,
        "{place} chooses the locations of its tables itself, and the config asks for others: {answer}. Leave out "
        "/bucket and /prefix, or /storage.",
    ),
    Translation(
        is_a(BadRequestError, saying=("Location information cannot be null",)),
        UserError,
        "{place} does not choose the locations of its tables: {answer}. Set /bucket.",
    ),
    Translation(
        is_a(BadRequestError, saying=("properties contain prohibited keys", "unsupported property")),
        UserError,
        "{place} does not allow table properties that the config sets: {answer}. Remove them from "
        "`additional_table_properties` of the binding's config.",
    ),
    Translation(
        is_a(ForbiddenError),
        UserError,
        "{place} forbids this: {answer}. Give {principal} the missing permission.",
    ),
    Translation(
        is_a(TooManyRequestsError),
        RetryableError,
        "{place} gets too many requests: {answer}. If this repeats, raise its limit of requests, or let others send "
        "fewer.",
    ),
    Translation(
        is_a(ServiceUnavailableError, ServerError),
        RetryableError,
        "{place} is not able to answer now: {answer}. {outage}",
    ),
    Translation(
        is_a(GatewayError),
        RetryableError,
        "{place} does not answer: a gateway does in its place ({answer}). The catalog may be restarting. If this "
        "repeats, check the proxies before the catalog, and {uri}, which must end before /v1.",
    ),
    Translation(lambda error: _is_refusal(error) and read_message(error).is_page, UserError, NO_CATALOG),
    Translation(
        _is_refusal,
        UserError,
        "{place} refused the request: {answer}. Check {warehouse}.",
    ),
)
