"""The errors of REST catalogs, in words that say what to do."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from pydantic import ValidationError
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
from requests import RequestException
from requests.exceptions import ConnectionError, SSLError, Timeout

from connector.host.errors import Entry, ErrorTable, RetryableError, UserError, is_a, translate
from connector.host.redaction import redact_and_cut
from connector.iceberg.catalog_messages import read_address, read_message
from connector.iceberg.catalogs.sign_in import TokenServerError

QUOTED_CHARACTERS: Final = 300

# The words for the catalog, for the settings that may be wrong, and for the user that may lack a permission.
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
    "principal": "the credentials in /credentials",
}


def translate_errors(uri: str, words: Mapping[str, str] = REST_WORDS) -> AbstractContextManager[None]:
    """Translate the errors of requests to a REST catalog, but not those of a commit that may have been done."""

    def read_facts(error: Exception) -> dict[str, str]:
        answer = redact_and_cut(read_message(error).text, QUOTED_CHARACTERS)
        return {**words, "place": f"{words['catalog']} at {read_address(uri)}", "answer": answer}

    return translate(REST_ERRORS, read_facts)


def _is_refusal(error: Exception) -> bool:
    # CommitStateUnknownException is a RESTError, too. Only the code that sent the commit can tell what to do.
    return isinstance(error, RESTError) and not isinstance(error, CommitStateUnknownException)


NO_CATALOG: Final = "{place} answers, but not as an Iceberg REST catalog does. Check {uri}, which must end before /v1."

REST_ERRORS: Final[ErrorTable] = (
    Entry(
        is_a(SSLError),
        UserError,
        "{place} has no secure connection: this machine does not trust its certificate, or it does not speak https. "
        "Check {uri}.",
    ),
    Entry(
        is_a(Timeout),
        RetryableError,
        "{place} did not answer in time. Check that the server is up and that {uri} is right.",
    ),
    Entry(
        is_a(ConnectionError),
        RetryableError,
        "{place} cannot be reached. Check that the server is up, that the network allows it, and {uri}.",
    ),
    Entry(
        is_a(RequestException),
        UserError,
        "{place} has no usable address. Check {uri}.",
    ),
    Entry(
        is_a(ValidationError),
        UserError,
        NO_CATALOG,
    ),
    Entry(
        is_a(NotImplementedError),
        UserError,
        "{place} does not support everything that the connector needs: {answer}. Check {uri}.",
    ),
    Entry(
        is_a(OAuthError, UnauthorizedError, AuthorizationExpiredError),
        UserError,
        "{place} does not accept the sign-in: {answer}. Check /catalog/credential, /catalog/token and /catalog/scope.",
    ),
    Entry(
        is_a(TokenServerError),
        UserError,
        "{place} cannot be signed in to: {answer}. Check /catalog/uri and /catalog/oauth2_server_uri.",
    ),
    Entry(
        is_a(ForbiddenError),
        UserError,
        "{place} forbids this: {answer}. Give {principal} the missing permission.",
    ),
    Entry(
        is_a(ServiceUnavailableError, TooManyRequestsError, ServerError),
        RetryableError,
        "{place} is not able to answer now: {answer}. If this repeats, see the server's log, and check that the "
        "server may use /bucket.",
    ),
    Entry(
        lambda error: _is_refusal(error) and read_message(error).is_page,
        UserError,
        NO_CATALOG,
    ),
    Entry(
        _is_refusal,
        UserError,
        "{place} refused the request: {answer}. Check {warehouse}.",
    ),
)
