"""PyIceberg's FileIO, which uses PyArrow, with changes for three stores."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, GcsFileSystem, S3FileSystem
from pyiceberg.io import ADLS_SAS_TOKEN, GCS_SERVICE_HOST, GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS, S3_PROXY_URI
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from connector.storage.file_access import ADLS_MACHINE_CREDENTIALS, AZURE_SCHEMES, AZURE_TOKEN_FILE
from connector.storage.s3_environment import find_certificates, find_proxy

RETRY_SECONDS: Final = 30
ATTEMPTS: Final = 5  # to send a request to S3, with growing pauses of seven seconds in all
# With one of these variables, Google's client ignores the address that it is given.
EMULATORS: Final = ("CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT")


class ArrowFileIO(PyArrowFileIO):
    """Reads and writes files in any store.

    S3: a small file takes one request, not the three of a multipart upload, a failed request is repeated often, and
    the environment's proxy and certificates are used. Google: a failed request is not repeated for 15 minutes, and the
    machine's own credentials are never used. Azure: the account's host is not taken for a part of the container's name,
    and a machine's workload identity can sign in.
    """

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, host and path of a location. In Azure the path begins with the container."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        if scheme not in AZURE_SCHEMES:
            return scheme, netloc, path
        return scheme, netloc, f"{netloc.partition('@')[0]}{path.removeprefix(netloc)}"

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        if proxy := find_proxy(self.properties):
            self.properties = {**self.properties, S3_PROXY_URI: proxy}
        # PyIceberg has no setting for these options. So the file system is made again, from the options that pickling
        # would keep.
        _, (options,) = super()._initialize_s3_fs(netloc).__reduce__()
        own = {
            "allow_delayed_open": True,
            "retry_strategy": AwsStandardS3RetryStrategy(ATTEMPTS),
            "tls_ca_file_path": find_certificates(),
        }
        return S3FileSystem(**{**options, **own})

    def _initialize_azure_fs(self) -> FileSystem:
        if token := self.properties.get(ADLS_SAS_TOKEN):
            # PyArrow appends the token to addresses without a question mark.
            self.properties = {**self.properties, ADLS_SAS_TOKEN: f"?{token.removeprefix('?')}"}
        if token_file := self.properties.get(ADLS_MACHINE_CREDENTIALS):
            # Spark's workers do not inherit it. On a cluster, they may have one of their own.
            os.environ.setdefault(AZURE_TOKEN_FILE, token_file)
        return super()._initialize_azure_fs()

    def _initialize_gcs_fs(self) -> FileSystem:
        for name in EMULATORS:
            os.environ.pop(name, None)
        options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=RETRY_SECONDS)}
        if token := self.properties.get(GCS_TOKEN):
            ends = datetime.fromtimestamp(int(self.properties[GCS_TOKEN_EXPIRES_AT_MS]) / 1000, UTC)
            options |= {"access_token": token, "credential_token_expiration": ends}
        else:
            options["anonymous"] = True
        if endpoint := self.properties.get(GCS_SERVICE_HOST):
            address = urlsplit(endpoint)
            options |= {"scheme": address.scheme, "endpoint_override": address.netloc}
        return GcsFileSystem(**options)
