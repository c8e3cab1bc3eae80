"""An endpoint config's store for data files: where new tables go, and which FileIO properties open it."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyiceberg.io import (
    ADLS_ACCOUNT_KEY,
    ADLS_ACCOUNT_NAME,
    ADLS_BLOB_STORAGE_AUTHORITY,
    ADLS_BLOB_STORAGE_SCHEME,
    ADLS_CLIENT_ID,
    ADLS_CLIENT_SECRET,
    ADLS_DFS_STORAGE_AUTHORITY,
    ADLS_DFS_STORAGE_SCHEME,
    ADLS_SAS_TOKEN,
    ADLS_TENANT_ID,
    GCS_SERVICE_HOST,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_FORCE_VIRTUAL_ADDRESSING,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
)

from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.storage import AzureStorage, GoogleStorage, HdfsStorage, LocalFiles, Storage
from connector.storage.file_access import DEFAULT_REGION, FileCredentials, file_properties

if TYPE_CHECKING:
    from connector.storage.aws_credentials import FreshAwsCredentials

S3_TIME_LIMITS: Final = {S3_CONNECT_TIMEOUT: "10", S3_REQUEST_TIMEOUT: "60"}  # seconds; the library's own are 1 and 3


def root(config: EndpointConfig) -> str | None:
    """Where new tables go; None leaves it to the catalog. The Local catalog has a directory of its own."""
    if config.storage:
        return config.storage.location
    if not config.bucket or isinstance(config.catalog, S3TablesCatalog):
        return None
    return "/".join(filter(None, (f"s3://{config.bucket}", config.prefix)))


def data_file_properties(config: EndpointConfig) -> dict[str, str]:
    """The FileIO properties that the config has, with keys that are valid now."""
    return file_properties(file_addresses(config), file_credentials(config, aws_credentials_of(config))())


def file_addresses(config: EndpointConfig) -> dict[str, str]:
    """The same without keys."""
    if config.storage:
        return file_properties(_addresses(config.storage))
    region = config.region
    further: Mapping[str, str] = {}
    match config.catalog:
        case LocalCatalog():
            return file_properties()
        case S3TablesCatalog() as catalog:
            region = catalog.region
        case RestCatalog() | GlueCatalog() | HiveCatalog() as catalog:
            further = dict(catalog.properties)
    properties: dict[str, str] = dict(S3_TIME_LIMITS)
    if region:
        properties[S3_REGION] = region
    if config.s3_endpoint:
        # Stores other than Amazon's rarely have a host name for each bucket.
        properties |= {S3_ENDPOINT: config.s3_endpoint, S3_FORCE_VIRTUAL_ADDRESSING: "false"}
    return file_properties(properties, further)


def _addresses(storage: Storage) -> dict[str, str]:
    match storage:
        case GoogleStorage():
            return {GCS_SERVICE_HOST: storage.endpoint} if storage.endpoint else {}
        case AzureStorage():
            properties = {ADLS_ACCOUNT_NAME: storage.account}
            if storage.endpoint:
                url = urlsplit(storage.endpoint)
                properties |= dict.fromkeys((ADLS_BLOB_STORAGE_AUTHORITY, ADLS_DFS_STORAGE_AUTHORITY), url.netloc)
                properties |= dict.fromkeys((ADLS_BLOB_STORAGE_SCHEME, ADLS_DFS_STORAGE_SCHEME), url.scheme)
            return properties
        case HdfsStorage() | LocalFiles():
            return {}


def file_credentials(config: EndpointConfig, aws: "FreshAwsCredentials | None") -> FileCredentials:
    """The store's keys; `aws` are those that sign in to the catalog, and to S3 if the files are there."""
    # Each store's client is imported when it is needed.
    match config.storage:
        case GoogleStorage() as storage:
            return _google_credentials(storage, uses_machine_credentials=config.allows_machine_credentials)
        case AzureStorage() as storage:
            return partial(_azure_credentials, storage)
    if aws is None:
        return dict
    from connector.storage.aws_credentials import file_credentials

    return partial(file_credentials, aws)


def _azure_credentials(storage: AzureStorage) -> dict[str, str]:
    if key := storage.account_key:
        return {ADLS_ACCOUNT_KEY: key.reveal()}
    if token := storage.sas_token:
        return {ADLS_SAS_TOKEN: token.reveal()}
    if secret := storage.client_secret:
        application = {ADLS_TENANT_ID: storage.tenant_id, ADLS_CLIENT_ID: storage.client_id}
        return {**application, ADLS_CLIENT_SECRET: secret.reveal()}
    return {}


def _google_credentials(storage: GoogleStorage, *, uses_machine_credentials: bool) -> FileCredentials:
    if not storage.service_account and not uses_machine_credentials:
        return dict
    from connector.storage.google_credentials import file_credentials, google_tokens

    return partial(file_credentials, google_tokens(storage.service_account))


def aws_credentials_of(config: EndpointConfig) -> "FreshAwsCredentials | None":
    if config.credentials is None or isinstance(config.catalog, LocalCatalog):
        return None
    from connector.storage.aws_credentials import open_aws_credentials

    region = config.catalog.region if isinstance(config.catalog, S3TablesCatalog) else config.region
    return open_aws_credentials(config.credentials, region or DEFAULT_REGION)
