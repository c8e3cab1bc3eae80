"""What an object store refuses, as an error that says what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.redaction import redact_and_cut

QUOTED_CHARACTERS: Final = 400


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """For reading and writing files there: what the client raises becomes an error that says what to do."""
    try:
        yield
    except Exception as error:
        if not _is_of_store(error):
            raise
        kind, sentence = next(
            (kind, sentence) for codes, kind, sentence in EXPLANATIONS if any(code in str(error) for code in codes)
        )
        raise kind(f"{location}: {sentence.format(answer=_answer(str(error)))}") from error


def _is_of_store(error: Exception) -> bool:
    from pyarrow import ArrowException  # slow to import; where it was raised, it is loaded already

    # PyArrow has no type of its own for what Azure's token server answers.
    return isinstance(error, OSError) or type(error) is ArrowException


# How the clients quote a store's answer in their own texts: Amazon's, Azure's, Google's.
ANSWERS: Final = (
    re.compile("AWS Error (.*)", re.DOTALL),
    re.compile(r"GetToken\(\): (.*)", re.DOTALL),
    re.compile(r"Azure Error: (?:\[\] )?([^\n]*)"),
    re.compile("with a last message of (.*?) error_info=", re.DOTALL),
    re.compile(r"google::cloud::Status\((.*?) error_info=", re.DOTALL),
)


def _answer(text: str) -> str:
    answer = next((found[1] for pattern in ANSWERS if (found := pattern.search(text))), text)
    return redact_and_cut(" ".join(answer.split()), QUOTED_CHARACTERS)


# The clients' errors have no types, only codes in their texts. The first entry with a code that a text has explains it.
EXPLANATIONS: Final[tuple[tuple[tuple[str, ...], type[ConnectorError], str], ...]] = (
    (
        ("SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "InvalidToken", "ExpiredToken"),
        UserError,
        "the object store does not accept the keys ({answer}). Check /credentials.",
    ),
    (
        ("ACCESS_DENIED",),
        UserError,
        "the object store forbids this ({answer}). Check /credentials, and that they allow to read, write, list and "
        "delete objects there.",
    ),
    (
        ("REQUEST_TIME_TOO_SKEWED", "RequestTimeTooSkewed"),
        UserError,
        "the clock of this machine is wrong ({answer}). Set it.",
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
    (
        ("Status(UNAUTHENTICATED",),
        UserError,
        "Google Cloud Storage does not accept the token ({answer}). Check /storage/service_account_json, and that its "
        "service account exists.",
    ),
    (
        ("Status(PERMISSION_DENIED",),
        UserError,
        "Google Cloud Storage forbids this ({answer}). Give the service account the role Storage Object User "
        "(roles/storage.objectUser) on the bucket.",
    ),
    (
        ("Status(NOT_FOUND",),
        UserError,
        "Google Cloud Storage has no such bucket, or no such file in it ({answer}). Create the bucket, or correct "
        "/storage/bucket.",
    ),
    (
        ("Status(UNAVAILABLE", "Status(DEADLINE_EXCEEDED"),
        RetryableError,
        "Google Cloud Storage cannot be reached, or is not able to answer now ({answer}). Check that the network "
        "allows it, and /storage/endpoint if it is set.",
    ),
    (
        (
            "[AuthenticationFailed]",
            "[AuthorizationFailure]",
            "[InvalidAuthenticationInfo]",
            *(f"GetToken(): error response: {status}" for status in (400, 401, 403, 404)),
        ),
        UserError,
        "Azure does not accept the sign-in ({answer}). Check the key, the SAS token or the client secret in /storage, "
        "/storage/account, and the clock of this machine.",
    ),
    (
        ("GetToken()",),
        RetryableError,
        "Azure's token server cannot be reached, or is not able to answer now ({answer}). Check that the network "
        "allows it.",
    ),
    (
        (
            "[AuthorizationPermissionMismatch]",
            "[AuthorizationResourceTypeMismatch]",
            "[InsufficientAccountPermissions]",
        ),
        UserError,
        "Azure forbids this ({answer}). Let the SAS token read, create, write, list and delete blobs, or give the "
        "application the role Storage Blob Data Contributor on the container.",
    ),
    (
        ("[ContainerNotFound]", "[FilesystemNotFound]", "[OutOfRangeInput]"),
        UserError,
        "Azure has no such container ({answer}). Create it, or correct /storage/container.",
    ),
    (
        ("[ResourceNotFound]",),
        UserError,
        "Azure has no such account ({answer}). Correct /storage/account, and /storage/endpoint if it is set.",
    ),
    (
        ("Azure Error: []",),
        RetryableError,
        "Azure cannot be reached, or is not able to answer now ({answer}). Check that the network allows it, "
        "/storage/account, and /storage/endpoint if it is set.",
    ),
    (
        ("Unable to load libjvm", "Unable to load libhdfs"),
        UserError,
        "Hadoop's native client, libhdfs, or the Java that it needs is not on this machine. Install them and set "
        "HADOOP_HOME and JAVA_HOME, or choose another storage than HDFS.",
    ),
    (
        ("HDFS connection failed",),
        RetryableError,
        "HDFS cannot be reached. Check /storage/uri, that the network allows it, and that CLASSPATH names the jars of "
        "Hadoop's client.",
    ),
    (("",), RetryableError, "{answer}."),
)
