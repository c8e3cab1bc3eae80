"""Tables in REST catalogs that are not Apache Iceberg's own server: Nessie and SeaweedFS."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from connector.checks.commit_probe import try_false_commits
from connector.checks.endpoint import Namespace, OpenedEndpoint
from connector.config.settings import parse
from connector.host.errors import FencedError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.perform_changes import add_first_snapshot
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from fixtures.collection import NAMESPACE, Collection, Field
from fixtures.conversation import Row
from protocol.flow import WHOLE_RANGE
from support.engines import spark_catalogs
from support.engines.spark_sql import SparkSql, spark_sql
from support.rows.staged_files import stage, stage_chain
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, fault_proxy, is_commit
from support.servers.nessie import PATH, nessie_server
from support.servers.s3_server import S3Server
from support.servers.seaweedfs import BUCKET, seaweedfs_server
from support.sessions.runtime import LEDGER, Runtime, Session
from support.tables.local_tables import ids_of

# 245 MB to install Nessie, and 50 MB for SeaweedFS.
pytestmark = [pytest.mark.catalog, pytest.mark.slow]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
LOST: Final = Fault(1, Answer.NONE)


@dataclass(frozen=True)
class Server:
    """A running server. `config` is the endpoint config for the address of the server, or of a proxy before it."""

    address: str
    s3: S3Server
    config: Callable[[str], Any]
    spark: Mapping[str, str] = field(repr=False)


@contextmanager
def start_nessie(directory: Path, s3: S3Server) -> Iterator[Server]:
    with nessie_server(directory, s3) as server:
        address = server.uri.removesuffix(PATH)
        yield Server(
            address,
            s3,
            lambda at: on_s3(s3, server.bucket, NAMESPACE, rest(f"{at}{PATH}")),
            spark_catalogs.rest(server.uri),
        )


@contextmanager
def start_seaweedfs(directory: Path, _: S3Server) -> Iterator[Server]:
    with seaweedfs_server(directory) as server:

        def config(at: str) -> Any:
            catalog = {**rest(at), "warehouse": f"s3://{BUCKET}", "credential": server.credential}
            whole = on_s3(server.s3, "", NAMESPACE, catalog)
            return {name: value for name, value in whole.items() if name not in ("bucket", "prefix")}

        spark = {**spark_catalogs.rest(server.uri), "warehouse": f"s3://{BUCKET}", "credential": server.credential}
        yield Server(server.uri, server.s3, config, spark)


Start = Callable[[Path, S3Server], AbstractContextManager[Server]]
SERVERS: Final[Mapping[str, Start]] = {"nessie": start_nessie, "seaweedfs": start_seaweedfs}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SERVERS])
def server(
    request: pytest.FixtureRequest, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param), s3_server) as running:
        yield running


@pytest.fixture
def catalog(server: Server) -> Iterator[Catalog]:
    """The server without the proxy."""
    with open_server(server, server.address) as opened:
        yield opened


@pytest.fixture
def path(catalog: Catalog, path: TableIdentifier) -> TableIdentifier:
    """A new table without rows, as apply makes it."""
    add_first_snapshot(catalog.load_table(path))
    return path


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.address) as running:
        yield running


@pytest.fixture
def spark(spark_reader_jars: Path, tmp_path: Path) -> Iterator[SparkSql]:
    with spark_sql(spark_reader_jars, {}, tmp_path) as running:
        yield running


def open_server(server: Server, address: str) -> Catalog:
    endpoint, _ = parse(server.config(address), [])
    return open_catalog(endpoint)


def finish(server: Server, proxy: FaultProxy, *staged: StagedCommit) -> None:
    with open_server(server, proxy.uri) as catalog:
        commit_all_or_raise(catalog, staged)


@pytest.mark.spark
@pytest.mark.parametrize("is_delta", [True, False], ids=["delta", "standard"])
def test_a_task_s_rows_are_read_back(
    is_delta: bool, server: Server, catalog: Catalog, spark: SparkSql, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table=f"orders_{uuid.uuid4().hex}", settings={"delta_updates": is_delta})
    runtime = Runtime(tmp_path, [collection], server.config(server.address))
    for number in 1, 2:
        with runtime.open(publish=True) as session:
            session.transaction({"id": number, "note": "one row"})
            session.transaction({"id": number + 10, "note": "another"})
            assert session.finish().status == 0
    path = TableIdentifier(NAMESPACE, collection.table)
    spark.add_catalog("other", {**server.spark, **spark_catalogs.on_s3(server.s3)})
    [rows] = spark.rows(f"SELECT id FROM other.{NAMESPACE}.{collection.table} ORDER BY id")
    assert [row["id"] for row in rows] == ids_of(catalog, path) == [1, 2, 11, 12]
    assert path in catalog.list_tables(NAMESPACE)


@pytest.mark.spark
def test_rows_are_replaced(server: Server, catalog: Catalog, tmp_path: Path) -> None:
    collection = replace(LEDGER, table=f"orders_{uuid.uuid4().hex}", settings={"delta_updates": False})
    runtime = Runtime(tmp_path, [collection], server.config(server.address))
    with runtime.open(publish=True) as session:
        for note in "first", "second", "third":
            update(session, {"id": 1, "note": note})
        assert session.finish().status == 0
    assert read_rows(catalog, collection, "id", "note") == [{"id": 1, "note": "third"}]


@pytest.mark.spark
def test_a_column_is_added(request: pytest.FixtureRequest, server: Server, catalog: Catalog, tmp_path: Path) -> None:
    if "nessie" in request.node.name:
        pytest.xfail("Nessie 0.99.0 demands a field that the specification no longer has")
    collection = replace(LEDGER, table=f"orders_{uuid.uuid4().hex}", settings={"delta_updates": False})
    runtime = Runtime(tmp_path, [collection], server.config(server.address))
    with runtime.open(publish=True) as session:
        update(session, {"id": 1, "note": "old"})
        assert session.finish().status == 0
    wider = replace(collection, fields=(*collection.fields, Field("quantity", "/quantity", ("integer",))))
    runtime.change([wider])
    with runtime.open(publish=True) as session:
        update(session, {"id": 1, "note": "new", "quantity": 7})
        assert session.finish().status == 0
    assert read_rows(catalog, collection, "id", "note", "quantity") == [{"id": 1, "note": "new", "quantity": 7}]


def update(session: Session, document: Any) -> None:
    """A transaction that loads the document's key, and stores the document."""
    session.load([document["id"]])
    exists = bool(session.flush())
    session.store_rows(Row(0, document, exists=exists))
    session.start_commit()
    session.acknowledge()


def read_rows(catalog: Catalog, collection: Collection, *columns: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        catalog.load_table((NAMESPACE, collection.table)).scan(selected_fields=columns).to_arrow().to_pylist()
    )
    return rows


def test_a_chain_whose_answer_is_lost_lands_once(
    server: Server, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    proxy.inject(is_commit, LOST)
    finish(server, proxy, *chain)
    assert proxy.fired == [LOST]
    finish(server, proxy, *(replace(staged, is_recovered=True) for staged in chain))
    assert ids_of(catalog, path) == [1, 2, 3]


@pytest.mark.parametrize("fault", [GENUINE, LOST], ids=["answered", "lost"])
def test_a_process_that_is_replaced_between_its_look_and_its_commit_is_refused(
    fault: Fault, server: Server, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    stale, successor = stage(catalog, path, WRITER, 1), stage(catalog, path, WRITER, 2)
    proxy.inject(is_commit, fault, before=lambda: commit_all_or_raise(catalog, [successor]))
    with pytest.raises(FencedError):
        finish(server, proxy, stale)
    assert ids_of(catalog, path) == [2]


def test_another_writer_s_commit_is_kept(
    server: Server, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    foreign = stage(catalog, path, replace(WRITER, materialization="acme/other"), 100)
    proxy.inject(is_commit, GENUINE, before=lambda: commit_all_or_raise(catalog, [foreign]))
    finish(server, proxy, stage(catalog, path, WRITER, 1))
    assert ids_of(catalog, path) == [1, 100]


def test_false_assertions_are_refused(server: Server) -> None:
    endpoint, _ = parse(server.config(server.address), [])
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        try_false_commits(Namespace(OpenedEndpoint(endpoint, catalog), NAMESPACE, exists=True))
        assert not [name for _, name in catalog.list_tables(NAMESPACE) if "probe" in name]
