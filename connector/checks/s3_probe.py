"""A bucket in which the storage probe tries a file, by boto3.

Data files are written by PyArrow, whose errors are texts, often without a cause. boto3's errors have codes, and say
which region a bucket is in.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)

from connector.checks.s3_probe_errors import OTHER_REGION, Bucket, BucketSettings, translate_s3_errors
from connector.config.endpoint_config import EndpointConfig
from connector.config.storage import S3Storage
from connector.storage.aws_sessions import new_core
from connector.storage.s3_environment import find_certificates, find_proxy

ANY_REGION: Final = "us-east-1"  # Amazon knows the bucket's own
OF_ENDPOINT: Final = BucketSettings()
TIME_LIMITS: Final = {"connect_timeout": 5, "read_timeout": 15}  # seconds, for each of two attempts


def open_configured_bucket(
    config: EndpointConfig, properties: Mapping[str, str]
) -> "AbstractContextManager[BucketAccess]":
    """Open the bucket of a config, whose settings errors name."""
    if not isinstance(config.storage, S3Storage):
        return open_bucket(config.bucket, config.prefix, properties)
    own = BucketSettings(*(f"/storage/{name}" for name in ("bucket", "prefix", "region", "endpoint", "credentials")))
    settings = own if config.storage.credentials else own._replace(credentials=OF_ENDPOINT.credentials)
    return open_bucket(config.storage.bucket, config.storage.prefix, properties, settings)


@contextmanager
def open_bucket(
    name: str, prefix: str, properties: Mapping[str, str], settings: BucketSettings = OF_ENDPOINT
) -> "Iterator[BucketAccess]":
    """Open a bucket with the FileIO properties that data files are written with. Errors name these settings."""
    bucket = Bucket(name, prefix, properties.get(S3_ENDPOINT, ""), properties.get(S3_REGION, ""), settings)
    with translate_s3_errors(bucket, "s3:PutObject"):
        client = _open_client(properties)
    try:
        yield BucketAccess(client, bucket)
    finally:
        client.close()


@dataclass(frozen=True)
class BucketAccess:
    """Objects below a prefix in a bucket."""

    client: Any
    bucket: Bucket

    @property
    def setting(self) -> str:
        """The setting that is wrong if an object cannot be read back."""
        return self.bucket.settings.endpoint

    @property
    def location(self) -> str:
        """The address of the prefix: s3://bucket/prefix."""
        return f"s3://{self.bucket.path}"

    def write(self, name: str, content: bytes) -> None:
        """Write an object. Raises a ConnectorError if that fails, like all methods here."""
        with translate_s3_errors(self.bucket, "s3:PutObject"):
            self.client.put_object(Bucket=self.bucket.name, Key=self._key(name), Body=content)

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        with translate_s3_errors(self.bucket, "s3:GetObject"):
            return bytes(self.client.get_object(Bucket=self.bucket.name, Key=self._key(name))["Body"].read())

    def delete(self, name: str) -> None:
        """Delete an object. To delete one that is gone is no error."""
        with translate_s3_errors(self.bucket, "s3:DeleteObject"):
            self.client.delete_object(Bucket=self.bucket.name, Key=self._key(name))

    def list_files(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        """Yield the names below the prefix that begin with `prefix`, and when they were written."""
        with translate_s3_errors(self.bucket, "s3:ListBucket"):
            listed = self.client.list_objects_v2(Bucket=self.bucket.name, Prefix=self._key(prefix))
        for found in listed.get("Contents", ()):
            yield found["Key"].removeprefix(self._key("")), found["LastModified"]

    def _key(self, name: str) -> str:
        return f"{self.bucket.prefix}/{name}" if self.bucket.prefix else name


def _open_client(properties: Mapping[str, str]) -> Any:
    """Read the properties as PyArrow does."""
    endpoint, region, proxy = properties.get(S3_ENDPOINT), properties.get(S3_REGION), find_proxy(properties)
    client = boto3.Session(
        region_name=region or ANY_REGION,
        aws_access_key_id=properties.get(S3_ACCESS_KEY_ID),
        aws_secret_access_key=properties.get(S3_SECRET_ACCESS_KEY),
        aws_session_token=properties.get(S3_SESSION_TOKEN),
        botocore_session=new_core(),
    ).client(
        "s3",
        endpoint_url=f"https://{endpoint}" if endpoint and "://" not in endpoint else endpoint,
        verify=find_certificates(),
        config=Config(
            **TIME_LIMITS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            proxies={"http": proxy, "https": proxy} if proxy else {},
            signature_version=UNSIGNED if _is_true(properties, S3_ANONYMOUS) else None,
            s3={"addressing_style": _addressing(properties)},
            # Some stores do not know the checksums that botocore would add.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    if region:
        client.meta.events.register_first("needs-retry.s3", _refuse_to_be_redirected)
    return client


def _addressing(properties: Mapping[str, str]) -> str:
    if S3_ENDPOINT not in properties:
        return "auto"
    return "virtual" if _is_true(properties, S3_FORCE_VIRTUAL_ADDRESSING) else "path"


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").lower() == "true"


def _refuse_to_be_redirected(response: Any, operation: Any, **_: object) -> None:
    """Raise the redirection. botocore would follow it to the bucket's region, but PyArrow stays in the given region."""
    if response is not None and response[1].get("Error", {}).get("Code") in OTHER_REGION:
        raise ClientError(response[1], operation.name)
