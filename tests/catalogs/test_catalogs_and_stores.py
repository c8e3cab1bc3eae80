"""One session on every pair of catalog and store that goes together: its rows are read back, and its secrets are nowhere."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from fixtures.collection import NAMESPACE
from support.azure import ACCOUNT, AzureStore
from support.endpoint_configs import glue, on_s3, rest
from support.google import GoogleStore
from support.hive import IN_ONE_WORKER, Metastore
from support.jars import REPOSITORY, jars
from support.leftovers import Watch, exposed
from support.postgres import Postgres
from support.readers import duckdb_rows, polars_table
from support.rest_catalog import (
    RestCatalogInCloud,
    RestCatalogOnS3,
    RestCatalogServer,
    rest_catalog_on_azure,
    rest_catalog_on_google,
)
from support.runtime import LEDGER, Runtime
from support.s3_server import S3Server

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

Json: TypeAlias = Any
Config: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True)
class Store:
    """Where data files are: what the config says of it, how a reader gets there, and what must not be seen."""

    config: Config
    reader: Mapping[str, str]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    rest_server: str = ""  # the fixture of one that keeps tables' metadata there


@dataclass(frozen=True)
class Lake:
    """A catalog with a store."""

    config: Config
    open_catalog: Callable[[], Catalog]
    secrets: tuple[str, ...] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
def rest_on_google(google: GoogleStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogInCloud]:
    with rest_catalog_on_google(jars("rest-catalog"), tmp_path_factory.mktemp("rest-on-google"), google) as running:
        yield running


@pytest.fixture
def rest_on_azure(azure: AzureStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogInCloud]:
    with rest_catalog_on_azure(jars("rest-catalog"), tmp_path_factory.mktemp("rest-on-azure"), azure) as running:
        yield running


@pytest.fixture
def s3(s3_server: S3Server) -> Store:
    config = on_s3(s3_server, s3_server.new_bucket(), NAMESPACE, {})
    return Store(config, s3_server.file_properties(), (s3_server.root.secret_access_key,), "rest_on_s3")


@pytest.fixture
def gs(google: GoogleStore) -> Store:
    key = google.service_account()
    place = {"storage_type": "Google Cloud Storage", "bucket": google.new_bucket(), "endpoint": google.uri}
    line_of_key = json.loads(key)["private_key"].splitlines()[1]
    secrets = (line_of_key, "planted-token-")
    return Store(
        {"storage": {**place, "service_account_json": key}}, google.file_properties(), secrets, "rest_on_google"
    )


@pytest.fixture
def abfss(azure: AzureStore) -> Store:
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": azure.new_container(), "endpoint": azure.uri}
    return Store(
        {"storage": {**place, "account_key": azure.key}}, azure.file_properties(), (azure.key,), "rest_on_azure"
    )


@pytest.fixture
def directory(tmp_path: Path) -> Store:
    return Store(
        {"storage": {"storage_type": "Local Files", "directory": str(tmp_path / "tables")}}, {}, (), "rest_catalog"
    )


def on_postgres(request: pytest.FixtureRequest, store: Store) -> Lake:
    postgres: Postgres = request.getfixturevalue("postgres")
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    reader = {"uri": postgres.with_password(catalog["uri"]), **store.reader}
    return Lake(
        {**store.config, "catalog": catalog},
        lambda: SqlCatalog("iceberg", **reader),
        (*store.secrets, postgres.password),
    )


def on_rest(request: pytest.FixtureRequest, store: Store) -> Lake:
    server: RestCatalogInCloud | RestCatalogOnS3 | RestCatalogServer = request.getfixturevalue(store.rest_server)
    secret = "planted-in-the-rest-credential"
    return Lake(
        {**store.config, "catalog": {**rest(server.uri), "credential": f"robot:{secret}"}},
        lambda: RestCatalog("rest", uri=server.uri, **store.reader),
        (*store.secrets, secret),
    )


def on_glue(request: pytest.FixtureRequest, store: Store) -> Lake:
    uri: str = request.getfixturevalue("glue_uri")
    keys = {"glue.endpoint": uri, "glue.region": "us-east-1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}
    return Lake(
        {**store.config, "catalog": glue()},
        lambda: GlueCatalog("glue", **keys, **store.reader),
        store.secrets,
        {"AWS_ENDPOINT_URL_GLUE": uri},
    )


def on_hive(request: pytest.FixtureRequest, store: Store) -> Lake:
    metastore: Metastore = request.getfixturevalue("metastore")
    catalog = {"catalog_type": "Hive Metastore", "uri": metastore.uri}
    return Lake(
        {**store.config, "catalog": catalog},
        lambda: HiveCatalog("hive", uri=metastore.uri, **store.reader),
        store.secrets,
    )


CATALOGS: Final = {"SQL": on_postgres, "Iceberg REST Server": on_rest, "AWS Glue": on_glue, "Hive Metastore": on_hive}
STORES: Final = {"Amazon S3": "s3", "Google Cloud Storage": "gs", "Azure": "abfss", "Local Files": "directory"}
READ_BY_OTHERS: Final = ("Amazon S3", "Local Files")
TRIED: Final = [
    *(("SQL", store) for store in STORES),
    *(("Iceberg REST Server", store) for store in STORES),
    ("AWS Glue", "Amazon S3"),
    # Hive's server makes each table's directory itself, with clients of its own for the stores.
    ("Hive Metastore", "Amazon S3"),
    ("Hive Metastore", "Local Files"),
]


@pytest.mark.parametrize(
    ("catalog", "store"),
    [pytest.param(*pair, marks=IN_ONE_WORKER if pair[0] == "Hive Metastore" else ()) for pair in TRIED],
)
def test_a_session_s_rows_are_read_back_and_none_of_its_secrets(
    catalog: str,
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    duckdb_on_s3: duckdb.DuckDBPyConnection,
) -> None:
    files: Store = request.getfixturevalue(STORES[store])
    lake = CATALOGS[catalog](request, files)
    collection = replace(LEDGER, table=f"of_{tmp_path.name}")
    watch = Watch.over(tmp_path)
    config = {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "advanced": {"spark": watch.spark_settings},
        **lake.config,
    }
    runtime = Runtime(watch.work, [collection], config, {**lake.environment, **watch.environment})
    with runtime.start(publish=True) as session:
        session.opened()
        session.acknowledge()
        session.transaction({"id": 1, "note": "visible"})
        session.flush()
        session.store({"id": 2, "note": "staged"})
        session.start_commit()
        running = watch.seen()
        session.acknowledge()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    with lake.open_catalog() as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
        if store in READ_BY_OTHERS:
            by_duckdb = duckdb_rows(duckdb_on_s3, table.metadata_location, order_by="id")
            assert [row["note"] for row in by_duckdb] == ["visible", "staged"]
            by_polars = polars_table(table.metadata_location, files.reader).sort_by("id")
            assert by_polars.to_pylist() == by_duckdb
        left = [*watch.left(), ("state", json.dumps(runtime.log).encode()), metadata(table)]
    assert exposed([*running, *left], lake.secrets) == []


def metadata(table: Table) -> tuple[str, bytes]:
    with table.io.new_input(table.metadata_location).open() as stream:
        return "table metadata", stream.read()


def test_readme_names_what_is_tried_here() -> None:
    rows = [line.strip("| ").split(" | ") for line in (REPOSITORY / "README.md").read_text().splitlines()]
    header = next(row for row in rows if row[0] == "catalog \\ store")
    table = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows if row[0] in CATALOGS}
    assert {(catalog, store) for catalog in table for store in STORES if table[catalog][store] == "✓"} == set(TRIED)
