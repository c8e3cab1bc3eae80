"""What boto3 says about an object store, as an error that names the cause and the remedy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    InvalidRegionError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)

from connector.host.errors import ConnectorError, RetryableError, UserError
from connector.host.redaction import redact_and_cut
from connector.storage.aws_errors import is_refusal

OTHER_REGION: Final = frozenset(
    {"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
QUOTED_CHARACTERS: Final = 300


@dataclass(frozen=True)
class Bucket:
    """What errors say of a bucket."""

    name: str
    prefix: str
    endpoint: str
    region: str

    @property
    def path(self) -> str:
        return "/".join(filter(None, (self.name, self.prefix)))

    @property
    def server(self) -> str:
        return f"the object store at {self.endpoint}" if self.endpoint else "Amazon S3"


@contextmanager
def translate_errors(bucket: Bucket, permission: str) -> Iterator[None]:
    """For calls that need this permission, such as s3:GetObject: turns boto3's errors into ours."""
    try:
        yield
    except ClientError as error:
        kind, sentence = _refusal(error)
        facts = {
            "server": bucket.server,
            "region": _region_of_bucket(error),
            "permission": permission,
            "objects": f"arn:aws:s3:::{bucket.path}/*",
            "answer": _answer(error),
        }
        raise kind(f"s3://{bucket.path}: {sentence.format(**facts)}") from error
    except (BotoCoreError, ValueError) as error:
        kind, sentence = next((kind, sentence) for types, kind, sentence in FAILURES if isinstance(error, types))
        raise kind(f"s3://{bucket.path}: {sentence.format(server=bucket.server, region=bucket.region)}") from error


def _refusal(error: ClientError) -> tuple[type[ConnectorError], str]:
    code = error.response["Error"]["Code"]
    if code in REFUSALS:
        return UserError, REFUSALS[code]
    if code.isalpha() and is_refusal(error):
        return UserError, "{server} refuses this: {answer}. Check /bucket, /prefix and /credentials."
    if code.isalpha():
        return RetryableError, "{server} is not able to answer now: {answer}."
    kind = UserError if is_refusal(error) else RetryableError
    return kind, "{server} does not answer as an object store does: {answer}. Check /s3_endpoint."


def _region_of_bucket(error: ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response["Error"].get("Region")
    return region or "another region"


def _answer(error: ClientError) -> str:
    answer = error.response["Error"]
    words = (
        answer["Code"] or f"HTTP status {error.response['ResponseMetadata']['HTTPStatusCode']}",
        answer.get("Message", ""),
    )
    return redact_and_cut(": ".join(filter(None, words)), QUOTED_CHARACTERS)


_OTHER_REGION: Final = "the bucket is in {region} ({answer}). Correct /region, and /s3_endpoint if it names a region."

# By the codes of S3's errors.
REFUSALS: Final[Mapping[str, str]] = {
    "InvalidAccessKeyId": "{server} does not know the access key id ({answer}). Check it in /credentials.",
    "SignatureDoesNotMatch": "the secret access key is not that of the access key id ({answer}). Check both in "
    "/credentials.",
    "InvalidToken": "{server} does not accept the session token ({answer}). Check /credentials.",
    "ExpiredToken": "the session token has expired ({answer}). Sign in anew: start the task again.",
    "RequestTimeTooSkewed": "the clock of this machine is wrong ({answer}). Set it.",
    "NoSuchBucket": "there is no such bucket ({answer}). Create it, or correct /bucket.",
    "AccessDenied": "the keys do not allow {permission} ({answer}). Allow it on {objects}, or correct /bucket, /prefix "
    "or /credentials.",
    **dict.fromkeys(OTHER_REGION, _OTHER_REGION),
}

# What fails without an answer of the store; the first entry that an error is an instance of explains it.
FAILURES: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[ConnectorError], str], ...]] = (
    (
        InvalidRegionError,
        UserError,
        "{region!r} is not a region's name. Correct /region.",
    ),
    (
        ParamValidationError,
        UserError,
        "that is not a bucket's name. Correct /bucket.",
    ),
    (
        (ConnectTimeoutError, ReadTimeoutError),
        RetryableError,
        "{server} did not answer in time. Check that it is up, that the network allows it, /s3_endpoint and /region.",
    ),
    (
        SSLError,
        UserError,
        "{server} cannot be spoken to securely: it has no certificate that this machine trusts, or does not speak "
        "https. Check /s3_endpoint.",
    ),
    (
        ValueError,
        UserError,
        "{server} has no usable address. Check /s3_endpoint.",
    ),
    (
        Exception,
        RetryableError,
        "{server} cannot be reached. Check that it is up, that the network allows it, /s3_endpoint and /region.",
    ),
)
