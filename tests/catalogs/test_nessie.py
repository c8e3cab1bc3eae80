"""Tables in Nessie: a REST catalog that is not Apache Iceberg's own server."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.host.errors import FencedError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE
from support import spark_catalogs
from support.endpoint_configs import on_s3, rest
from support.fault_proxy import GENUINE, Answer, Fault, FaultProxy, fault_proxy, is_commit
from support.nessie import PATH, nessie_server
from support.rest_catalog import RestCatalogOnS3
from support.runtime import LEDGER, Runtime
from support.s3_server import S3Server
from support.spark_sql import SparkSql, spark_sql
from support.staged_files import stage
from support.tables import ids_of

# 245 MB to install.
pytestmark = [pytest.mark.catalog, pytest.mark.slow, pytest.mark.xdist_group("nessie")]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
LOST: Final = Fault(1, Answer.NONE)


@pytest.fixture(scope="module")
def nessie(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogOnS3]:
    with nessie_server(tmp_path_factory.mktemp("nessie"), s3_server) as server:
        yield server


@pytest.fixture
def catalog(nessie: RestCatalogOnS3) -> Iterator[Catalog]:
    """The server without the proxy."""
    with open_nessie(nessie, nessie.uri) as opened:
        yield opened


@pytest.fixture
def proxy(nessie: RestCatalogOnS3) -> Iterator[FaultProxy]:
    with fault_proxy(nessie.uri.removesuffix(PATH)) as running:
        yield running


@pytest.fixture
def spark(spark_reader_jars: Path, tmp_path: Path) -> Iterator[SparkSql]:
    with spark_sql(spark_reader_jars, {}, tmp_path) as running:
        yield running


def open_nessie(nessie: RestCatalogOnS3, uri: str) -> Catalog:
    endpoint, _ = parse(config_for(nessie, uri), [])
    return open_catalog(endpoint)


def config_for(nessie: RestCatalogOnS3, uri: str) -> Any:
    return on_s3(nessie.s3, nessie.bucket, NAMESPACE, rest(uri))


def finish(nessie: RestCatalogOnS3, proxy: FaultProxy, *staged: StagedCommit) -> None:
    with open_nessie(nessie, proxy.uri + PATH) as catalog:
        commit_all_or_raise(catalog, staged)


@pytest.mark.spark
@pytest.mark.parametrize("is_delta", [True, False], ids=["delta", "standard"])
def test_a_task_s_rows_are_read_back(
    is_delta: bool, nessie: RestCatalogOnS3, catalog: Catalog, spark: SparkSql, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table=f"orders_{uuid.uuid4().hex}", settings={"delta_updates": is_delta})
    runtime = Runtime(tmp_path, [collection], config_for(nessie, nessie.uri))
    for number in 1, 2:
        with runtime.open(publish=True) as session:
            session.transaction({"id": number, "note": "one row"})
            session.transaction({"id": number + 10, "note": "another"})
            assert session.finish().status == 0
    path = TableIdentifier(NAMESPACE, collection.table)
    spark.add_catalog("nessie", {**spark_catalogs.rest(nessie.uri), **spark_catalogs.on_s3(nessie.s3)})
    [rows] = spark.rows(f"SELECT id FROM nessie.{NAMESPACE}.{collection.table} ORDER BY id")
    assert [row["id"] for row in rows] == ids_of(catalog, path) == [1, 2, 11, 12]
    assert path in catalog.list_tables(NAMESPACE)


def test_a_chain_whose_answer_is_lost_lands_once(
    nessie: RestCatalogOnS3, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    first = stage(catalog, path, WRITER, 1, 2)
    chain = [first, stage(catalog, path, WRITER, 3, prev=first.next)]
    proxy.inject(is_commit, LOST)
    finish(nessie, proxy, *chain)
    assert proxy.fired == [LOST]
    finish(nessie, proxy, *(replace(staged, is_recovered=True) for staged in chain))
    assert ids_of(catalog, path) == [1, 2, 3]


@pytest.mark.parametrize("fault", [GENUINE, LOST], ids=["answered", "lost"])
def test_a_process_that_is_replaced_between_its_look_and_its_commit_is_refused(
    fault: Fault, nessie: RestCatalogOnS3, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    stale, successor = stage(catalog, path, WRITER, 1), stage(catalog, path, WRITER, 2)
    proxy.inject(is_commit, fault, before=lambda: commit_all_or_raise(catalog, [successor]))
    with pytest.raises(FencedError):
        finish(nessie, proxy, stale)
    assert ids_of(catalog, path) == [2]


def test_another_writer_s_commit_is_kept(
    nessie: RestCatalogOnS3, catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    foreign = stage(catalog, path, replace(WRITER, materialization="acme/other"), 100)
    proxy.inject(is_commit, GENUINE, before=lambda: commit_all_or_raise(catalog, [foreign]))
    finish(nessie, proxy, stage(catalog, path, WRITER, 1))
    assert ids_of(catalog, path) == [1, 100]
