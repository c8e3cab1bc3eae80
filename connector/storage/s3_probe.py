"""Whether objects can be written, read and deleted in a bucket, tried with one of no meaning.

The tasks use PyArrow, whose errors are texts, often without a cause. boto3's errors have codes, and say which region a
bucket is in.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_ANONYMOUS,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_PROXY_URI,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)

from connector.host.errors import ConnectorError, UserError, all_of
from connector.storage.aws_errors import OTHER_REGION, Bucket, translate_s3_errors
from connector.storage.probe_object import CONTENT, NAME_PREFIX, is_abandoned, new_name

ANY_REGION: Final = "us-east-1"  # Amazon knows the bucket's own
TIME_LIMITS: Final = {"connect_timeout": 5, "read_timeout": 15}  # seconds, for each of two attempts


def probe_bucket(name: str, prefix: str, properties: Mapping[str, str]) -> None:
    """Put, get and delete an object, with the FileIO properties that files are written with; then delete what killed
    probes have left there."""
    bucket = Bucket(name, prefix, properties.get(S3_ENDPOINT, ""), properties.get(S3_REGION, ""))
    with translate_s3_errors(bucket, "s3:PutObject"), closing(_client(properties)) as client:
        probe = _Probe(client, bucket, f"{prefix}/" if prefix else "")
        key = f"{probe.directory}{new_name()}"
        probe.put(key)
        errors = []
        for use in (probe.read_back, probe.delete):
            try:
                use(key)
            except ConnectorError as error:
                errors.append(error)
        if errors:
            raise all_of(errors)
        with suppress(BotoCoreError, ClientError, ConnectorError):  # keys that may not list may still write
            for find_abandoned in probe.find_abandoned():
                probe.delete(find_abandoned)


@dataclass(frozen=True)
class _Probe:
    client: Any
    bucket: Bucket
    directory: str

    def put(self, key: str) -> None:
        with translate_s3_errors(self.bucket, "s3:PutObject"):
            self.client.put_object(Bucket=self.bucket.name, Key=key, Body=CONTENT)

    def read_back(self, key: str) -> None:
        with translate_s3_errors(self.bucket, "s3:GetObject"):
            content = self.client.get_object(Bucket=self.bucket.name, Key=key)["Body"].read()
        if content != CONTENT:
            raise UserError(f"s3://{self.bucket.name}/{key}: what was written is not what is read. Check /s3_endpoint.")

    def delete(self, key: str) -> None:
        with translate_s3_errors(self.bucket, "s3:DeleteObject"):
            self.client.delete_object(Bucket=self.bucket.name, Key=key)

    def find_abandoned(self) -> Iterator[str]:
        """The keys of objects that killed probes have left there."""
        listed = self.client.list_objects_v2(Bucket=self.bucket.name, Prefix=f"{self.directory}{NAME_PREFIX}")
        for found in listed.get("Contents", ()):
            if is_abandoned(found["Key"].removeprefix(self.directory), found["LastModified"]):
                yield found["Key"]


def _client(properties: Mapping[str, str]) -> Any:
    """As PyArrow reads the properties."""
    endpoint, region, proxy = (properties.get(name) for name in (S3_ENDPOINT, S3_REGION, S3_PROXY_URI))
    client = boto3.Session(
        region_name=region or ANY_REGION,
        aws_access_key_id=properties.get(S3_ACCESS_KEY_ID),
        aws_secret_access_key=properties.get(S3_SECRET_ACCESS_KEY),
        aws_session_token=properties.get(S3_SESSION_TOKEN),
    ).client(
        "s3",
        endpoint_url=f"https://{endpoint}" if endpoint and "://" not in endpoint else endpoint,
        config=Config(
            **TIME_LIMITS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            proxies={"http": proxy, "https": proxy} if proxy else None,
            signature_version=UNSIGNED if _is_true(properties, S3_ANONYMOUS) else None,
            s3={"addressing_style": _addressing(properties)},
            # Not every store knows the checksums that botocore would add.
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
    """botocore would find the bucket in its own region. PyArrow, which was given one, does not."""
    if response is not None and response[1].get("Error", {}).get("Code") in OTHER_REGION:
        raise ClientError(response[1], operation.name)
