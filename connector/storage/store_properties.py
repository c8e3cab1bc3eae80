"""The store for data files in an endpoint config: where new tables go, and which FileIO properties open it."""

import os
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

from connector.config.catalog import (
    Catalog,
    GlueCatalog,
    HiveCatalog,
    LocalCatalog,
    RestCatalog,
    S3TablesCatalog,
    SqlCatalog,
)
from connector.config.credentials import AwsCredentials, AwsIam, AwsRole, Credentials
from connector.config.endpoint_config import EndpointConfig
from connector.config.storage import AzureStorage, GoogleStorage, HdfsStorage, LocalFiles, S3Storage
from connector.storage.file_access import (
    ADLS_MACHINE_CREDENTIALS,
    AZURE_TOKEN_FILE,
    DEFAULT_REGION,
    FileCredentials,
    file_properties,
)
from connector.storage.s3_environment import find_endpoint
from connector.storage.store_kinds import NAMED_STORE, store_of

if TYPE_CHECKING:
    from connector.storage.aws_credentials import FreshAwsCredentials

S3_TIME_LIMITS: Final = {S3_CONNECT_TIMEOUT: "10", S3_REQUEST_TIMEOUT: "60"}  # seconds; PyArrow's defaults are 1 and 3


def find_root(config: EndpointConfig) -> str | None:
    """Return the location of new tables, or None if the catalog chooses it. Not for the Local catalog, which has a
    directory."""
    if config.storage:
        return config.storage.location
    if not config.bucket or isinstance(config.catalog, S3TablesCatalog):
        return None
    return "/".join(filter(None, (f"s3://{config.bucket}", config.prefix)))


def data_file_properties(config: EndpointConfig) -> dict[str, str]:
    """Return the FileIO properties of the config, with credentials that are valid now."""
    return file_properties(find_file_addresses(config), choose_file_credentials(config, find_aws_credentials(config))())


def find_file_addresses(config: EndpointConfig) -> dict[str, str]:
    """Return the properties of a catalog that say where files are: the FileIO properties of the config without
    credentials, and the kind of store that it names."""
    root = None if isinstance(config.catalog, LocalCatalog) else find_root(config)
    return _find_addresses(config) | ({NAMED_STORE: store_of(root)[0]} if root else {})


def _find_addresses(config: EndpointConfig) -> dict[str, str]:
    match config.storage, config.catalog:
        case S3Storage() as storage, catalog:
            return _s3_addresses(storage.region, storage.endpoint, catalog)
        case None, LocalCatalog():
            return file_properties()
        case None, S3TablesCatalog() as catalog:
            return _s3_addresses(catalog.region, config.s3_endpoint, catalog)
        case None, catalog:
            return _s3_addresses(config.region, config.s3_endpoint, catalog)
        case storage, _:
            return file_properties(_addresses(storage))


def _s3_addresses(region: str, endpoint: str, catalog: Catalog) -> dict[str, str]:
    properties: dict[str, str] = dict(S3_TIME_LIMITS)
    if region:
        properties[S3_REGION] = region
    if endpoint := endpoint or find_endpoint():
        # Stores other than Amazon's seldom have a host name for each bucket.
        properties |= {S3_ENDPOINT: endpoint, S3_FORCE_VIRTUAL_ADDRESSING: "false"}
    match catalog:
        case RestCatalog() | GlueCatalog() | HiveCatalog():
            return file_properties(properties, catalog.properties)
        case S3TablesCatalog() | SqlCatalog() | LocalCatalog():
            return file_properties(properties)


def _addresses(storage: GoogleStorage | AzureStorage | HdfsStorage | LocalFiles) -> dict[str, str]:
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


def choose_file_credentials(config: EndpointConfig, aws: "FreshAwsCredentials | None") -> FileCredentials:
    """Return what reads the store's credentials. `aws` are those of the catalog: a bucket may have none of its own."""
    # A store's client is imported only if it is needed.
    match config.storage:
        case S3Storage(credentials=AwsCredentials() | AwsRole() as own) as storage:
            aws = _open_aws_credentials(own, storage.region, "/storage")
        case GoogleStorage() as storage:
            return _google_credentials(storage, uses_machine_credentials=config.allows_machine_credentials)
        case AzureStorage() as storage:
            return partial(_azure_credentials, storage, uses_machine_credentials=config.allows_machine_credentials)
    if aws is None:
        return dict
    from connector.storage.aws_credentials import read_file_credentials

    return partial(read_file_credentials, aws)


def has_bucket_keys(config: EndpointConfig) -> bool:
    """Whether the config names a bucket of S3 and its region, and has an access key for it. The keys of a role do not
    count: roles often have access to a catalog that vends other keys."""
    match config.storage:
        case S3Storage() as storage:
            return isinstance(storage.credentials or config.credentials, AwsCredentials)
        case None:
            return bool(config.bucket and config.region) and isinstance(config.credentials, AwsCredentials)
    return False


def _azure_credentials(storage: AzureStorage, *, uses_machine_credentials: bool) -> dict[str, str]:
    if key := storage.account_key:
        return {ADLS_ACCOUNT_KEY: key.reveal()}
    if token := storage.sas_token:
        return {ADLS_SAS_TOKEN: token.reveal()}
    if secret := storage.client_secret:
        application = {ADLS_TENANT_ID: storage.tenant_id, ADLS_CLIENT_ID: storage.client_id}
        return {**application, ADLS_CLIENT_SECRET: secret.reveal()}
    return {ADLS_MACHINE_CREDENTIALS: os.environ.get(AZURE_TOKEN_FILE, "")} if uses_machine_credentials else {}


def _google_credentials(storage: GoogleStorage, *, uses_machine_credentials: bool) -> FileCredentials:
    if not storage.service_account and not uses_machine_credentials:
        return dict
    from connector.storage.google_credentials import CLOUD_STORAGE, open_google_tokens, read_file_credentials

    return partial(read_file_credentials, open_google_tokens(CLOUD_STORAGE, storage.service_account))


def find_aws_credentials(config: EndpointConfig) -> "FreshAwsCredentials | None":
    """Return the AWS credentials of the config, if it uses any."""
    if config.credentials is None or isinstance(config.catalog, LocalCatalog):
        return None
    region = config.catalog.region if isinstance(config.catalog, S3TablesCatalog) else config.region
    return _open_aws_credentials(config.credentials, region)


def _open_aws_credentials(credentials: Credentials, region: str, of: str = "") -> "FreshAwsCredentials":
    match credentials:
        case AwsCredentials() | AwsIam() as given:
            from connector.storage.aws_credentials import keep_given_credentials

            return keep_given_credentials(given)
        case obtained:
            from connector.storage.aws_sessions import obtain_credentials  # imports boto3

            return obtain_credentials(obtained, region or DEFAULT_REGION, of)
