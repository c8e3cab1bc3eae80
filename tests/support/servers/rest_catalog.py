"""Apache Iceberg's own REST catalog server in a JVM of its own, over a JDBC catalog in SQLite."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import GCS_TOKEN

from connector.spark.jvm.java import find_java
from support.servers.azure import ACCOUNT, AzureStore
from support.servers.google import GoogleStore
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address, running

JAVA_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class RestCatalogServer:
    """A running server, and the directory that its tables are in."""

    uri: str
    warehouse: Path


@dataclass(frozen=True)
class RestCatalogOnS3:
    """A running server that keeps its tables' metadata in a bucket."""

    uri: str
    s3: S3Server
    bucket: str

    def client(self) -> RestCatalog:
        """PyIceberg's, with keys that may do anything."""
        files = {
            "s3.endpoint": self.s3.endpoint,
            "s3.region": self.s3.region,
            "s3.access-key-id": self.s3.root.access_key_id,
            "s3.secret-access-key": self.s3.root.secret_access_key,
        }
        return RestCatalog("rest", uri=self.uri, **files)


@dataclass(frozen=True)
class RestCatalogInCloud:
    """A running server that keeps its tables' metadata in Google's store or in Azure's."""

    uri: str


@contextmanager
def rest_catalog_server(jars: Path, directory: Path) -> Iterator[RestCatalogServer]:
    warehouse = directory / "warehouse"
    warehouse.mkdir(parents=True)
    with _serving(jars, directory, {"CATALOG_WAREHOUSE": f"file://{warehouse}"}) as uri:
        yield RestCatalogServer(uri, warehouse)


@contextmanager
def rest_catalog_on_s3(jars: Path, directory: Path, s3: S3Server) -> Iterator[RestCatalogOnS3]:
    bucket = s3.new_bucket()
    settings = {
        "CATALOG_WAREHOUSE": f"s3://{bucket}/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_S3_ACCESS__KEY__ID": s3.root.access_key_id,
        "CATALOG_S3_SECRET__ACCESS__KEY": s3.root.secret_access_key,
        "CATALOG_CLIENT_REGION": s3.region,
    }
    with _serving(jars, directory, settings) as uri:
        yield RestCatalogOnS3(uri, s3, bucket)


@contextmanager
def rest_catalog_on_google(jars: Path, directory: Path, google: GoogleStore) -> Iterator[RestCatalogInCloud]:
    settings = {
        "CATALOG_WAREHOUSE": f"gs://{google.new_bucket()}/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "CATALOG_GCS_SERVICE_HOST": google.uri,
        "CATALOG_GCS_PROJECT__ID": "lake",
        "CATALOG_GCS_OAUTH2_TOKEN": google.file_properties()[GCS_TOKEN],
    }
    with _serving(jars, directory, settings) as uri:
        yield RestCatalogInCloud(uri)


@contextmanager
def rest_catalog_on_azure(jars: Path, directory: Path, azure: AzureStore) -> Iterator[RestCatalogInCloud]:
    settings = {
        "CATALOG_WAREHOUSE": f"abfss://{azure.new_container()}@{ACCOUNT}.dfs.core.windows.net/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        f"CATALOG_ADLS_CONNECTION__STRING_{ACCOUNT.upper()}_DFS_CORE_WINDOWS_NET": f"{azure.uri}/{ACCOUNT}",
        "CATALOG_ADLS_AUTH_SHARED__KEY_ACCOUNT_NAME": ACCOUNT,
        "CATALOG_ADLS_AUTH_SHARED__KEY_ACCOUNT_KEY": azure.key,
    }
    with _serving(jars, directory, settings) as uri:
        yield RestCatalogInCloud(uri)


@contextmanager
def _serving(jars: Path, directory: Path, settings: Mapping[str, str]) -> Iterator[str]:
    address = free_address()
    # CATALOG_X__Y_Z is the catalog's property x-y.z.
    environment = {
        "CATALOG_REST_PORT": address.rpartition(":")[2],
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        **settings,
    }
    command = [str(find_java()), *JAVA_OPTIONS, "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    with running(command, environment, f"http://{address}/v1/config", directory / "server.log"):
        yield f"http://{address}"
