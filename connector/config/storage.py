"""The stores for data files other than Amazon S3, as a config names them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from connector.config import storage_schemas
from connector.config.secret import Secret
from connector.config.values import object_prefix, secret, warehouse_directory
from protocol.flow import Json


@dataclass(frozen=True)
class GoogleStorage:
    """A bucket of Google Cloud Storage. Without a sign-in of its own, the catalog hands out tokens."""

    bucket: str
    prefix: str = ""
    service_account: Secret | None = None
    uses_machine_credentials: bool = False
    endpoint: str = ""

    @property
    def location(self) -> str:
        return _join(f"gs://{self.bucket}", self.prefix)


@dataclass(frozen=True)
class AccountKey:
    """Opens everything in a storage account."""

    value: Secret


@dataclass(frozen=True)
class SasToken:
    """A shared access signature."""

    value: Secret


@dataclass(frozen=True)
class ClientSecret:
    """Signs in as an application."""

    tenant_id: str
    client_id: str
    value: Secret


AzureSignIn: TypeAlias = AccountKey | SasToken | ClientSecret


@dataclass(frozen=True)
class AzureStorage:
    """A container of a storage account. Without a sign-in of its own, the catalog hands out SAS tokens."""

    account: str
    container: str
    prefix: str = ""
    sign_in: AzureSignIn | None = None
    endpoint: str = ""

    @property
    def location(self) -> str:
        return _join(f"abfss://{self.container}@{self.account}.dfs.core.windows.net", self.prefix)


@dataclass(frozen=True)
class HdfsStorage:
    """A directory of Hadoop's file system."""

    uri: str

    @property
    def location(self) -> str:
        return self.uri


@dataclass(frozen=True)
class LocalFiles:
    """A directory of this machine, and of all others that use the tables."""

    directory: Path

    @property
    def location(self) -> str:
        return f"file://{self.directory}"


Storage: TypeAlias = GoogleStorage | AzureStorage | HdfsStorage | LocalFiles


def parse(storage: Json, *, allows_machine_credentials: bool) -> Storage:
    """Where the config names no sign-in, the machine's own is used if that is allowed."""
    prefix, endpoint = object_prefix(storage.get("prefix", "")), storage.get("endpoint", "").rstrip("/")
    match storage["storage_type"]:
        case storage_schemas.GOOGLE:
            key = secret(storage, "service_account_json")
            return GoogleStorage(storage["bucket"], prefix, key, allows_machine_credentials and not key, endpoint)
        case storage_schemas.HDFS:
            return HdfsStorage(storage["uri"].rstrip("/"))
        case storage_schemas.LOCAL_FILES:
            return LocalFiles(warehouse_directory(storage["directory"]))
        case _:
            return AzureStorage(storage["account"], storage["container"], prefix, _azure_sign_in(storage), endpoint)


def _azure_sign_in(storage: Json) -> AzureSignIn | None:
    if key := secret(storage, "account_key"):
        return AccountKey(key)
    if token := secret(storage, "sas_token"):
        return SasToken(token)
    if client_secret := secret(storage, "client_secret"):
        return ClientSecret(storage["tenant_id"], storage["client_id"], client_secret)
    return None


def _join(root: str, prefix: str) -> str:
    return f"{root}/{prefix}" if prefix else root
