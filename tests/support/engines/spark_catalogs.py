"""How Spark, with Iceberg's own runtime, gets to tables: the properties of its catalogs and of their stores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyiceberg.io import GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS

from support.servers.azure import ACCOUNT, AzureStore
from support.servers.google import GoogleStore
from support.servers.postgres import USER, Postgres
from support.servers.s3_server import S3Server

NOWHERE: Final = "s3://nowhere"  # what reads only has no warehouse
# Of the REST catalog server's jars, what reads from Google's and Azure's stores.
OF_CLOUDS: Final = ("iceberg-gcp-bundle-*", "azure-*", "reactor-*", "reactive-streams-*", "msal4j*", "netty-*")


# Glue's stand-in takes any signature, but there must be one: by it the services are told apart.
SOME_AWS_KEYS: Final = {"spark.driver.extraJavaOptions": "-Daws.accessKeyId=a -Daws.secretAccessKey=b"}


def cloud_jars(rest_catalog: Path) -> list[Path]:
    return [jar for pattern in OF_CLOUDS for jar in rest_catalog.glob(f"{pattern}.jar")]


def on_s3(s3: S3Server) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": s3.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": s3.root.access_key_id,
        "s3.secret-access-key": s3.root.secret_access_key,
        "client.region": s3.region,
    }


def on_google(google: GoogleStore) -> dict[str, str]:
    signed_in = google.file_properties()
    return {
        "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "gcs.service.host": google.uri,
        "gcs.project-id": "lake",
        "gcs.oauth2.token": signed_in[GCS_TOKEN],
        "gcs.oauth2.token-expires-at": signed_in[GCS_TOKEN_EXPIRES_AT_MS],
    }


def on_azure(azure: AzureStore) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        f"adls.connection-string.{ACCOUNT}.dfs.core.windows.net": f"{azure.uri}/{ACCOUNT}",
        "adls.auth.shared-key.account.name": ACCOUNT,
        "adls.auth.shared-key.account.key": azure.key,
    }


def sql(postgres: Postgres, database: str) -> dict[str, str]:
    address = database.replace(f"{USER}@", "")  # Java's driver takes the user as a property
    return {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:{address}",
        "jdbc.user": USER,
        "jdbc.password": postgres.password,
        "jdbc.schema-version": "V1",
        "warehouse": NOWHERE,
    }


def rest(uri: str) -> dict[str, str]:
    return {"type": "rest", "uri": uri}


def glue(uri: str) -> dict[str, str]:
    return {
        "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "glue.endpoint": uri,
        "warehouse": NOWHERE,
    }


def hive(uri: str) -> dict[str, str]:
    return {"type": "hive", "uri": uri}


def sqlite(directory: Path, database: str) -> dict[str, str]:
    return {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{directory}/{database}",
        "warehouse": str(directory),
        "jdbc.schema-version": "V1",
    }


def settings(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark's, for a catalog of this name."""
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{key}": value for key, value in properties.items()},
    }
