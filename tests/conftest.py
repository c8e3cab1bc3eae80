"""What tests of several packages share: real servers, other engines, and the list of what was left out."""

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, settings
from pyiceberg.catalog import Catalog
from xdist.workermanage import WorkerController

from connector.host.garbage import pause_garbage_collection
from connector.host.processes import NOT_INHERITED
from simulation.found_seeds import OTHER_SEED
from support import lanes
from support.catalogs_and_stores import ReadBackReport
from support.consistency_report import ConsistencyReport
from support.engines.readers import duckdb_connection, let_duckdb_read
from support.engines.spark_sql import IN_ITS_WORKER, MetadataFiles, SparkSql, spark_sql
from support.jars import jars
from support.planned_patch import PlannedPatch
from support.plans import checked_plans, forget_plans
from support.servers.azure import AzureStore, azure_store, azurite
from support.servers.fault_proxy import FaultProxy, fault_proxy
from support.servers.glue_server import glue_server, moto_python
from support.servers.google import GoogleStore, fake_gcs_server, google_store
from support.servers.hive import Metastore, hive_metastore
from support.servers.postgres import Postgres, postgres_programs, postgres_server
from support.servers.rest_catalog import RestCatalogOnS3, RestCatalogServer, rest_catalog_on_s3, rest_catalog_server
from support.servers.s3_server import S3Server, versitygw, versitygw_server
from support.sessions.containers import Image, built_image
from support.tables.local_tables import local_catalog

pytest.register_assert_rewrite("support.snapshots")

# How long an example takes depends on the machine, and tests assert no times. No database: each run is as the first.
settings.register_profile(
    "any machine", settings.default, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    lanes.add_options(parser)
    parser.addoption("--tested", action="store_true", help="write the table of catalogs and stores of docs/tested.md")
    parser.addoption("--consistency", type=Path, metavar="FILE", help="write what the crash scenarios have measured")


def pytest_configure(config: pytest.Config) -> None:
    lanes.check_options(config)
    if (file := config.getoption("--consistency")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ConsistencyReport(file))
    if config.getoption("--tested") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ReadBackReport())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The modules and tests stay to the end: each garbage collection would look through all of them for nothing."""
    with pause_garbage_collection():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    forget_plans()
    forget_own_variables()


def forget_own_variables() -> None:
    """What this process has set for itself in an earlier test or in a fixture is no user's choice."""
    for name in NOT_INHERITED:
        os.environ.pop(name, None)
    NOT_INHERITED.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    forget_own_variables()
    with checked_plans():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[LEFT_OUT] = lanes.select(config, items)
    for item in items:
        if "spark_reader" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("xdist_group"):
            item.add_marker(IN_ITS_WORKER)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A group of tests shares what it starts: it is only worth its name if pytest-xdist sees it."""
    if session.config.getoption("loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid for item in grouped), "pytest-xdist does not see the groups of tests"


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A process of pytest-xdist tells the one that started it; all of them select the same tests.
    if isinstance(output := getattr(session.config, "workeroutput", None), dict):
        left_out = session.config.stash[LEFT_OUT]
        output["left_out"] = dict(left_out)


def pytest_testnodedown(node: WorkerController) -> None:
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Nothing is left out silently, and no long search is repeated silently."""
    skipped = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])]
    if left_out := lanes.lines(config.stash.get(LEFT_OUT, Counter()), skipped):
        terminalreporter.section("left out")
        terminalreporter.write_line("\n".join(left_out))
    properties = [each for report in terminalreporter.stats.get("passed", []) for each in report.user_properties]
    if other_seeds := [f"{value} ({what})" for what, value in properties if what == OTHER_SEED]:
        terminalreporter.section("run tests/simulation -k planted --record-seeds")
        terminalreporter.write_line("\n".join(other_seeds))


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """A fault that is put in place of a function is met, or the test fails."""
    with PlannedPatch.context() as patch:
        yield patch


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A Local catalog in the directory of one test."""
    return local_catalog(tmp_path)


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog server for all tests: each takes a namespace of its own."""
    with rest_catalog_server(jars("rest-catalog"), tmp_path_factory.mktemp("rest-catalog")) as server:
        yield server


@pytest.fixture
def proxy(rest_catalog: RestCatalogServer) -> Iterator[FaultProxy]:
    """A proxy in front of this server for one test."""
    with fault_proxy(rest_catalog.uri) as running:
        yield running


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server for all tests: each takes a bucket or a prefix of its own."""
    with versitygw_server(versitygw(), tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """A bucket on this S3 server for the tests of one module."""
    return s3_server.new_bucket()


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleStore]:
    """Google Cloud Storage's stand-in for all tests: each takes a bucket of its own."""
    with google_store(fake_gcs_server(), tmp_path_factory.mktemp("google")) as store:
        yield store


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStore]:
    """Azure's stand-in for all tests: each takes a container of its own."""
    with azure_store(azurite(), tmp_path_factory.mktemp("azure")) as store:
        yield store


@pytest.fixture(scope="session")
def rest_on_s3(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogOnS3]:
    """A REST catalog server with a bucket for all tests: each takes a namespace of its own."""
    with rest_catalog_on_s3(jars("rest-catalog"), tmp_path_factory.mktemp("rest-on-s3"), s3_server) as server:
        yield server


@pytest.fixture(scope="session")
def metastore(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """A Hive metastore for all tests: each takes a database of its own."""
    with hive_metastore(tmp_path_factory.mktemp("hive"), s3_server) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL server for all tests: each takes a database, a catalog or tables of its own."""
    with postgres_server(postgres_programs(), tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def glue_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """AWS Glue's stand-in for all tests: each takes a database of its own."""
    with glue_server(moto_python(), tmp_path_factory.mktemp("glue")) as uri:
        yield uri


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    """The container image of this working copy."""
    with built_image() as image:
        yield image


@pytest.fixture(scope="session")
def spark_reader_jars() -> Path:
    """What `support.engines.spark_sql` needs."""
    return jars("spark-reader")


@pytest.fixture(scope="session")
def spark_reader(spark_reader_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    """Spark with Iceberg's own runtime for all tests: each takes a session of its own, or tables of `spark_files`.

    It starts while the first test that wants it goes on.
    """
    with spark_sql(spark_reader_jars, {}, tmp_path_factory.mktemp("spark-reader")) as spark:
        yield spark


@pytest.fixture(scope="session")
def spark_files(spark_reader: SparkSql, tmp_path_factory: pytest.TempPathFactory) -> MetadataFiles:
    """The same for tables on a disk that it knows by their metadata files alone."""
    return MetadataFiles(spark_reader, "files", tmp_path_factory.mktemp("spark-files"), None)


@pytest.fixture(scope="session")
def duckdb_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Iceberg extension."""
    with duckdb_connection(tmp_path_factory.mktemp("duckdb-extensions")) as connection:
        yield connection


@pytest.fixture
def duckdb_on_s3(s3_server: S3Server, duckdb_reader: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The same, with keys for the S3 server."""
    let_duckdb_read(duckdb_reader, s3_server)
    return duckdb_reader
