"""The errors of AWS services: which of them may pass, and what they say.

botocore raises ClientError for an answer of a service, and BotoCoreError or ValueError if there is no answer.
"""

from http import HTTPStatus
from typing import Final

from botocore.exceptions import ClientError, ProxyConnectionError, SSLError

from connector.host.errors import ErrorTable, Matcher, RetryableError, Translation, UserError, is_a
from connector.host.redaction import redact_and_shorten

TRANSIENT: Final = frozenset(
    {
        *(
            "InternalServiceException",
            "OperationTimeoutException",
            "ServiceUnavailableException",
            "ThrottlingException",
        ),
        *("RequestLimitExceeded", "Throttling"),  # of STS
    }
)
# Codes, and sentences of answers without a code.
BAD_CREDENTIALS: Final = (
    *("ExpiredToken", "InvalidClientTokenId", "InvalidSignature", "SignatureDoesNotMatch", "UnrecognizedClient"),
    *("request signature", "security token included in the request"),
)
# What botocore says if the file of certificates that it is told to trust is missing, or is none.
NO_CERTIFICATES: Final = is_a(SSLError, saying=("[Errno ", "NO_CERTIFICATE_OR_CRL_FOUND"))
# For the tables of services. botocore finds these variables in the environment.
ENVIRONMENT_ERRORS: Final[ErrorTable] = (
    Translation(
        NO_CERTIFICATES,
        UserError,
        "{place} cannot be reached, because the environment names a file of certificates that cannot be read "
        "({answer}). Correct the variable AWS_CA_BUNDLE, or REQUESTS_CA_BUNDLE.",
    ),
    Translation(
        is_a(ValueError, saying=("Invalid endpoint",)),
        UserError,
        "{place} cannot be reached, because the environment has a malformed address ({answer}). Correct the variables "
        "that begin with AWS_ENDPOINT_URL.",
    ),
    Translation(
        is_a(ProxyConnectionError),
        RetryableError,
        "{place} cannot be reached through the proxy that the environment names. Check that the proxy is up, and the "
        "variable HTTPS_PROXY.",
    ),
)
# What helps if a session token has expired. Flow and roles give new ones to each session.
NEW_SESSION: Final = (
    "Start the task again to get a new one. If awsSessionToken is set in /credentials, set new temporary credentials "
    "there, or permanent ones."
)
# Sentences about the credentials of a request. {of} is the path of the config's object that has them, empty for the
# config itself.
WRONG_CLOCK: Final = "{place} says that the clock of this machine is wrong ({answer}). Set it."
WRONG_SECRET: Final = (
    "{place} says that the secret access key does not belong to the access key id ({answer}). Check both in "
    "{of}/credentials."
)
UNKNOWN_KEY: Final = (
    "{place} does not know the access key id, or does not accept the session token ({answer}). Check awsAccessKeyId "
    "and awsSessionToken in {of}/credentials."
)
EXPIRED_SESSION: Final = f"{{place}} says that the session token has expired ({{answer}}). {NEW_SESSION}"


def is_refusal(error: ClientError) -> bool:
    """Whether the service understood the request and would give the same answer again."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", HTTPStatus.BAD_REQUEST)
    is_at_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
    return not is_at_fault and _code(error) not in TRANSIENT


def is_transient(error: Exception) -> bool:
    """Whether a service answered that it cannot do the request now."""
    return isinstance(error, ClientError) and not is_refusal(error)


def has_code(*codes: str) -> Matcher:
    """Match a service's answers with one of these codes."""
    return lambda error: isinstance(error, ClientError) and _code(error) in codes


def refuses_credentials(error: Exception) -> bool:
    """Whether a service, or the gateway of a REST catalog, refuses the credentials themselves."""
    return any(cause in (_code(error) if isinstance(error, ClientError) else str(error)) for cause in BAD_CREDENTIALS)


def read_answer(error: Exception) -> str:
    """Return the code and the message of a service's answer, or what botocore says if there is no answer, redacted."""
    if not isinstance(error, ClientError):
        return redact_and_shorten(str(error))
    answer = error.response["Error"]
    code = str(answer["Code"])
    if not code or code.isdecimal():  # as botocore calls the status of an answer without a code
        code = f"HTTP status {error.response['ResponseMetadata']['HTTPStatusCode']}"
    message = answer.get("Message", "")
    is_page = message.lstrip().startswith("<")  # of a web server, perhaps a proxy. It says no more than the code.
    return redact_and_shorten(f"{code}: {message}" if message and not is_page else code)


# For the tables of services.
CREDENTIAL_ERRORS: Final[ErrorTable] = (
    # AWS answers with the code of a wrong secret if the clock is wrong.
    Translation(is_a(ClientError, saying=("Signature expired", "Signature not yet current")), UserError, WRONG_CLOCK),
    Translation(
        # MinIO says it in the message only: its code is AccessDenied.
        is_a(ClientError, saying=("InvalidSignature", "SignatureDoesNotMatch", "request signature we calculated")),
        UserError,
        WRONG_SECRET,
    ),
    Translation(
        has_code(
            "IncompleteSignatureException",
            "InvalidClientTokenId",
            "MissingAuthenticationTokenException",
            "UnrecognizedClientException",
        ),
        UserError,
        UNKNOWN_KEY,
    ),
    Translation(has_code("ExpiredToken", "ExpiredTokenException"), UserError, EXPIRED_SESSION),
)


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])
