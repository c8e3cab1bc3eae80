"""The errors of S3 as the storage probe says them: with the bucket, and with the settings that may be wrong."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    InvalidRegionError,
    ParamValidationError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)

from connector.host.errors import ErrorTable, RetryableError, Translation, UserError, is_a, translate
from connector.storage.aws_errors import NEW_SESSION, NO_CERTIFICATES, has_code, is_transient, read_answer
from connector.storage.storage_errors import NOT_VALID_NOW

# What S3 answers if the bucket is in another region than the request was signed for.
OTHER_REGION: Final = frozenset(
    {"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)


class BucketSettings(NamedTuple):
    """The paths of the settings of a bucket."""

    bucket: str = "/bucket"
    prefix: str = "/prefix"
    region: str = "/region"
    endpoint: str = "/s3_endpoint"
    credentials: str = "/credentials"


@dataclass(frozen=True)
class Bucket:
    """What the errors of S3 say about a bucket. An empty endpoint is Amazon's."""

    name: str
    prefix: str
    endpoint: str
    region: str
    settings: BucketSettings

    @property
    def path(self) -> str:
        """The bucket with the prefix, as errors name it."""
        return "/".join(filter(None, (self.name, self.prefix)))

    @property
    def server(self) -> str:
        """The name of the store for errors."""
        return f"the object store at {self.endpoint}" if self.endpoint else "Amazon S3"


def translate_s3_errors(bucket: Bucket, permission: str) -> AbstractContextManager[None]:
    """Translate the errors of calls that need this permission, such as s3:GetObject."""

    def read_facts(error: Exception) -> dict[str, str]:
        facts = {"bucket": f"s3://{bucket.path}", "server": bucket.server, "region": bucket.region}
        facts |= {f"{name}_setting": path for name, path in bucket.settings._asdict().items()}
        if not isinstance(error, ClientError):
            return facts
        return facts | {
            "region": _region_of_bucket(error),
            "permission": permission,
            "objects": f"arn:aws:s3:::{bucket.path}/*",
            "answer": read_answer(error),
        }

    return translate(S3_ERRORS, read_facts)


def _region_of_bucket(error: ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region") or error.response["Error"].get("Region")
    return region or "another region"


def _is_of_s3(error: Exception) -> bool:
    """Whether the answer has a code as S3 gives them. Other servers send a status only, or a page."""
    return isinstance(error, ClientError) and str(error.response["Error"]["Code"]).isalpha()


NO_STORE: Final = "{bucket}: {server} does not answer as an object store does: {answer}. Check {endpoint_setting}."

S3_ERRORS: Final[ErrorTable] = (
    Translation(
        has_code("InvalidAccessKeyId"),
        UserError,
        "{bucket}: {server} does not know the access key id ({answer}). Check it in {credentials_setting}.",
    ),
    Translation(
        has_code("SignatureDoesNotMatch"),
        UserError,
        "{bucket}: the secret access key does not belong to the access key id ({answer}). Check both in "
        "{credentials_setting}.",
    ),
    Translation(
        has_code("InvalidToken"),
        UserError,
        "{bucket}: {server} does not accept the session token ({answer}). Check {credentials_setting}.",
    ),
    Translation(
        has_code("ExpiredToken"),
        UserError,
        f"{{bucket}}: the session token has expired ({{answer}}). {NEW_SESSION}",
    ),
    Translation(
        has_code("RequestTimeTooSkewed"),
        UserError,
        "{bucket}: the clock of this machine is wrong ({answer}). Set it.",
    ),
    Translation(
        has_code("NoSuchBucket"),
        UserError,
        "{bucket}: there is no such bucket ({answer}). Create it, or correct {bucket_setting}.",
    ),
    Translation(
        has_code("AccessDenied"),
        UserError,
        "{bucket}: the credentials do not allow {permission} ({answer}). Allow it on {objects}, or correct "
        "{bucket_setting}, {prefix_setting} or {credentials_setting}.",
    ),
    Translation(
        has_code(*OTHER_REGION),
        UserError,
        "{bucket}: the bucket is in {region} ({answer}). Correct {region_setting}, and {endpoint_setting} if it names "
        "a region.",
    ),
    Translation(
        lambda error: _is_of_s3(error) and not is_transient(error),
        UserError,
        "{bucket}: {server} refuses this: {answer}. Check {bucket_setting}, {prefix_setting} and "
        "{credentials_setting}.",
    ),
    Translation(
        _is_of_s3,
        RetryableError,
        "{bucket}: {server} is not able to answer now: {answer}.",
    ),
    Translation(
        is_transient,
        RetryableError,
        NO_STORE,
    ),
    Translation(
        is_a(ClientError),
        UserError,
        NO_STORE,
    ),
    Translation(
        is_a(InvalidRegionError),
        UserError,
        "{bucket}: {region!r} is not a region's name. Correct {region_setting}.",
    ),
    Translation(
        is_a(ParamValidationError),
        UserError,
        "{bucket}: that is not a bucket's name. Correct {bucket_setting}.",
    ),
    Translation(
        is_a(ConnectTimeoutError, ReadTimeoutError),
        RetryableError,
        "{bucket}: {server} did not answer in time. Check that it is up, that the network allows it, "
        "{endpoint_setting} and {region_setting}.",
    ),
    Translation(
        NO_CERTIFICATES,
        UserError,
        "{bucket}: {server} cannot be reached, because the environment names a file of certificates that cannot be "
        "read. Correct the variable AWS_CA_BUNDLE, or REQUESTS_CA_BUNDLE.",
    ),
    Translation(
        is_a(SSLError, saying=NOT_VALID_NOW),
        UserError,
        "{bucket}: {server} has no secure connection: by the clock of this machine, its certificate is not valid now. "
        "Set the clock if it is wrong. If it is right, the server needs a new certificate.",
    ),
    Translation(
        is_a(SSLError),
        UserError,
        "{bucket}: {server} has no secure connection: this machine does not trust its certificate, or it does not "
        "speak https. Check {endpoint_setting}: the address of a server without https begins with http://. To trust an "
        "authority of your own, set the variable AWS_CA_BUNDLE to a file with its certificate.",
    ),
    Translation(
        is_a(ProxyConnectionError),
        RetryableError,
        "{bucket}: {server} cannot be reached through the proxy that the environment, or the property s3.proxy-uri, "
        "names. Check that the proxy is up, and its address.",
    ),
    Translation(
        is_a(ValueError),
        UserError,
        "{bucket}: {server} has no usable address. Check {endpoint_setting}.",
    ),
    Translation(
        is_a(BotoCoreError),
        RetryableError,
        "{bucket}: {server} cannot be reached. Check that it is up, that the network allows it, "
        "{endpoint_setting} and {region_setting}.",
    ),
)
