"""Whether the bucket takes, gives back and deletes what we put there: tried with an object that means nothing.

The tasks use PyArrow, whose errors are texts, often without a cause. boto3's have codes, and say which region a bucket is
in.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from connector.config import EndpointConfig
from connector.errors import ConnectorError, UserError, all_of
from connector.iceberg.probe_object import CONTENT, NAMES_BEGIN, is_abandoned, new_name
from connector.iceberg.s3_errors import OTHER_REGION, explained

TIME_LIMITS: Final = {"connect_timeout": 5, "read_timeout": 15}  # seconds, for each of two attempts


def probe_bucket(config: EndpointConfig) -> None:
    """Put, get and delete an object under the config's prefix; then delete what killed probes have left there."""
    with explained(config, "s3:PutObject"), closing(_client(config)) as client:
        bucket = _Bucket(client, config)
        key = f"{bucket.directory}{new_name()}"
        bucket.put(key)
        errors = []
        for use in (bucket.read_back, bucket.delete):
            try:
                use(key)
            except ConnectorError as error:
                errors.append(error)
        if errors:
            raise all_of(errors)
        with suppress(BotoCoreError, ClientError, ConnectorError):  # who may not list may still write
            for abandoned in bucket.abandoned():
                bucket.delete(abandoned)


@dataclass(frozen=True)
class _Bucket:
    client: Any
    config: EndpointConfig

    @property
    def directory(self) -> str:
        """What the key of every object of ours begins with."""
        return f"{self.config.prefix}/" if self.config.prefix else ""

    def put(self, key: str) -> None:
        with explained(self.config, "s3:PutObject"):
            self.client.put_object(Bucket=self.config.bucket, Key=key, Body=CONTENT)

    def read_back(self, key: str) -> None:
        with explained(self.config, "s3:GetObject"):
            content = self.client.get_object(Bucket=self.config.bucket, Key=key)["Body"].read()
        if content != CONTENT:
            raise UserError(
                f"s3://{self.config.bucket}/{key}: what was written is not what is read. Check /s3_endpoint."
            )

    def delete(self, key: str) -> None:
        with explained(self.config, "s3:DeleteObject"):
            self.client.delete_object(Bucket=self.config.bucket, Key=key)

    def abandoned(self) -> Iterator[str]:
        """The keys of objects that killed probes have left there."""
        listed = self.client.list_objects_v2(Bucket=self.config.bucket, Prefix=f"{self.directory}{NAMES_BEGIN}")
        for found in listed.get("Contents", ()):
            if is_abandoned(found["Key"].removeprefix(self.directory), found["LastModified"]):
                yield found["Key"]


def _client(config: EndpointConfig) -> Any:
    keys = {}
    if config.credentials:
        keys = {
            "aws_access_key_id": config.credentials.access_key_id,
            "aws_secret_access_key": config.credentials.secret_access_key.reveal(),
            "aws_session_token": config.credentials.session_token and config.credentials.session_token.reveal(),
        }
    client = boto3.Session(region_name=config.region, **keys).client(
        "s3",
        endpoint_url=_url(config.s3_endpoint),
        config=Config(
            **TIME_LIMITS,
            retries={"total_max_attempts": 2, "mode": "standard"},
            # As the tasks address it: stores other than Amazon's rarely have a host name for each bucket.
            s3={"addressing_style": "path" if config.s3_endpoint else "auto"},
            # Nor does each of them know the checksums that botocore would add.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    client.meta.events.register_first("needs-retry.s3", _refuse_to_be_redirected)
    return client


def _url(endpoint: str) -> str | None:
    """PyArrow takes an endpoint without a scheme for one of https."""
    return f"https://{endpoint}" if endpoint and "://" not in endpoint else endpoint or None


def _refuse_to_be_redirected(response: Any, operation: Any, **_: object) -> None:
    """botocore would find the bucket in its own region. PyArrow does not."""
    if response is not None and response[1].get("Error", {}).get("Code") in OTHER_REGION:
        raise ClientError(response[1], operation.name)
