"""A session whose Spark tasks run on other machines writes what it would have written on its own."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import duckdb
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from connector.iceberg.maintenance.background_compaction import COMMITS
from fixtures.collection import NAMESPACE, encode
from fixtures.conversation import CONFIG
from support.engines.canonical_rows import read_by_pyiceberg
from support.engines.readers import ledger_table, readers_catalog
from support.engines.spark_cluster import EXECUTOR, PYTHON_WORKER, SparkCluster, spark_cluster
from support.repository import REPOSITORY
from support.rows.conversations import Conversation
from support.rows.expected_rows import expected_tables
from support.rows.updating_source import UpdatingSource, encode_key
from support.servers.endpoint_configs import on_s3, rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.sessions.connector_process import run_conversation
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text
from support.tables.compacting import EAGER

pytestmark = [pytest.mark.spark, pytest.mark.catalog, pytest.mark.xdist_group("spark_cluster")]

Json: TypeAlias = Any

ORDERS: Final = (REPOSITORY / "fixtures" / "conversations" / "orders.jsonl").read_bytes().splitlines(keepends=True)
MORE_THAN_A_BLOCK: Final = 40  # documents of a megabyte each
MACHINE: Final = ""  # the worker and whatever it has started


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers for all tests. The last one kills a worker."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def on(cluster: SparkCluster, endpoint: Mapping[str, Json], **spark: str) -> Json:
    return {**endpoint, "advanced": {"spark": cluster.settings(**spark)}}


@pytest.mark.slow  # rows get into their tables as in the next test, with delta updates as in the last one
def test_a_conversation_gives_the_same_tables_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    lines = [request.replace(encode(CONFIG), encode(on(cluster, CONFIG))) for request in ORDERS]
    conversation = Conversation(lines, tmp_path, run_conversation(lines, tmp_path))
    assert conversation.outcome.status == 0, conversation.outcome.log
    for path, expected in expected_tables(lines).items():
        assert Counter(read_by_pyiceberg(conversation.table(*path))) == Counter(expected.rows)
    assert not list(conversation.warehouse.rglob("*.jsonl"))


def test_keys_are_searched_for_on_a_cluster(
    cluster: SparkCluster, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    """Keys, documents and the ids of rows go through the object store, and nothing of them stays there."""
    users = replace(LEDGER, settings={"delta_updates": False, "format_version": 3})
    runtime = Runtime(tmp_path, (users,), on(cluster, CONFIG))
    source = UpdatingSource(users, lambda key, version: {"id": key[0], "note": f"{version}"}, Random(3))
    with runtime.open(publish=True) as session:
        for first in range(0, 40, 10):
            source.transact(session, [[number] for number in range(first, first + 20)])
        assert session.finish().status == 0
    table = ledger_table(tmp_path)
    documents = map(json.loads, table.scan().to_arrow()["flow_document"].to_pylist())
    assert {encode_key([document["id"]]): document for document in documents} == source.documents
    rows = duckdb_reader.sql(f"SELECT id, _row_id FROM iceberg_scan('{table.metadata_location}')").fetchall()
    assert {row_id for number, row_id in rows if number < 20} == {*range(20)}, "those of the first transaction"
    assert not list((tmp_path / "warehouse").rglob("*.jsonl"))


@pytest.mark.slow  # the third session on a cluster
def test_tables_are_compacted_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    """Beside the transactions of the session, some of whose rows have moved when they are updated again."""
    settings = {"delta_updates": False, "additional_table_properties": EAGER}
    users = replace(LEDGER, settings=settings)
    runtime = Runtime(tmp_path, (users,), on(cluster, CONFIG))
    runtime.apply()
    source = UpdatingSource(users, lambda key, version: {"id": key[0], "note": f"{version}"}, Random(5))
    catalog = readers_catalog(tmp_path / "warehouse")
    with runtime.open() as session:
        for first in range(0, 4 * COMMITS, 2):
            source.transact(session, [[number] for number in range(first, first + 10)])
        assert wait_until(lambda: is_compacted(catalog.load_table("shop.ledger")))
        source.transact(session, [[number] for number in range(0, 4 * COMMITS, 3)], deleted=0.2)
        assert session.finish().status == 0
    documents = map(json.loads, catalog.load_table("shop.ledger").scan().to_arrow()["flow_document"].to_pylist())
    assert {encode_key([document["id"]]): document for document in documents} == source.documents


def is_compacted(table: Table) -> bool:
    """Whether a snapshot of the table has exchanged files."""
    return any(each.summary and each.summary.operation is Operation.REPLACE for each in table.snapshots())


# Settings, and how many seconds there are for an executor.
REFUSED_BY_A_CLUSTER: Final[Mapping[str, tuple[Mapping[str, str], int]]] = {
    "a cluster without room": ({"spark_executor_memory": "900g"}, 0),
    "executors that do not start": ({"spark_executorEnv_NOTHING": "\0"}, 120),
}
STARTED_IMPATIENTLY: Final = """
import json, sys
from connector.host.errors import RetryableError
from connector.host.tempdirs import make_directories
from connector.spark.jvm import cluster
from connector.spark.jvm.spark_session import Spark
settings, cluster.EXECUTOR_TIMEOUT = json.loads(sys.argv[1])
with make_directories() as directories:
    spark = Spark(settings, directories)
    try:
        spark.run(list).result()
    except RetryableError as error:
        print(error)
    finally:
        spark.kill()
"""


@pytest.mark.slow  # a master, a worker and a Spark for each sentence
@pytest.mark.parametrize("name", REFUSED_BY_A_CLUSTER)
def test_a_cluster_that_runs_nothing_of_ours_is_told_with_where_to_look(name: str, cluster: SparkCluster) -> None:
    changed, seconds = REFUSED_BY_A_CLUSTER[name]
    settings = cluster.settings(**changed)
    command = [sys.executable, "-c", STARTED_IMPATIENTLY, json.dumps([settings, seconds])]
    said = subprocess.check_output(command, cwd=REPOSITORY, text=True).strip()
    check_text("spark_errors", name, said, {settings["spark.master"]: "MASTER"})


@pytest.mark.slow  # two sessions' Sparks, for jobs that know nothing of where they run
def test_values_are_converted_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    key, note = LEDGER.fields
    before = Runtime(tmp_path, [replace(LEDGER, fields=(key, replace(note, types=("integer",))))])
    with before.open(publish=True) as session:
        session.transaction({"id": 1, "note": 10}, {"id": 2})
    Runtime(tmp_path, [LEDGER], on(cluster, CONFIG)).apply()
    rows = readers_catalog(tmp_path / "warehouse").load_table((NAMESPACE, LEDGER.table)).scan().to_arrow()
    assert {row["id"]: row["note"] for row in rows.to_pylist()} == {1: "10", 2: None}


@pytest.mark.parametrize(
    "killed",
    [
        # Each takes as long as the last one, for what the tests of handed-over blocks show in milliseconds.
        pytest.param(EXECUTOR, marks=pytest.mark.slow),
        pytest.param(PYTHON_WORKER, marks=pytest.mark.slow),
        MACHINE,  # the others need it
    ],
    ids=["executor", "python worker", "machine"],
)
def test_what_a_killed_process_was_writing_is_written_by_another(
    killed: str, cluster: SparkCluster, rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table=f"killed_{killed.lower().replace('.', '_')}")
    endpoint = on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(rest_on_s3.uri))
    runtime = Runtime(tmp_path, [collection], on(cluster, endpoint, spark_cores_max="1"))
    with runtime.open(publish=True) as session, rest_on_s3.client() as catalog:
        session.transaction({"id": 0})
        session.flush()
        session.store(*({"id": number, "note": "x" * 1_000_000} for number in range(1, MORE_THAN_A_BLOCK)))
        location = catalog.load_table((NAMESPACE, collection.table)).location()
        assert wait_until(lambda: blocks(rest_on_s3, location) != [])
        cluster.machine_of_executor().kill(killed)
        session.store({"id": MORE_THAN_A_BLOCK})
        session.start_commit()
        session.acknowledge()
        assert "a Spark task was lost" in session.connector.log
        rows = catalog.load_table((NAMESPACE, collection.table)).scan(selected_fields=("id",)).to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(MORE_THAN_A_BLOCK + 1))
    assert blocks(rest_on_s3, location) == []


def blocks(server: RestCatalogOnS3, location: str) -> list[str]:
    """The objects in which rows are on their way to a table's files."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    with server.s3.client() as client:
        listed = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return [each["Key"] for each in listed if each["Key"].endswith(".jsonl")]
