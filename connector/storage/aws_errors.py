"""Whether it makes sense to try again after an AWS service's error."""

from http import HTTPStatus
from typing import Final

from botocore.exceptions import ClientError

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


def is_refusal(error: ClientError) -> bool:
    """Whether the service has understood the request and would answer the same again."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", HTTPStatus.BAD_REQUEST)
    is_at_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
    return not is_at_fault and error.response["Error"]["Code"] not in TRANSIENT
