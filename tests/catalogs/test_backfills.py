"""A backfill in place, in every kind of catalog: with columns of other types, fewer columns and new ones."""

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BooleanType, DateType, LongType, PrimitiveType, StringType

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import CreateTable, DropTable, StartBackfill
from connector.evolution.target import NewColumn, Target
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.rows.staged_rows import staged
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.hive import IN_ONE_WORKER, Metastore
from support.servers.postgres import Postgres
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.tables.local_tables import alterer

pytestmark = pytest.mark.catalog

TASK: Final = "acme/warehouse"
OLD_ROWS: Final = [
    {"id": 1, "note": "one", "day": None, "gone": "x"},
    {"id": 2, "note": None, "day": None, "gone": "y"},
]
NEW_ROWS: Final = [{"id": "7", "flag": True, "note": 70, "day": "today"}]


def column(name: str, type_: PrimitiveType, *, is_key: bool = False) -> NewColumn:
    return NewColumn(name, name, type_, required=is_key, doc="", is_indispensable=is_key, is_key=is_key)


OLD: Final = (
    column("id", LongType(), is_key=True),
    column("note", StringType()),
    column("day", DateType()),
    column("gone", StringType()),
)
NEW: Final = (
    column("id", StringType(), is_key=True),
    column("flag", BooleanType()),
    column("note", LongType()),
    column("day", StringType()),
)


@pytest.fixture
def namespace() -> str:
    return f"shop_{uuid.uuid4().hex}"


@pytest.fixture
def on_rest(rest_on_s3: RestCatalogOnS3, namespace: str) -> Iterator[tuple[Catalog, EndpointConfig]]:
    endpoint, _ = parse(on_s3(rest_on_s3.s3, rest_on_s3.bucket, namespace, rest(rest_on_s3.uri)), [])
    with open_catalog(endpoint) as opened:
        yield opened, endpoint


@pytest.fixture
def on_glue(
    glue_uri: str, s3_server: S3Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Catalog, EndpointConfig]]:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_uri)
    endpoint, _ = parse(on_s3(s3_server, s3_server.new_bucket(), namespace, glue()), [])
    with open_catalog(endpoint) as opened:
        yield opened, endpoint


@pytest.fixture
def on_sql(postgres: Postgres, s3_server: S3Server, namespace: str) -> Iterator[tuple[Catalog, EndpointConfig]]:
    catalog = {"catalog_type": "SQL", "uri": postgres.uri, "password": postgres.password, "name": "lake"}
    endpoint, _ = parse(on_s3(s3_server, s3_server.new_bucket(), namespace, catalog), [])
    with open_catalog(endpoint) as opened:
        yield opened, endpoint


@pytest.fixture
def on_hive(metastore: Metastore, s3_server: S3Server, namespace: str) -> Iterator[tuple[Catalog, EndpointConfig]]:
    catalog = {"catalog_type": "Hive Metastore", "uri": metastore.uri}
    endpoint, _ = parse(on_s3(s3_server, s3_server.new_bucket(), namespace, catalog), [])
    with open_catalog(endpoint) as opened:
        yield opened, endpoint


class Backfilled:
    """A table that is backfilled again and again."""

    def __init__(self, catalog: Catalog, endpoint: EndpointConfig, version: int) -> None:
        self._catalog, self._endpoint, self._version = catalog, endpoint, version
        self._path = TableIdentifier(endpoint.namespace, "orders")

    def fit(self, backfill: int, *columns: NewColumn) -> list[Any]:
        owner = Owner(TASK, f"orders.v{backfill}")
        identifier_fields = IdentifierFields.KEY if backfill else IdentifierFields.KEPT
        target = Target(
            self._path,
            owner,
            columns,
            {},
            replaces=backfill > 0,
            settings=BindingSettings(identifier_fields=identifier_fields),
            format_version=self._version,
        )
        location = table_location(self._endpoint, self._path)
        changes = evolve(self._catalog, self._path, location, partial(plan_changes, target=target), alterer())
        return [type(change) for change in changes]

    def land(self, backfill: int, *rows: Any) -> None:
        writer = WriterId(TASK, f"orders.v{backfill}", WHOLE_RANGE.key_range)
        commit_all_or_raise(self._catalog, [staged(self._catalog, *rows, writer=writer, path=self._path)])

    @property
    def table(self) -> Table:
        return self._catalog.load_table(self._path)

    @property
    def rows(self) -> list[Any]:
        found: list[Any] = self.table.scan().to_arrow().sort_by("id").to_pylist()
        return found


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fixture", ["on_rest", "on_glue", "on_sql"])
def test_rows_and_columns_are_replaced_in_place(fixture: str, version: int, request: pytest.FixtureRequest) -> None:
    opened: tuple[Catalog, EndpointConfig] = request.getfixturevalue(fixture)
    orders = Backfilled(*opened, version)
    orders.fit(0, *OLD)
    orders.land(0, *OLD_ROWS)
    uuid = orders.table.metadata.table_uuid
    assert orders.fit(1, *NEW) == [StartBackfill]
    assert orders.rows == OLD_ROWS
    assert orders.fit(1, *NEW) == []
    orders.land(1, *NEW_ROWS)
    assert orders.rows == NEW_ROWS
    assert orders.table.metadata.table_uuid == uuid
    assert orders.table.schema().identifier_field_names() == {"id"}
    orders.land(1, {"id": "8", "flag": None, "note": None, "day": None})
    assert len(orders.rows) == 2
    assert orders.fit(2, *OLD) == [StartBackfill]
    assert len(orders.rows) == 2
    orders.land(2, *OLD_ROWS)
    assert orders.rows == OLD_ROWS
    assert orders.table.metadata.format_version == version


@pytest.mark.parametrize("fixture", ["on_rest", "on_glue", "on_sql"])
def test_a_table_is_new_if_the_config_names_a_higher_format_version(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    opened: tuple[Catalog, EndpointConfig] = request.getfixturevalue(fixture)
    former, orders = Backfilled(*opened, 2), Backfilled(*opened, 3)
    former.fit(0, *OLD)
    former.land(0, *OLD_ROWS)
    assert orders.fit(1, *NEW) == [DropTable, CreateTable]
    assert orders.table.metadata.format_version == 3
    assert orders.fit(1, *NEW) == []
    orders.land(1, *NEW_ROWS)
    assert orders.rows == NEW_ROWS


def sort_by(table: Table, name: str) -> None:
    with table.update_sort_order() as update:
        update.asc(name, IdentityTransform())


def partition_by(table: Table, name: str) -> None:
    with table.update_spec() as update:
        update.add_field(name, BucketTransform(4), f"{name}_bucket")


@pytest.mark.parametrize("arrange", [sort_by, partition_by])
@pytest.mark.parametrize("name", ["gone", "note"])
@pytest.mark.parametrize("fixture", ["on_rest", "on_glue"])
def test_a_column_stays_that_another_engine_arranges_rows_by_before_the_first_commit(
    fixture: str, name: str, arrange: Callable[[Table, str], None], request: pytest.FixtureRequest
) -> None:
    opened: tuple[Catalog, EndpointConfig] = request.getfixturevalue(fixture)
    orders = Backfilled(*opened, 2)
    orders.fit(0, *OLD)
    orders.land(0, *OLD_ROWS)
    orders.fit(1, *NEW)
    arrange(orders.table, name)
    orders.land(1, *NEW_ROWS)
    orders.land(1, {"id": "8"})
    kept = {"gone": "gone", "note": "note_2_before_backfill"}[name]
    assert [field.name for field in orders.table.schema().fields] == ["id", "flag", "note", "day", kept]
    assert [row["id"] for row in orders.rows] == ["7", "8"]


@pytest.mark.parametrize("fixture", ["on_rest", "on_glue"])
def test_a_table_is_new_if_a_partition_field_has_the_name_of_a_column_that_gets_another_type(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    opened: tuple[Catalog, EndpointConfig] = request.getfixturevalue(fixture)
    orders = Backfilled(*opened, 2)
    orders.fit(0, *OLD)
    orders.land(0, *OLD_ROWS)
    with orders.table.update_spec() as update:
        update.add_identity("note")
    with orders.table.update_spec() as update:
        update.remove_field("note")
    assert orders.fit(1, *NEW) == [DropTable, CreateTable]
    orders.land(1, *NEW_ROWS)
    assert orders.rows == NEW_ROWS


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow)])
@IN_ONE_WORKER
def test_hive_takes_columns_of_the_same_types_in_place_and_a_new_table_for_others(
    on_hive: tuple[Catalog, EndpointConfig], version: int
) -> None:
    orders = Backfilled(*on_hive, version)
    orders.fit(0, *OLD)
    orders.land(0, *OLD_ROWS)
    uuid = orders.table.metadata.table_uuid
    assert orders.fit(1, *OLD[:3], column("came", StringType()), column("flag", BooleanType())) == [StartBackfill]
    assert orders.rows == OLD_ROWS
    fewer = [{"id": 7, "note": "seven", "day": None, "came": "z", "flag": None}]
    orders.land(1, *fewer)
    assert orders.rows == fewer
    assert orders.table.metadata.table_uuid == uuid
    assert orders.fit(2, *NEW) == [DropTable, CreateTable]
    orders.land(2, *NEW_ROWS)
    assert orders.rows == NEW_ROWS
    assert orders.table.metadata.table_uuid != uuid
    assert orders.table.metadata.format_version == version
