"""What an object store refuses, as an error that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.errors import ConnectorError, RetryableError, UserError


@contextmanager
def using(location: str) -> Iterator[None]:
    """For writing and reading files there: what their client raises becomes an error that says what to do."""
    try:
        yield
    except OSError as error:
        kind, sentence = next(
            (kind, sentence) for codes, kind, sentence in EXPLANATIONS if any(code in str(error) for code in codes)
        )
        answer = str(error).rpartition("AWS Error ")[2]
        raise kind(f"{location}: {sentence.format(answer=answer)}") from error


# The client has no types for its errors, only codes in their texts. The first entry that has one of a text's explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[str, ...], type[ConnectorError], str], ...]] = (
    (
        ("SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "InvalidToken", "ExpiredToken"),
        UserError,
        "the object store does not accept the keys ({answer}). Check /credentials.",
    ),
    (
        ("ACCESS_DENIED",),
        UserError,
        "the object store forbids this ({answer}). Check /credentials, and that they allow to read, write and delete "
        "objects there.",
    ),
    (
        ("NO_SUCH_BUCKET",),
        UserError,
        "there is no such bucket ({answer}). Create it, or correct /bucket.",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "HTTP status 301"),
        UserError,
        "the bucket is in another region ({answer}). Check /region and /s3_endpoint.",
    ),
    (
        ("NETWORK_CONNECTION",),
        RetryableError,
        "the object store cannot be reached ({answer}). Check that the network allows it, /s3_endpoint and /region.",
    ),
    (("",), RetryableError, "{answer}."),
)
