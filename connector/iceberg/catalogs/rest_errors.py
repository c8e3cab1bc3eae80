"""A REST catalog's errors, in words that say what to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

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

from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.redaction import redact_and_cut
from connector.iceberg.catalog_messages import read_message
from connector.iceberg.catalogs.sign_in import TokenServerError

QUOTED_CHARACTERS: Final = 300

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
def translate_errors(uri: str, words: Mapping[str, str] = REST_WORDS) -> Iterator[None]:
    """Turn a server that cannot be reached or that refuses us into an error that says what to do."""
    try:
        yield
    except CommitStateUnknownException:
        # A RESTError too, but the commit may have landed: only its sender can tell what to do.
        raise
    except (RequestException, RESTError, ValidationError, NotImplementedError) as error:
        place = f"{words['catalog']} at {address(uri)}"
        words_of_error, is_page = read_message(error)
        answer = redact_and_cut(words_of_error, QUOTED_CHARACTERS)
        kind, sentence = next((kind, sentence) for types, kind, sentence in EXPLANATIONS if isinstance(error, types))
        if is_page and sentence is REFUSAL:
            sentence = NO_CATALOG
        raise kind(sentence.format(place=place, answer=answer, **words)) from error


NO_CATALOG: Final = "{place} answers, but not as an Iceberg REST catalog does. Check {uri}, which ends before /v1."
REFUSAL: Final = "{place} refused the request: {answer}. Check {warehouse}."

# The first entry that an error is an instance of explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[type[Exception], ...], type[ConnectorError], str], ...]] = (
    (
        (SSLError,),
        UserError,
        "{place} cannot be spoken to securely: it has no certificate that this machine trusts, or does not speak "
        "https. Check {uri}.",
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
    """The URI without its parts that may be secret."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
