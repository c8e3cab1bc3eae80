"""Tokens of Google that are always valid: for a service account of the config, or for this machine."""

from datetime import UTC
from typing import Any, Final, NamedTuple, TypeAlias

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.oauth2.service_account import Credentials
from pyiceberg.io import GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS

from connector.config.secret import Secret
from connector.config.values import service_account
from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.host.refresh import Lease, Refreshed

GoogleTokens: TypeAlias = Refreshed[Secret]


class GoogleAccess(NamedTuple):
    """What tokens are for: the service, the scope that they need, and the setting with the service account's key."""

    name: str
    scope: str
    setting: str


CLOUD_STORAGE: Final = GoogleAccess(
    "Google Cloud Storage",
    "https://www.googleapis.com/auth/devstorage.read_write",
    "/storage/service_account_json",
)
REST_CATALOG: Final = GoogleAccess(
    "the REST catalog", "https://www.googleapis.com/auth/cloud-platform", "/catalog/service_account_json"
)


def open_google_tokens(service: GoogleAccess, key: Secret | None) -> GoogleTokens:
    """Return tokens for a service account's key, or without a key for this machine's credentials."""
    return Refreshed(f"the token of {service.name}", lambda: _fetch(service, key))


def read_file_credentials(tokens: GoogleTokens) -> dict[str, str]:
    """Return the token as FileIO properties."""
    lease = tokens.current()
    assert lease.expires_at is not None, "Google's tokens expire"
    return {GCS_TOKEN: lease.value.reveal(), GCS_TOKEN_EXPIRES_AT_MS: str(int(lease.expires_at * 1000))}


def _fetch(service: GoogleAccess, key: Secret | None) -> Lease[Secret]:
    whose = "the service account" if key else "this machine's Google credentials"
    with translate(
        GOOGLE_ERRORS, lambda error: {"whose": whose, "setting": service.setting, "answer": _read_answer(error)}
    ):
        scopes = (service.scope,)
        credentials: Any = _of_service_account(service, key) if key else google.auth.default(scopes=scopes)[0]
        credentials.refresh(Request())
    return Lease.until(Secret(credentials.token), credentials.expiry.replace(tzinfo=UTC).timestamp())


def _of_service_account(service: GoogleAccess, key: Secret) -> Any:
    try:
        return Credentials.from_service_account_info(service_account(key.reveal()), scopes=(service.scope,))
    except ValueError:  # the error's text may quote the key
        raise UserError(
            f"{service.setting}: its private_key is not a private key. Paste the file as Google's console writes it."
        ) from None


def _read_answer(error: Exception) -> str:
    return str(error.args[0]).rstrip(".") if error.args else type(error).__name__


GOOGLE_ERRORS: Final[ErrorTable] = (
    Translation(
        is_a(DefaultCredentialsError),
        UserError,
        "the config has no Google credentials, and this machine has none that can be used. Set {setting}.",
    ),
    Translation(
        is_a(TransportError),
        RetryableError,
        "Google's token server cannot be reached. Check that the network allows it.",
    ),
    Translation(
        lambda error: isinstance(error, GoogleAuthError) and bool(error.retryable),
        RetryableError,
        "Google is not able to sign in {whose} now: {answer}.",
    ),
    Translation(
        is_a(GoogleAuthError, saying=("in a reasonable timeframe",), read=_read_answer),
        UserError,
        "the clock of this machine is wrong (Google: {answer}). Set it.",
    ),
    Translation(
        is_a(GoogleAuthError),
        UserError,
        "Google does not sign in {whose}: {answer}. Check {setting}: the key may have been deleted, or its "
        "service account.",
    ),
)
