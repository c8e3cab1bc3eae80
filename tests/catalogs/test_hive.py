"""Tables in a real Hive metastore: what is committed there lands once, whatever becomes of calls, locks and
processes."""

import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
from hive_metastore.ttypes import GetTableRequest, ShowLocksRequest, UnlockRequest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType

from connector.config.catalog import HiveCatalog
from connector.host.errors import CommitUnknownError, FencedError, RetryableError, UserError
from connector.iceberg.catalogs import hive_lock
from connector.iceberg.catalogs.hive import open_hive
from connector.iceberg.catalogs.metastore import TIME_LIMITS, Connections, MetastoreTimeLimits, translate_errors
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import stage, stage_chain
from support.servers.fault_proxy import GENUINE, Answer, Fault, always
from support.servers.hive import IN_ONE_WORKER, HiveVersion, Metastore, hive_metastore
from support.servers.metastore_proxy import CHANGE, MetastoreProxy, is_commit, is_load, metastore_proxy
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text
from support.tables.arranged_tables import check_arrangements
from support.tables.compacted_tables import check_compactions
from support.tables.expiring_tables import check_history_after_expiries
from support.tables.found_tables import find
from support.tables.local_tables import foreign_table, ids_of

pytestmark = [pytest.mark.catalog, pytest.mark.usefixtures("no_pauses"), IN_ONE_WORKER]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
FAULTS: Final = {
    "failed": Fault(0, HTTPStatus.INTERNAL_SERVER_ERROR),
    "dropped": Fault(0, Answer.NONE),
    "silent": Fault(0, Answer.SILENCE),
    "failure for what landed": Fault(1, HTTPStatus.INTERNAL_SERVER_ERROR),
    "answer dropped": Fault(1, Answer.NONE),
    "answer withheld": Fault(1, Answer.SILENCE),
    "conflict with itself": Fault(2, Answer.GENUINE),
}
IMPATIENT: Final = MetastoreTimeLimits(connect=10, read=2.0)  # where the proxy is silent on purpose


@pytest.fixture(scope="module", params=HiveVersion)
def metastore(
    request: pytest.FixtureRequest,
    metastore: Metastore,
    s3_server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Metastore]:
    """A server of each version: that of all tests, which is of Hive 2, and one for this module."""
    if request.param is HiveVersion.TWO:
        yield metastore
    else:
        with hive_metastore(tmp_path_factory.mktemp("hive"), s3_server, request.param) as server:
            yield server


@pytest.fixture
def catalog(metastore: Metastore) -> Iterator[Catalog]:
    """The server without the proxy."""
    with open_hive(HiveCatalog(metastore.uri), {}, dict) as opened:
        yield opened


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[MetastoreProxy]:
    with metastore_proxy(metastore.uri) as running:
        yield running


def finish(proxy: MetastoreProxy, staged: Sequence[StagedCommit], limits: MetastoreTimeLimits = TIME_LIMITS) -> None:
    with open_hive(HiveCatalog(proxy.uri), {}, dict, limits) as catalog:
        commit.commit_all_or_raise(catalog, staged)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_chain_lands_once_and_stays_readable(
    catalog: Catalog, proxy: MetastoreProxy, path: TableIdentifier, fault: Fault
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    proxy.inject(is_commit, fault)
    proxy.inject(is_load, fault)
    finish(proxy, chain, limits_for(fault))
    assert proxy.fired == [fault, fault]
    finish(proxy, [replace(staged, is_recovered=True) for staged in chain])
    table = catalog.load_table(path)
    assert ids_of(catalog, path) == [1, 2, 3]
    assert len(table.snapshots()) == 1
    assert fence.read_value(table.properties, WRITER) == chain[-1].next


@pytest.mark.parametrize("fault", [GENUINE, FAULTS["answer dropped"], FAULTS["conflict with itself"]], ids=str)
def test_a_process_whose_lock_was_lost_before_its_commit_overwrites_nothing(
    catalog: Catalog, proxy: MetastoreProxy, metastore: Metastore, path: TableIdentifier, fault: Fault
) -> None:
    stale, successor = stage(catalog, path, WRITER, 1), stage(catalog, path, WRITER, 2)

    def lose_the_lock_to_a_successor() -> None:
        with Connections([metastore.uri], "") as client:
            (lock,) = client.show_locks(ShowLocksRequest(dbname=path[0], tablename=path[1])).locks
            client.unlock(UnlockRequest(lockid=lock.lockid))
        commit.commit_all_or_raise(catalog, [successor])

    proxy.inject(is_commit, fault, before=lose_the_lock_to_a_successor)
    with pytest.raises(FencedError):
        finish(proxy, [stale])
    assert ids_of(catalog, path) == [2]


# Without Hive 4: on Derby, calls at the same time can leave its tables of locks locked for minutes.
@pytest.mark.parametrize("metastore", [HiveVersion.TWO], indirect=True)
def test_two_writers_of_one_table_each_land_every_commit(
    catalog: Catalog, metastore: Metastore, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 300.0)  # on a loaded machine too
    commits = 3

    def write(task: int) -> None:
        writer = WriterId(f"acme/warehouse-{task}", "orders.v1", WHOLE_RANGE.key_range)
        with open_hive(HiveCatalog(metastore.uri), {}, dict) as own:
            for number in range(commits):
                commit.commit_all_or_raise(own, [stage(own, path, writer, 10 * task + number)])

    with ThreadPoolExecutor(2) as writers:
        list(writers.map(write, (1, 2)))
    assert ids_of(catalog, path) == [10, 11, 12, 20, 21, 22]
    assert len(catalog.load_table(path).snapshots()) == 2 * commits


def test_a_lock_that_a_dead_process_has_left_is_released(
    catalog: Catalog, metastore: Metastore, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hive_lock, "PATIENCE", 0.2)
    with Connections([metastore.uri], "") as client:
        client.lock(hive_lock.make_request(path))
    commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, 1)])
    assert ids_of(catalog, path) == [1]
    assert locks_of(metastore, path) == []


def test_a_lock_of_another_engine_is_respected_and_named(
    catalog: Catalog, metastore: Metastore, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hive_lock, "PATIENCE", 0.2)
    monkeypatch.setattr(commit, "RETRY_FOR", 0.2)
    staged = stage(catalog, path, WRITER, 1)
    request = hive_lock.make_request(path)
    request.agentInfo, request.user, request.hostname = "Iceberg", "etl", "spark-3"
    with Connections([metastore.uri], "") as client:
        held, held_at = client.lock(request), datetime.now(UTC)
        with pytest.raises(RetryableError) as error:
            commit.commit_all_or_raise(catalog, [staged])
        said = re.sub(r"for \d+ s", "for N s", str(error.value))
        (since,) = re.findall(r"since (.*) UTC", said)
        assert abs(datetime.fromisoformat(f"{since}+00:00") - held_at) < timedelta(minutes=1)
        check_text(
            "catalog_errors", "Hive: locked", said, {path[0]: "DATABASE", since: "TIME", str(held.lockid): "LOCK"}
        )
        client.unlock(UnlockRequest(lockid=held.lockid))
    commit.commit_all_or_raise(catalog, [staged])
    assert ids_of(catalog, path) == [1]


def test_a_lock_whose_answer_is_lost_holds_up_one_commit_and_loses_none(
    catalog: Catalog, proxy: MetastoreProxy, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hive_lock, "PATIENCE", 0.2)
    proxy.inject(lambda call: call.method == "lock", FAULTS["answer dropped"])
    finish(proxy, [stage(catalog, path, WRITER, 1)])
    assert ids_of(catalog, path) == [1]


def test_a_lock_that_cannot_be_released_is_told_and_the_next_commit_releases_it(
    catalog: Catalog,
    metastore: Metastore,
    proxy: MetastoreProxy,
    path: TableIdentifier,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(hive_lock, "PATIENCE", 0.2)
    first = stage(catalog, path, WRITER, 1)
    proxy.inject(lambda call: call.method == "unlock", FAULTS["dropped"])
    finish(proxy, [first])
    [lock] = locks_of(metastore, path)
    (told,) = (message for message in caplog.messages if "was not released" in message)
    assert told.startswith(f"table {path}: lock {lock.lockid} was not released in Hive (")
    finish(proxy, [stage(catalog, path, WRITER, 2, prev=first.next)])
    assert locks_of(metastore, path) == []
    assert ids_of(catalog, path) == [1, 2]


def test_a_metastore_that_does_not_compare_is_refused_before_anything_is_lost(
    catalog: Catalog, proxy: MetastoreProxy, path: TableIdentifier
) -> None:
    proxy.altered = lambda call: (
        replace(call, arguments=(*call.arguments[:-1], None)) if call.method == CHANGE else call
    )
    staged = stage(catalog, path, WRITER, 1)
    with pytest.raises(UserError) as error:
        finish(proxy, [staged])
    check_text("catalog_errors", "Hive: changes without comparing", str(error.value))
    with open_hive(HiveCatalog(proxy.uri), {}, dict) as old, pytest.raises(UserError, match="HIVE-26882"):
        foreign_table(old, (path[0], "new"))
    assert catalog.list_tables(path[0]) == [path]
    assert ids_of(catalog, path) == []


def test_a_metastore_that_never_answers_a_commit_is_an_error_that_keeps_the_files(
    catalog: Catalog, proxy: MetastoreProxy, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.1)
    staged = stage(catalog, path, WRITER, 1)
    proxy.choose = always(FAULTS["dropped"], is_commit)
    with pytest.raises(CommitUnknownError, match=r"orders.*stay staged"):
        finish(proxy, [staged])
    proxy.choose = lambda _: GENUINE
    finish(proxy, [staged])
    assert ids_of(catalog, path) == [1]


def test_what_is_no_iceberg_table_is_refused_by_name(
    catalog: Catalog, metastore: Metastore, path: TableIdentifier
) -> None:
    with Connections([metastore.uri], "") as client:
        table = client.get_table_req(GetTableRequest(dbName=path[0], tblName=path[1])).table
        table.tableName, table.parameters = "of_hive", {}
        client.create_table(table)
    with pytest.raises(UserError) as error:
        find(catalog, TableIdentifier(path[0], "of_hive"))
    check_text("catalog_errors", "Hive: no Iceberg table", str(error.value), {path[0]: "DATABASE"})


def test_a_second_metastore_is_asked_where_the_first_is_down(metastore: Metastore) -> None:
    uri = f"thrift://{free_address()},{metastore.uri}"
    with open_hive(HiveCatalog(uri), {}, dict) as catalog:
        assert catalog.namespace_exists("default")


def test_a_metastore_that_is_down_or_silent_is_named(proxy: MetastoreProxy) -> None:
    proxy.choose = always(FAULTS["silent"])
    for uri in (f"thrift://{free_address()}", proxy.uri):
        with (
            open_hive(HiveCatalog(uri), {}, dict, IMPATIENT) as catalog,
            pytest.raises(RetryableError, match=f"the Hive metastore at {uri} cannot be reached: .*/catalog/uri"),
            translate_errors(uri),
        ):
            catalog.namespace_exists("shop")


def test_hive_2_takes_commits_to_timestamps_with_a_zone(catalog: Catalog) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "events")
    columns = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "at", TimestamptzType()))
    foreign_table(catalog, path, columns)
    commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, 1)])
    assert catalog.load_table(path).schema().find_type("at") == TimestamptzType()
    assert ids_of(catalog, path) == [1]


def test_partitions_and_the_order_of_a_table_change(catalog: Catalog) -> None:
    check_arrangements(catalog, TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders"))


def test_no_row_is_lost_when_a_table_is_compacted_beside_transactions(catalog: Catalog) -> None:
    check_compactions(catalog, TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders"))


def test_time_travel_shows_no_older_rows_in_the_place_of_expired_ones(catalog: Catalog) -> None:
    check_history_after_expiries(catalog, TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders"))


def test_a_change_of_types_that_a_metastore_refuses_is_told_with_its_setting(catalog: Catalog) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")
    columns = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "a", StringType()), NestedField(3, "b", LongType())
    )
    table = foreign_table(catalog, path, columns)
    with pytest.raises(UserError) as error:  # Hive compares columns by their places
        table.update_schema().delete_column("a").commit()
    check_text("catalog_errors", "Hive: other types", str(error.value), {path[0]: "DATABASE"})


def test_a_metastore_lets_decimals_have_more_digits(catalog: Catalog) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "price", DecimalType(9, 2)))
    table = foreign_table(catalog, path, columns)
    with table.update_schema() as update:
        update.update_column("price", DecimalType(38, 2))
    assert catalog.load_table(path).schema().find_type("price") == DecimalType(38, 2)


def test_a_name_that_a_metastore_refuses_is_told(catalog: Catalog) -> None:
    with pytest.raises(UserError) as error, translate_errors("thrift://metastore"):
        catalog.create_namespace("größe")
    check_text("catalog_errors", "Hive: no name", str(error.value))


def test_a_column_s_long_description_is_cut_in_hive_only(catalog: Catalog) -> None:
    database, doc = f"shop_{uuid.uuid4().hex}", "long " * 200
    foreign_table(catalog, (database, "notes"), Schema(NestedField(1, "id", LongType(), doc=doc)))
    assert catalog.load_table((database, "notes")).schema().find_field("id").doc == doc


@pytest.mark.slow  # Hive 2 has a session in test_catalogs_and_stores.py, and all commits are made above
@pytest.mark.spark
def test_a_task_s_table_is_created_written_and_listed(metastore: Metastore, catalog: Catalog, tmp_path: Path) -> None:
    ledger = replace(LEDGER, namespace=f"shop_{uuid.uuid4().hex}")
    path = TableIdentifier(ledger.namespace, ledger.table)
    config = {
        "namespace": ledger.namespace,
        "upload_interval": "PT0S",
        "catalog": {"catalog_type": "Hive Metastore", "uri": metastore.uri},
        "storage": {"storage_type": "Local Files", "directory": str(tmp_path / "tables")},
    }
    runtime = Runtime(tmp_path, [ledger], config)
    for number in 1, 2:
        with runtime.open(publish=True) as session:
            session.transaction({"id": number, "note": "one row"})
            assert session.finish().status == 0
    assert catalog.list_tables(ledger.namespace) == [path]
    assert ids_of(catalog, path) == [1, 2]


def limits_for(fault: Fault) -> MetastoreTimeLimits:
    return IMPATIENT if fault.answer is Answer.SILENCE else TIME_LIMITS


def locks_of(metastore: Metastore, path: TableIdentifier) -> list[Any]:
    with Connections([metastore.uri], "") as client:
        standing: list[Any] = client.show_locks(ShowLocksRequest(dbname=path[0], tablename=path[1])).locks
        return standing
