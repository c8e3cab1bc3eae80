"""A catalog in a real PostgreSQL database, with its tables on a real S3 server."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from sqlalchemy import literal, select, text

from connector.cli.commands.check_command import check
from connector.cli.flow.flow_files import ConfigFile
from connector.cli.waiting import WaitingLine
from connector.config.catalog import SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.evolution.plan_changes import plan_changes
from connector.evolution.target import NewColumn, Target
from connector.host.errors import FencedError, RetryableError, UserError
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.catalogs.sql import SqlTables
from connector.iceberg.commits import commit
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.endpoint_configs import aws_keys, on_s3
from support.servers.pooler import pooler
from support.servers.postgres import Postgres
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address
from support.snapshots import check_text
from support.tables.arranged_tables import check_arrangements
from support.tables.compacted_tables import check_compactions
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog

TIMES_TO_PREPARE: Final = 6  # after so many times, psycopg would prepare a statement


@pytest.fixture
def config(postgres: Postgres, s3_server: S3Server, bucket: str) -> Json:
    catalog = {"catalog_type": "SQL", "uri": postgres.uri, "password": postgres.password, "name": "lake"}
    return on_s3(s3_server, bucket, NAMESPACE, catalog)


@pytest.fixture
def endpoint(config: Mapping[str, Json]) -> EndpointConfig:
    return parse(config, [])[0]


@pytest.fixture
def catalog(endpoint: EndpointConfig) -> Iterator[Catalog]:
    with open_catalog(endpoint) as opened:
        yield opened


def test_a_stale_process_is_refused_and_a_replay_lands_once(catalog: Catalog, endpoint: EndpointConfig) -> None:
    path = TableIdentifier(NAMESPACE, f"fenced_{uuid.uuid4().hex}")
    writer = WriterId("acme/lake", "orders.v1", WHOLE_RANGE.key_range)
    columns = (
        NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True),
        NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False),
    )
    target = Target(path, Owner(writer.materialization, writer.state_key), columns, {}, replaces=False)
    evolve(catalog, path, table_location(endpoint, path), partial(plan_changes, target=target), alterer())
    stale, successor = stage(catalog, path, writer, 1), stage(catalog, path, writer, 2)
    for staged in (successor, replace(successor, is_recovered=True)):
        commit.commit_all_or_raise(catalog, [staged])
    with pytest.raises(FencedError):
        commit.commit_all_or_raise(catalog, [stale])
    assert ids_of(catalog, path) == [2]


def test_partitions_and_the_order_of_a_table_change(catalog: Catalog, endpoint: EndpointConfig) -> None:
    path = TableIdentifier(NAMESPACE, f"arranged_{uuid.uuid4().hex}")
    check_arrangements(catalog, path, table_location(endpoint, path))


def test_no_row_is_lost_when_a_table_is_compacted_beside_transactions(
    catalog: Catalog, endpoint: EndpointConfig
) -> None:
    path = TableIdentifier(NAMESPACE, f"compacted_{uuid.uuid4().hex}")
    check_compactions(catalog, path, table_location(endpoint, path))


def test_keys_that_the_object_store_does_not_accept_are_named(
    config: Json, catalog: Catalog, s3_server: S3Server
) -> None:
    catalog.create_namespace_if_not_exists(NAMESPACE)
    wrong = parse(config | {"credentials": aws_keys(s3_server, "planted-and-wrong")}, [])[0]
    refusal = "the metadata of table .*: the object store (forbids this|does not accept the credentials).*/credentials"
    with open_catalog(wrong) as locked_out, pytest.raises(UserError, match=refusal):
        locked_out.create_table((NAMESPACE, "new"), Schema(), table_location(wrong, TableIdentifier(NAMESPACE, "new")))


def test_a_new_catalog_may_be_opened_by_many_at_once(endpoint: EndpointConfig, postgres: Postgres) -> None:
    openers = 8
    barrier = threading.Barrier(openers)
    opened: list[bool] = []
    assert isinstance(endpoint.catalog, SqlCatalog)
    new = msgspec.structs.replace(
        endpoint, catalog=msgspec.structs.replace(endpoint.catalog, uri=postgres.new_database())
    )

    def open_with_the_others() -> None:
        barrier.wait()
        with open_catalog(new) as mine:
            opened.append(mine.namespace_exists("nothing"))

    threads = [threading.Thread(target=open_with_the_others) for _ in range(openers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [False] * openers


def test_a_connection_that_has_ended_meanwhile_is_replaced(config: Json, catalog: Catalog, postgres: Postgres) -> None:
    """As after a restart of the server."""
    assert not catalog.namespace_exists("nothing")
    ended = rows(
        config, postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    assert (True,) in ended
    assert not catalog.namespace_exists("nothing")


@pytest.mark.parametrize("options", ["", "?options=-cstatement_timeout%3D0%20-csearch_path%3Dpublic"])
def test_options_of_the_user_do_not_replace_the_time_limit_of_a_statement(
    config: Json, postgres: Postgres, options: str
) -> None:
    catalog = {**config["catalog"], "uri": f"{postgres.uri}{options}"}
    with open_catalog(parse({**config, "catalog": catalog}, [])[0]) as opened:
        assert isinstance(opened, SqlTables)
        with opened.engine.connect() as connection:
            assert connection.scalar(text("SHOW statement_timeout")) == "1min"
            assert connection.scalar(text("SHOW search_path")) == ("public" if options else '"$user", public')


def test_a_catalog_behind_a_pooler_of_connections_is_used(config: Json, postgres: Postgres) -> None:
    database = postgres.new_database()
    with pooler(postgres.address) as pool:
        uri = database.replace(postgres.address, pool.address)
        with open_catalog(parse({**config, "catalog": {**config["catalog"], "uri": uri}}, [])[0]) as opened:
            opened.create_namespace("orders")
            assert opened.list_namespaces() == [("orders",)]
            assert isinstance(opened, SqlTables)
            with opened.engine.connect() as connection:
                for number in range(TIMES_TO_PREPARE):
                    assert connection.scalar(select(literal(number))) == number
    assert pool.startups
    assert pool.prepared == []


REFUSALS: Final[Mapping[str, tuple[Json, type[Exception]]]] = {
    "wrong password": ({"password": "planted-and-wrong"}, UserError),
    "no password": ({"password": None}, UserError),
    "no such database": ({"uri": "postgresql://lake@{address}/nowhere"}, UserError),
    "nobody listens": ({"uri": "postgresql://lake@{nobody}/lake"}, RetryableError),
    "no TLS": ({"uri": "postgresql://lake@{address}/lake?sslmode=require"}, UserError),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_database_that_cannot_be_used_says_why(config: Json, postgres: Postgres, name: str) -> None:
    changed, kind = REFUSALS[name]
    places = {"address": postgres.address, "nobody": free_address()}
    given = {name: value and value.format(**places) for name, value in changed.items()}
    endpoint = parse({**config, "catalog": {**config["catalog"], **given}}, [])[0]
    with pytest.raises(kind) as raised, translate_errors(endpoint):
        open_catalog(endpoint)
    assert "planted" not in str(raised.value)
    ports = {place.rpartition(":")[2]: "PORT" for place in places.values()}
    check_text("catalog_errors", f"SQL: {name}", str(raised.value), ports)


def test_check_finds_a_database_that_can_be_read_but_not_written(
    config: Json, postgres: Postgres, tmp_path: Path
) -> None:
    config = {**config, "catalog": {**config["catalog"], "uri": postgres.new_database()}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    said: list[str] = []
    source, silent = ConfigFile(str(file)), WaitingLine(None)
    assert check(source, said.append, silent, as_json=True)
    assert rows(config, postgres, "SELECT count(*) FROM iceberg_tables") == [(0,)]
    database = config["catalog"]["uri"].rpartition("/")[2]
    rows(config, postgres, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    assert not check(source, said.append, silent, as_json=True)
    failed = [step for step in json.loads(said[-1])["steps"] if step["outcome"] == "failed"]
    assert [step["name"] for step in failed] == ["table"]
    ports = {database: "DATABASE", postgres.address.rpartition(":")[2]: "PORT"}
    check_text("catalog_errors", "SQL: may only read", failed[0]["message"], ports)


def rows(config: Json, postgres: Postgres, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(config["catalog"]["uri"], password=postgres.password, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []
