"""One session on every pair of catalog and store that goes together: its rows are read back, and its secrets are
nowhere."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from fixtures.collection import NAMESPACE, PUBLISHED_AT, Collection, meta, published_at
from support.catalogs_and_stores import READ_BACK, on_page, without_slow
from support.engines import spark_catalogs
from support.engines import trino as trino_catalogs
from support.engines.readers import duckdb_rows, let_duckdb_read_from_google, polars_table
from support.engines.spark_sql import SparkSql, spark_sql
from support.engines.trino import Trino, trino_server
from support.jars import jars
from support.pages import freshness_queries
from support.rows.updating_source import UpdatingSource
from support.servers.azure import ACCOUNT, AzureStore
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.google import GoogleStore
from support.servers.hive import IN_ONE_WORKER, HiveVersion, Metastore, hive_metastore
from support.servers.postgres import Postgres
from support.servers.rest_catalog import (
    RestCatalogInCloud,
    RestCatalogOnS3,
    RestCatalogServer,
    rest_catalog_on_azure,
    rest_catalog_on_google,
)
from support.servers.s3_server import S3Server
from support.sessions.leftovers import Leftover, Watch, exposed
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

Json: TypeAlias = Any
Config: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True)
class Store:
    """Where data files are: what the config says of it, how a reader gets there, and what must not be seen."""

    config: Config
    reader: Mapping[str, str]
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    polars: Mapping[str, str] = field(default_factory=dict, repr=False)  # what it wants beside the reader's
    trino: Mapping[str, str] = field(default_factory=dict, repr=False)
    rest_server: str = ""  # the fixture of one that keeps tables' metadata there


def new_name() -> str:
    return f"lake_{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Lake:
    """A catalog with a store."""

    config: Config
    open_catalog: Callable[[], Catalog]
    spark: Mapping[str, str] = field(repr=False)  # properties of its catalog
    secrets: tuple[str, ...] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict)
    trino: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = field(default_factory=new_name)  # Spark's, and that of an SQL catalog


@pytest.fixture
def rest_on_google(google: GoogleStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogInCloud]:
    with rest_catalog_on_google(jars("rest-catalog"), tmp_path_factory.mktemp("rest-on-google"), google) as running:
        yield running


@pytest.fixture
def rest_on_azure(azure: AzureStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogInCloud]:
    with rest_catalog_on_azure(jars("rest-catalog"), tmp_path_factory.mktemp("rest-on-azure"), azure) as running:
        yield running


@pytest.fixture(scope="module")
def spark(spark_reader_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    everything = [*spark_reader_jars.glob("*.jar"), *spark_catalogs.cloud_jars(jars("rest-catalog"))]
    settings = {"spark.jars": ",".join(map(str, everything)), **spark_catalogs.SOME_AWS_KEYS}
    with spark_sql(spark_reader_jars, settings, tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino_server(tmp_path_factory.mktemp("trino")) as running:
        yield running


@pytest.fixture
def s3(s3_server: S3Server) -> Store:
    config = on_s3(s3_server, s3_server.new_bucket(), NAMESPACE, {})
    return Store(
        config,
        s3_server.file_properties(),
        spark_catalogs.on_s3(s3_server),
        (s3_server.root.secret_access_key,),
        rest_server="rest_on_s3",
        trino=trino_catalogs.on_s3(s3_server),
    )


@pytest.fixture
def gs(google: GoogleStore, duckdb_reader: duckdb.DuckDBPyConnection) -> Store:
    let_duckdb_read_from_google(duckdb_reader, google)
    key = google.service_account()
    place = {"storage_type": "Google Cloud Storage", "bucket": google.new_bucket(), "endpoint": google.uri}
    line_of_key = json.loads(key)["private_key"].splitlines()[1]
    secrets = (line_of_key, "planted-token-")
    return Store(
        {"storage": {**place, "service_account_json": key}},
        google.file_properties(),
        spark_catalogs.on_google(google),
        secrets,
        rest_server="rest_on_google",
    )


@pytest.fixture
def abfss(azure: AzureStore) -> Store:
    return on_azure(azure, "account_key", azure.key)


@pytest.fixture
def abfss_with_sas(azure: AzureStore) -> Store:
    return on_azure(azure, "sas_token", azure.sas_token())


def on_azure(azure: AzureStore, sign_in: str, secret: str) -> Store:
    signature = secret.rpartition("sig=")[2]  # of a SAS token; the rest of it is none
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": azure.new_container(), "endpoint": azure.uri}
    return Store(
        {"storage": {**place, sign_in: secret}},
        azure.file_properties(),
        spark_catalogs.on_azure(azure),
        (signature, unquote(signature)),
        azure.polars_properties(),
        rest_server="rest_on_azure",
    )


@pytest.fixture
def directory(tmp_path: Path) -> Store:
    config = {"storage": {"storage_type": "Local Files", "directory": str(tmp_path / "tables")}}
    return Store(config, {}, rest_server="rest_catalog")


def on_postgres(request: pytest.FixtureRequest, store: Store) -> Lake:
    postgres: Postgres = request.getfixturevalue("postgres")
    database, name = postgres.new_database(), new_name()
    catalog = {"catalog_type": "SQL", "uri": database, "password": postgres.password, "name": name}
    reader = {"uri": postgres.with_password(database), **store.reader}
    return Lake(
        {**store.config, "catalog": catalog},
        lambda: SqlCatalog(name, **reader),
        {**spark_catalogs.sql(postgres, database), **store.spark},
        (*store.secrets, postgres.password),
        name=name,
    )


def on_rest(request: pytest.FixtureRequest, store: Store) -> Lake:
    server: RestCatalogInCloud | RestCatalogOnS3 | RestCatalogServer = request.getfixturevalue(store.rest_server)
    secrets = ("planted-in-the-rest-sign-in", "planted-in-a-header")
    sign_in = {"credential": f"robot:{secrets[0]}"} if store.secrets else {"token": secrets[0]}
    catalog = {**rest(server.uri), **sign_in, "properties": {"header.X-Api-Key": secrets[1]}}
    return Lake(
        {**store.config, "catalog": catalog},
        lambda: RestCatalog("rest", uri=server.uri, **store.reader),
        {**spark_catalogs.rest(server.uri), **store.spark},
        (*store.secrets, *secrets),
        trino=trino_catalogs.rest(server.uri),
    )


def on_glue(request: pytest.FixtureRequest, store: Store) -> Lake:
    uri: str = request.getfixturevalue("glue_uri")
    keys = {"glue.endpoint": uri, "glue.region": "us-east-1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}
    return Lake(
        {**store.config, "catalog": glue()},
        lambda: GlueCatalog("glue", **keys, **store.reader),
        {**spark_catalogs.glue(uri), **store.spark},
        store.secrets,
        {"AWS_ENDPOINT_URL_GLUE": uri},
    )


def on_hive(request: pytest.FixtureRequest, store: Store) -> Lake:
    return make_hive_lake(request.getfixturevalue("metastore"), store)


def make_hive_lake(metastore: Metastore, store: Store) -> Lake:
    catalog = {"catalog_type": "Hive Metastore", "uri": metastore.uri}
    return Lake(
        {**store.config, "catalog": catalog},
        lambda: HiveCatalog("hive", uri=metastore.uri, **store.reader),
        {**spark_catalogs.hive(metastore.uri), **store.spark},
        store.secrets,
        trino=trino_catalogs.hive(metastore.uri),
    )


# Which Spark itself takes for none that is secret.
SECRET_SETTING: Final = "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"
SET_IN_SPARK: Final = "planted-in-a-spark-setting"
CATALOGS: Final = {"SQL": on_postgres, "Iceberg REST Server": on_rest, "AWS Glue": on_glue, "Hive Metastore": on_hive}
STORES: Final = {"Amazon S3": "s3", "Google Cloud Storage": "gs", "Azure": "abfss", "Local Files": "directory"}
SIGNED_IN_OTHERWISE: Final = {("Iceberg REST Server", "Azure"): "abfss_with_sas"}
# polars takes no other address than Google's beside a token, and DuckDB has no client of Azure's here.
READ_BY_DUCKDB: Final = ("Amazon S3", "Google Cloud Storage", "Local Files")
READ_BY_POLARS: Final = ("Amazon S3", "Azure", "Local Files")
READ_BY_TRINO: Final = [("Iceberg REST Server", "Amazon S3"), ("Hive Metastore", "Amazon S3")]
TRIED: Final = [
    *(("SQL", store) for store in STORES),
    *(("Iceberg REST Server", store) for store in STORES),
    ("AWS Glue", "Amazon S3"),
    # Hive's server makes each table's directory itself, with clients of its own for the stores.
    ("Hive Metastore", "Amazon S3"),
    ("Hive Metastore", "Local Files"),
]
# Each catalog and each store once. Iceberg's REST server on Amazon S3 has tests/catalogs/test_rest_and_s3.py, too.
IN_CI: Final = {
    ("SQL", "Google Cloud Storage"),
    ("Iceberg REST Server", "Azure"),
    ("AWS Glue", "Amazon S3"),
    ("Hive Metastore", "Local Files"),
}


def _pairs() -> Iterator[Any]:
    """In one worker: there Spark starts once for all of them."""
    for pair in TRIED:
        yield pytest.param(*pair, marks=[IN_ONE_WORKER] if pair in IN_CI else [IN_ONE_WORKER, pytest.mark.slow])


@pytest.mark.parametrize(("catalog", "store"), list(_pairs()))
def test_a_session_s_rows_are_read_back_and_none_of_its_secrets(
    catalog: str,
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    duckdb_on_s3: duckdb.DuckDBPyConnection,
    spark: SparkSql,
    record_property: Callable[[str, object], None],
) -> None:
    files: Store = request.getfixturevalue(SIGNED_IN_OTHERWISE.get((catalog, store), STORES[store]))
    lake = CATALOGS[catalog](request, files)
    watch, collection = Watch.over(tmp_path), replace(LEDGER, table=f"of_{tmp_path.name}")
    seen = session(lake, collection, watch)
    with lake.open_catalog() as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        notes = {
            "PyIceberg": table.scan().to_arrow().sort_by("id")["note"].to_pylist(),
            "Spark": read_by_spark(spark, lake, collection.table),
        }
        if store in READ_BY_DUCKDB:
            by_duckdb = duckdb_rows(duckdb_on_s3, table.metadata_location, order_by="id")
            notes["DuckDB"] = [row["note"] for row in by_duckdb]
        if store in READ_BY_POLARS:
            by_polars = polars_table(table.metadata_location, {**files.reader, **files.polars}).sort_by("id")
            notes["polars"] = by_polars["note"].to_pylist()
        seen.append(metadata(table))
    assert notes == {engine: ["visible", "staged"] for engine in notes}
    assert exposed(seen, (*lake.secrets, SET_IN_SPARK)) == []
    record_property(READ_BACK, (catalog, store, ", ".join(notes)))
    assert request.config.getoption("--tested") or without_slow(on_page()[catalog, store]) == ", ".join(notes)


# Trino's server takes half a minute to start, and a gigabyte to install: CI has no time for it.
@pytest.mark.slow
@pytest.mark.parametrize(("catalog", "store"), [pytest.param(*pair, marks=IN_ONE_WORKER) for pair in READ_BY_TRINO])
def test_trino_reads_what_a_session_wrote(
    catalog: str,
    store: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    trino: Trino,
    record_property: Callable[[str, object], None],
) -> None:
    files: Store = request.getfixturevalue(STORES[store])
    lake = CATALOGS[catalog](request, files)
    collection = replace(LEDGER, table=f"of_{tmp_path.name}")
    session(lake, collection, Watch.over(tmp_path))
    name = trino.add_catalog({**lake.trino, **files.trino})
    rows = trino.rows(f"SELECT id, note FROM {name}.{NAMESPACE}.{collection.table} ORDER BY id")
    assert rows == [[1, "visible"], [2, "staged"]]
    record_property(READ_BACK, (catalog, store, "Trino"))
    assert request.config.getoption("--tested") or "Trino" in on_page()[catalog, store].split(", ")


# Spark's and PyIceberg's clients cannot read from this version.
@pytest.mark.slow
@IN_ONE_WORKER
def test_trino_reads_what_a_session_wrote_to_hive_4(
    s3: Store, s3_server: S3Server, trino: Trino, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    collection = replace(LEDGER, table=f"of_{tmp_path.name}")
    with hive_metastore(tmp_path_factory.mktemp("hive"), s3_server, HiveVersion.FOUR) as metastore:
        lake = make_hive_lake(metastore, s3)
        session(lake, collection, Watch.over(tmp_path))
        name = trino.add_catalog({**lake.trino, **s3.trino})
        rows = trino.rows(f"SELECT id, note FROM {name}.{NAMESPACE}.{collection.table} ORDER BY id")
    assert rows == [[1, "visible"], [2, "staged"]]


@pytest.mark.slow
@pytest.mark.parametrize(("catalog", "store"), [pytest.param(*READ_BY_TRINO[0], marks=IN_ONE_WORKER)])
def test_trino_reads_one_row_for_each_key_of_an_updated_table(
    catalog: str, store: str, request: pytest.FixtureRequest, tmp_path: Path, trino: Trino
) -> None:
    files: Store = request.getfixturevalue(STORES[store])
    lake = CATALOGS[catalog](request, files)
    settings = {"delta_updates": False}
    collection = replace(LEDGER, fields=(*LEDGER.fields, PUBLISHED_AT), table=f"of_{tmp_path.name}", settings=settings)
    begin = datetime(2026, 11, 22, tzinfo=UTC)

    def make_document(key: Json, version: int) -> Json:
        return {"_meta": meta(begin + timedelta(seconds=version)), "id": key[0], "note": f"version {version}"}

    source = UpdatingSource(collection, make_document, Random(1), hard_delete=True)
    config = {"namespace": NAMESPACE, "upload_interval": "PT0S", "hard_delete": True, **lake.config}
    runtime = Runtime(tmp_path, [collection], config, lake.environment)
    runtime.apply()
    with runtime.open() as session:
        for _ in range(5):
            source.transact(session, [[key] for key in source.random.sample(range(100), 50)], deleted=0.2)
        assert session.finish().status == 0
    name = trino.add_catalog({**lake.trino, **files.trino})
    rows = trino.rows(f"SELECT id, note FROM {name}.{NAMESPACE}.{collection.table} ORDER BY id")
    assert rows == sorted([document["id"], document["note"]] for document in source.documents.values())
    newest, commits = (
        query.replace('lake.shop."orders$snapshots"', f'{name}.{NAMESPACE}."{collection.table}$snapshots"')
        for query in freshness_queries("Trino")
    )
    [[published, is_older]] = trino.rows(f"SELECT newest, age > INTERVAL '0' SECOND FROM ({newest})")
    expected = max(published_at(each["_meta"]["uuid"]) for each in source.documents.values())
    assert (datetime.fromisoformat(published), is_older) == (datetime.fromisoformat(expected), True)
    of_commits = trino.rows(f"SELECT upserted, last_published FROM ({commits})")
    assert len(of_commits) == 5
    assert max(last_published for _, last_published in of_commits) == published
    assert all(int(upserted) > 0 for upserted, _ in of_commits)


def session(lake: Lake, collection: Collection, watch: Watch) -> list[Leftover]:
    """Two transactions; what could be seen of them."""
    config = {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "advanced": {"spark": {**watch.spark_settings, SECRET_SETTING: SET_IN_SPARK}},
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
    return [*running, *watch.left(), ("state", json.dumps(runtime.log).encode())]


def read_by_spark(spark: SparkSql, lake: Lake, table: str) -> list[str]:
    """By the catalog, as Spark's users have it."""
    spark.add_catalog(lake.name, lake.spark)
    (rows,) = spark.rows(f"SELECT note FROM {lake.name}.{NAMESPACE}.{table} ORDER BY id")
    return [row["note"] for row in rows]


def metadata(table: Table) -> Leftover:
    with table.io.new_input(table.metadata_location).open() as stream:
        return "table metadata", stream.read()


def test_the_page_names_what_is_tried_here(request: pytest.FixtureRequest) -> None:
    assert request.config.getoption("--tested") or {
        pair for pair, cell in on_page().items() if "PyIceberg" in cell
    } == set(TRIED)
