"""The errors of object stores, as PyArrow raises them, in words that say what to do."""

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from connector.host.errors import (
    BACKFILL,
    NEW_TABLE,
    ErrorTable,
    Matcher,
    RefusedKeysError,
    RetryableError,
    Translation,
    UserError,
    is_a,
    is_of_full_disk,
    translate,
)
from connector.host.redaction import redact_and_shorten


def translate_errors(location: str) -> AbstractContextManager[None]:
    """Translate the errors of reading and writing files at this location."""
    return translate(STORAGE_ERRORS, lambda error: {"location": location, "answer": _read_answer(str(error))})


def translate_errors_of_directory(directory: Path) -> AbstractContextManager[None]:
    """Translate the errors of reading and writing files in the directory of /storage."""
    return translate(
        DIRECTORY_ERRORS, lambda error: {"directory": directory, "reason": getattr(error, "strerror", None) or error}
    )


LATE: Final = "not whole after"  # what an error says of an answer that comes too slowly

# How the clients quote a store's answer: Amazon's, Azure's, Google's.
ANSWERS: Final = (
    re.compile("AWS Error (.*)", re.DOTALL),
    re.compile(r"GetToken\(\): (.*)", re.DOTALL),
    re.compile(r"Azure Error: (?:\[\] )?([^\n]*)"),
    re.compile("with a last message of (.*?) error_info=", re.DOTALL),
    re.compile(r"google::cloud::Status\((.*?)(?: error_info=|\)?\Z)", re.DOTALL),
)


def _read_answer(text: str) -> str:
    answer = next((found[1] for pattern in ANSWERS if (found := pattern.search(text))), text)
    return redact_and_shorten(answer)


def is_of_content(error: Exception) -> bool:
    """Whether PyArrow says this of a file's content. A disk's error has a number or a kind of its own. A store's error
    quotes its answer, or is one of those that are explained here."""
    is_explained = any(entry.matches(error) for entry in STORAGE_ERRORS[:-1])
    has_answer = any(pattern.search(str(error)) for pattern in ANSWERS)
    return type(error) is OSError and error.errno is None and not has_answer and not is_explained


def _says(*codes: str) -> Matcher:
    """Match PyArrow's errors by the codes in their texts, since they have no types."""
    return lambda error: _is_of_store(error) and any(code in str(error) for code in codes)


def _is_of_store(error: Exception) -> bool:
    from pyarrow import ArrowException  # slow to import; it is loaded already if PyArrow raised the error

    # PyArrow has no type for what Azure's token server answers.
    return isinstance(error, OSError) or type(error) is ArrowException


NOT_VALID_NOW: Final = ("certificate has expired", "certificate is not yet valid")  # OpenSSL's words

# S3 says this also of a file that does not exist, to users who may not list the whole bucket.
is_forbidden: Final = _says("ACCESS_DENIED")

_BAD_CREDENTIALS: Final = (
    "{location}: the object store does not accept the credentials ({answer}). Check /credentials, or "
    "/storage/credentials if they are set."
)
REFUSED_PATH: Final = (
    "{location}: the connector cannot use objects whose path has an empty part, such as a//b ({answer}). If another "
    "program wrote the object, let it write the rows again under another path. If the table's location, or that of its "
    "files, has the empty part, set the table properties write.data.path and write.metadata.path to locations "
    "without it, or choose another table name."
)
STORAGE_ERRORS: Final[ErrorTable] = (
    Translation(is_of_full_disk, RetryableError, "{location}: the disk is full. Make room there."),
    Translation(_says("ExpiredToken"), RefusedKeysError, _BAD_CREDENTIALS),
    Translation(
        _says("SIGNATURE_DOES_NOT_MATCH", "INVALID_ACCESS_KEY_ID", "InvalidToken"), UserError, _BAD_CREDENTIALS
    ),
    Translation(
        is_forbidden,
        UserError,
        "{location}: the object store forbids this ({answer}). Check /credentials, or /storage/credentials if they "
        "are set, and that they allow to read, write, list and delete objects there. If the catalog vends credentials, "
        "allow its user to write the table's data.",
    ),
    Translation(
        _says("REQUEST_TIME_TOO_SKEWED", "RequestTimeTooSkewed"),
        UserError,
        "{location}: the clock of this machine is wrong ({answer}). Set it.",
    ),
    Translation(
        _says("NO_SUCH_BUCKET"),
        UserError,
        "{location}: there is no such bucket ({answer}). Create it, or correct /bucket (with /storage: "
        "/storage/bucket).",
    ),
    Translation(
        _says("AuthorizationHeaderMalformed", "PermanentRedirect", "HTTP status 301"),
        UserError,
        "{location}: the bucket is in another region ({answer}). Check /region and /s3_endpoint, or with /storage "
        "its region and endpoint.",
    ),
    Translation(
        _says("curlCode: 77,"),
        UserError,
        "{location}: the object store cannot be reached, because the environment names a file of certificates that "
        "cannot be read ({answer}). Correct the variable AWS_CA_BUNDLE, or REQUESTS_CA_BUNDLE.",
    ),
    Translation(
        _says(*NOT_VALID_NOW),
        UserError,
        "{location}: the object store has no secure connection: by the clock of this machine, its certificate is not "
        "valid now ({answer}). Set the clock if it is wrong. If it is right, the store needs a new certificate.",
    ),
    Translation(
        _says("curlCode: 60,"),
        UserError,
        "{location}: the object store has no secure connection, because this machine does not trust its certificate "
        "({answer}). To trust an authority of your own, set the variable AWS_CA_BUNDLE to a file with its certificate.",
    ),
    Translation(
        _says("curlCode: 5,", "over proxy", "CONNECT tunnel failed"),
        RetryableError,
        "{location}: the object store cannot be reached through the proxy that the environment, or the property "
        "s3.proxy-uri, names ({answer}). Check that the proxy is up, and its address.",
    ),
    Translation(
        _says("NETWORK_CONNECTION"),
        RetryableError,
        "{location}: the object store cannot be reached ({answer}). Check that the network allows it, /s3_endpoint "
        "and /region, or with /storage its endpoint and region.",
    ),
    Translation(
        # The fourth one is of a store that answers a HEAD, or with a page.
        _says("SLOW_DOWN", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "(HTTP status 5", LATE),
        RetryableError,
        "{location}: the object store is not able to answer now ({answer}). If this repeats, look at the store's limit "
        "of requests, and at its log.",
    ),
    Translation(
        _says("Status(UNAUTHENTICATED"),
        UserError,
        "{location}: Google Cloud Storage does not accept the token ({answer}). Check /storage/service_account_json, "
        "and that its service account exists.",
    ),
    Translation(
        _says("Status(PERMISSION_DENIED"),
        UserError,
        "{location}: Google Cloud Storage forbids this ({answer}). Give the service account the role Storage Object "
        "User (roles/storage.objectUser) on the bucket.",
    ),
    Translation(
        # The error of a missing file is the same, and an entry below is for it. An upload looks only for its bucket.
        is_a(FileNotFoundError, saying=("The specified bucket does not exist", "function=CreateResumableUpload")),
        UserError,
        "{location}: Google Cloud Storage has no such bucket ({answer}). Create it, or correct /storage/bucket.",
    ),
    Translation(
        _says("Status(UNAVAILABLE", "Status(DEADLINE_EXCEEDED"),
        RetryableError,
        "{location}: Google Cloud Storage cannot be reached, or is not able to answer now ({answer}). Check that the "
        "network allows it, and /storage/endpoint if it is set.",
    ),
    Translation(
        _says(
            "[AuthenticationFailed]",
            "[AuthorizationFailure]",
            "[InvalidAuthenticationInfo]",
            *(f"GetToken(): error response: {status}" for status in (400, 401, 403, 404)),
        ),
        UserError,
        "{location}: Azure does not accept the sign-in ({answer}). Check the key, the SAS token or the client secret "
        "in /storage, /storage/account, and the clock of this machine.",
    ),
    Translation(
        _says("DefaultAzureCredential"),
        UserError,
        "{location}: this machine has no identity that Azure accepts ({answer}). Give it a managed identity or a "
        "workload identity, also where Spark's workers run, or set another way to sign in in /storage.",
    ),
    Translation(
        _says("GetToken()"),
        RetryableError,
        "{location}: Azure's token server cannot be reached, or is not able to answer now ({answer}). Check that the "
        "network allows it.",
    ),
    Translation(
        _says(
            "[AuthorizationPermissionMismatch]",
            "[AuthorizationResourceTypeMismatch]",
            "[InsufficientAccountPermissions]",
        ),
        UserError,
        "{location}: Azure forbids this ({answer}). Let the SAS token read, create, write, list and delete blobs, or "
        "give the application the role Storage Blob Data Contributor on the container.",
    ),
    Translation(
        _says("[ContainerNotFound]", "[FilesystemNotFound]", "[OutOfRangeInput]"),
        UserError,
        "{location}: Azure has no such container ({answer}). Create it, or correct /storage/container.",
    ),
    Translation(
        _says("[ResourceNotFound]"),
        UserError,
        "{location}: Azure has no such account ({answer}). Correct /storage/account, and /storage/endpoint if it is "
        "set.",
    ),
    Translation(
        _says("Azure Error: []"),
        RetryableError,
        "{location}: Azure cannot be reached, or is not able to answer now ({answer}). Check that the network allows "
        "it, /storage/account, and /storage/endpoint if it is set.",
    ),
    Translation(
        _says("Unable to load libjvm", "Unable to load libhdfs"),
        UserError,
        "{location}: Hadoop's native client, libhdfs, or the Java that it needs is not on this machine. Install them "
        "and set HADOOP_HOME and JAVA_HOME, or choose another storage than HDFS.",
    ),
    Translation(
        _says("HDFS connection failed"),
        RetryableError,
        "{location}: HDFS cannot be reached. Check /storage/uri, that the network allows it, and that CLASSPATH names "
        "the jars of Hadoop's client.",
    ),
    Translation(
        is_a(FileNotFoundError, saying=(".metadata.json",)),
        RetryableError,
        f"{{location}}: a metadata file is gone ({{answer}}). Restore it, or {NEW_TABLE}.",
    ),
    Translation(
        is_a(FileNotFoundError),
        RetryableError,
        f"{{location}}: a file is gone ({{answer}}). Restore it, or {BACKFILL}.",
    ),
    # PyArrow refuses the path before it asks the store.
    Translation(is_a(ValueError, saying=("Empty path component in",)), UserError, REFUSED_PATH),
    Translation(_says(""), RetryableError, "{location}: {answer}."),
)

DIRECTORY_ERRORS: Final[ErrorTable] = (
    Translation(
        is_of_full_disk,
        RetryableError,
        "the disk that holds the directory {directory} for data files is full. Make room there.",
    ),
    Translation(
        is_a(OSError),
        UserError,
        "the directory {directory} cannot be used for data files: {reason}. Change /storage/directory, or the "
        "directory's permissions.",
    ),
)
