"""The stores for data files that a config can choose instead of the S3 bucket of its catalog."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from connector.config.addresses import parse_hdfs_directory, parse_server_address, parse_store_address
from connector.config.credentials import AwsCredentials, AwsRole
from connector.config.definition import Definition, Setting
from connector.config.secret import Secret
from connector.config.values import (
    AZURE_ACCOUNT,
    AZURE_CONTAINER,
    HDFS_DIRECTORY,
    HTTP_ADDRESS,
    WITHOUT_SLASHES,
    WITHOUT_URI_SIGNS,
    parse_account_key,
    parse_bucket,
    parse_container,
    parse_directory,
    parse_prefix,
    parse_region,
    parse_secret,
    parse_service_account,
    parse_token,
)

STORAGE_TYPE: Final = "storage_type"
S3: Final = "Amazon S3"
GOOGLE: Final = "Google Cloud Storage"
AZURE: Final = "Azure"
HDFS: Final = "HDFS"
LOCAL_FILES: Final = "Local Files"

BUCKET: Final = Setting(
    "Bucket", "The bucket for data files.", pattern=WITHOUT_SLASHES, min_length=1, parse=parse_bucket
)
PREFIX: Final = Setting(
    "Prefix", "A prefix for the names of all files, such as lake/flow.", pattern=WITHOUT_URI_SIGNS, parse=parse_prefix
)


class S3Storage(Definition, frozen=True, tag_field=STORAGE_TYPE, tag=S3):
    """A bucket of Amazon S3, or of a compatible store. Without credentials, it has those of the catalog."""

    title: ClassVar[str] = "Amazon S3"
    description: ClassVar[str] = "A bucket of Amazon S3 with other credentials than those of the catalog."

    bucket: Annotated[str, BUCKET]
    region: Annotated[str, Setting("Region", "The AWS region of the bucket.", min_length=1, parse=parse_region)]
    prefix: Annotated[str, PREFIX] = ""
    credentials: Annotated[
        AwsCredentials | AwsRole | None,
        Setting(
            "Credentials of the Bucket",
            "The access key or the role that opens the bucket, and nothing else. The default is that of the catalog.",
        ),
    ] = None
    endpoint: Annotated[
        str,
        Setting(
            "Endpoint",
            "The address of an S3-compatible store. The default is Amazon S3.",
            is_advanced=True,
            parse=parse_store_address,
        ),
    ] = ""

    @property
    def location(self) -> str:
        """The s3:// URI below which tables are made."""
        return _join(f"s3://{self.bucket}", self.prefix)


class GoogleStorage(Definition, frozen=True, tag_field=STORAGE_TYPE, tag=GOOGLE):
    """A bucket of Google Cloud Storage. Without a service account, the catalog or the machine has the credentials."""

    title: ClassVar[str] = "Google Cloud Storage"

    bucket: Annotated[str, BUCKET]
    prefix: Annotated[str, PREFIX] = ""
    service_account: Annotated[
        Secret | None,
        Setting(
            "Service Account JSON",
            "The JSON key of a service account that can read, write and delete the objects of the bucket.",
            is_multiline=True,
            parse=parse_service_account,
        ),
    ] = msgspec.field(name="service_account_json", default=None)
    endpoint: Annotated[
        str,
        Setting(
            "Endpoint",
            "The address of the storage service. The default is Google's.",
            pattern=HTTP_ADDRESS,
            is_advanced=True,
            parse=parse_server_address,
        ),
    ] = ""

    @property
    def location(self) -> str:
        """The gs:// URI below which tables are made."""
        return _join(f"gs://{self.bucket}", self.prefix)


class AzureStorage(Definition, frozen=True, tag_field=STORAGE_TYPE, tag=AZURE):
    """A container of a storage account, with at most one way to sign in. Without one, the catalog vends SAS tokens, or
    the machine has the credentials."""

    title: ClassVar[str] = "Azure"
    description: ClassVar[str] = (
        "A container of Azure Blob Storage or Azure Data Lake Storage Gen2. Choose one way to sign in."
    )

    account: Annotated[str, Setting("Storage Account", "The name of the storage account.", pattern=AZURE_ACCOUNT)]
    container: Annotated[
        str, Setting("Container", "The container for data files.", pattern=AZURE_CONTAINER, parse=parse_container)
    ]
    prefix: Annotated[str, PREFIX] = ""
    account_key: Annotated[
        Secret | None, Setting("Account Key", "An access key of the storage account.", parse=parse_account_key)
    ] = None
    sas_token: Annotated[
        Secret | None,
        Setting(
            "SAS Token",
            "A shared access signature with permission to read, create, write, list and delete blobs.",
            parse=parse_token,
        ),
    ] = None
    tenant_id: Annotated[str, Setting("Tenant ID", "The Entra ID tenant of the application.")] = ""
    client_id: Annotated[
        str, Setting("Client ID", "The ID of an application with the role Storage Blob Data Contributor.")
    ] = ""
    client_secret: Annotated[
        Secret | None, Setting("Client Secret", "The secret of the application.", parse=parse_secret)
    ] = None
    endpoint: Annotated[
        str,
        Setting(
            "Endpoint",
            "The address of the blob service. The default is Azure's.",
            pattern=HTTP_ADDRESS,
            is_advanced=True,
            parse=parse_server_address,
        ),
    ] = ""

    @property
    def location(self) -> str:
        """The abfss:// URI below which tables are made."""
        return _join(f"abfss://{self.container}@{self.account}.dfs.core.windows.net", self.prefix)


class HdfsStorage(Definition, frozen=True, tag_field=STORAGE_TYPE, tag=HDFS):
    """A directory of Hadoop's file system."""

    title: ClassVar[str] = "HDFS"
    description: ClassVar[str] = "A directory of Hadoop's file system. Its native client (libhdfs) must be installed."

    uri: Annotated[
        str,
        Setting(
            "URI",
            "The directory, such as hdfs://namenode:8020/lake.",
            pattern=HDFS_DIRECTORY,
            parse=parse_hdfs_directory,
        ),
    ]

    @property
    def location(self) -> str:
        """The hdfs:// URI below which tables are made."""
        return self.uri


class LocalFiles(Definition, frozen=True, tag_field=STORAGE_TYPE, tag=LOCAL_FILES):
    """A directory of this machine and of all others that use the tables."""

    title: ClassVar[str] = "Local Files"
    description: ClassVar[str] = "A directory with the same path on every machine that reads or writes the tables."

    directory: Annotated[
        Path,
        Setting(
            "Directory",
            "The directory. It is created if it does not exist.",
            min_length=1,
            parse=parse_directory,
        ),
    ]

    @property
    def location(self) -> str:
        """The file:// URI below which tables are made."""
        return f"file://{self.directory}"


Storage: TypeAlias = S3Storage | GoogleStorage | AzureStorage | HdfsStorage | LocalFiles


def _join(root: str, prefix: str) -> str:
    return f"{root}/{prefix}" if prefix else root
