"""REST catalogs that refuse what Apache Iceberg's own server allows, in their words: Databricks, Unity Catalog,
Lakekeeper and Snowflake Horizon."""

import uuid
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, StringType

from connector.config.catalog import RestCatalog
from connector.evolution.binding_settings import BindingSettings, IdentifierFields
from connector.evolution.plan_changes import plan_changes
from connector.evolution.property_changes import REFUSED_IDENTIFIER_FIELDS, SetTableProperties
from connector.evolution.table_change import CreateTable, DropTable, StartBackfill, TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.catalogs import rest_errors
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from connector.rpc.apply import apply
from fixtures.collection import NAMESPACE, Field
from fixtures.conversation import Row
from protocol import request
from protocol.flow import WHOLE_RANGE, Json, Materialization
from support.bindings import ID as ID_PROJECTION
from support.bindings import MATERIALIZATION, collection, materialization, materialization_binding
from support.rows.staged_files import stage
from support.servers.catalog_gateway import Sent
from support.servers.endpoint_configs import on_s3, rest
from support.servers.refusing_catalog import Refuse, refusing
from support.servers.rest_catalog import RestCatalogOnS3, RestCatalogServer
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog

V0, V1, V2 = (Owner(MATERIALIZATION, f"orders.v{backfill}") for backfill in range(3))
ID: Final = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True, is_key=True)
NOTE: Final = NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False)
KEYED: Final = BindingSettings(identifier_fields=IdentifierFields.KEY)

COMPRESSION: Final = "write.parquet.compression-codec"


def connect(uri: str, server: RestCatalogServer) -> Catalog:
    return open_rest(RestCatalog(uri, str(server.warehouse)), {})


def fit(catalog: Catalog, target: Target, location: str | None = None) -> list[TableChange]:
    return evolve(catalog, target.path, location, partial(plan_changes, target=target), alterer())


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


# Databricks


def refuse_identifier_fields(sent: Sent, asked: Json) -> tuple[HTTPStatus, str] | None:
    schemas = [asked.get("schema"), *(update.get("schema") for update in asked.get("updates", []))]
    if sent.method == "POST" and any(schema and schema.get("identifier-field-ids") for schema in schemas):
        return HTTPStatus.BAD_REQUEST, "Table with identifier columns is not allowed. [ErrorCode: 2014]"
    return None


def test_a_table_is_created_and_backfilled_without_identifier_fields_that_its_catalog_refuses(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    target = Target(path, V0, (ID,), {"color": "red"}, replaces=False, settings=KEYED)
    with refusing(rest_catalog.uri, refuse_identifier_fields) as (uri, gateway):
        catalog = connect(uri, rest_catalog)
        _, created = fit(catalog, target)
        assert isinstance(created, CreateTable)
        assert "one row for each" not in created.description
        assert REFUSED_IDENTIFIER_FIELDS.items() <= catalog.load_table(path).properties.items()
        assert fit(catalog, target) == []
        assert len(fit(catalog, replace(target, columns=(ID, NOTE)))) == 1
        replaced = replace(target, owner=V1, columns=(ID, NOTE), replaces=True)
        assert [type(change) for change in fit(catalog, replaced)] == [StartBackfill]
        assert fit(catalog, replaced) == []
        dropped = replace(replaced, owner=V2, always_drops=True)
        assert [type(change) for change in fit(catalog, dropped)] == [DropTable, CreateTable]
        assert fit(catalog, dropped) == []
        assert len(gateway.refused) == 1


def test_a_table_goes_without_identifier_fields_that_its_catalog_refuses_when_they_are_set(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    target = Target(path, V0, (ID,), {}, replaces=False)
    with refusing(rest_catalog.uri, refuse_identifier_fields) as (uri, gateway):
        catalog = connect(uri, rest_catalog)
        fit(catalog, target)
        keyed = replace(target, settings=KEYED)
        [change] = fit(catalog, keyed)
        assert isinstance(change, SetTableProperties)
        assert change.effect == "set table property flow.identifier-fields = 'refused'"
        assert fit(catalog, keyed) == []
        assert len(gateway.refused) == 1


def test_a_property_that_was_refused_before_the_identifier_fields_is_not_asked_for_again(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    def refuse(sent: Sent, asked: Json) -> tuple[HTTPStatus, str] | None:
        if COMPRESSION in asked.get("properties", {}):
            return HTTPStatus.BAD_REQUEST, f"Table properties contain prohibited keys: {COMPRESSION}"
        return refuse_identifier_fields(sent, asked)

    with refusing(rest_catalog.uri, refuse) as (uri, gateway):
        fit(connect(uri, rest_catalog), Target(path, V0, (ID,), {}, replaces=False, settings=KEYED))
        assert len(gateway.refused) == 2


def test_a_backfill_to_standard_updates_begins_in_a_catalog_that_refuses_identifier_fields(
    rest_on_s3: RestCatalogOnS3,
) -> None:
    table = f"orders_{uuid.uuid4().hex}"
    delta = materialization_binding(collection(ID_PROJECTION), table=table)
    standard = materialization_binding(collection(ID_PROJECTION), table=table, backfill=1, delta_updates=False)
    with refusing(rest_on_s3.uri, refuse_identifier_fields) as (uri, gateway):
        config = on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(uri))
        apply(request.Apply(materialization(config, delta)))
        last = Materialization(bindings=(delta,))
        done = apply(request.Apply(materialization(config, standard), last_materialization=last))
        assert done.action_description.startswith(f"backfill table {NAMESPACE}.{table}")
        assert "one row for each" not in done.action_description
        assert len(gateway.refused) == 1


@pytest.mark.slow  # three sessions: tests/process/test_updates.py updates a table without identifier fields
@pytest.mark.spark
def test_rows_are_updated_in_a_catalog_that_refuses_identifier_fields(
    rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    ledger = replace(LEDGER, table="without_identifiers", settings={"delta_updates": False})
    longer = replace(ledger, fields=(*ledger.fields, Field("qty", "/qty", ("integer",))))
    first, second = {"id": 1, "note": "first"}, {"id": 1, "note": "second", "qty": 2}
    with refusing(rest_on_s3.uri, refuse_identifier_fields) as (uri, gateway):
        runtime = Runtime(tmp_path, [ledger], on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(uri)))
        with runtime.open(publish=True) as session:
            session.transaction(first)
            assert session.finish().status == 0
        runtime.change([longer])
        with runtime.open(publish=True) as session:
            session.load([1])
            assert session.flush() == [(0, first)]
            session.store_rows(Row(0, second, exists=True))
            session.start_commit()
            session.acknowledge()
            assert session.finish().status == 0
        with rest_on_s3.client() as reader:
            rows = reader.load_table((NAMESPACE, ledger.table)).scan().to_arrow()
            assert rows.select(["id", "note", "qty"]).to_pylist() == [second]
        runtime.backfill()
        with runtime.open(publish=True) as session:
            session.transaction(first)
            assert session.finish().status == 0
        with rest_on_s3.client() as reader:
            table = reader.load_table((NAMESPACE, ledger.table))
            assert table.scan().to_arrow()["note"].to_pylist() == ["first"]
            assert table.schema().identifier_field_ids == []
        assert len(gateway.refused) == 1


# Unity Catalog


def refuse_capital_letters(sent: Sent, _: Json) -> tuple[HTTPStatus, str] | None:
    if sent.method != "DELETE":
        return None
    [asked] = parse_qs(urlsplit(sent.path).query)["purgeRequested"]
    if asked in ("true", "false"):
        return None
    return HTTPStatus.BAD_REQUEST, f"Can't convert '{asked}' to type 'Boolean'."


def test_a_table_is_dropped_with_an_explicit_value_in_small_letters(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    with refusing(rest_catalog.uri, refuse_capital_letters) as (uri, gateway):
        catalog = connect(uri, rest_catalog)
        for purge in (False, True):
            fit(catalog, Target(path, V0, (ID,), {}, replaces=False))
            (catalog.purge_table if purge else catalog.drop_table)(path)
            assert not catalog.table_exists(path)
        drops = [urlsplit(each.path).query for each in gateway.sent if each.method == "DELETE"]
        assert drops == ["purgeRequested=false", "purgeRequested=true"]


# Lakekeeper


def refuse_directories(sent: Sent, asked: Json) -> tuple[HTTPStatus, str] | None:
    updates = [update.get("updates", {}) for update in asked.get("updates", [])]
    if "/tables" in sent.path and any("write.data.path" in some for some in (asked.get("properties", {}), *updates)):
        return HTTPStatus.CONFLICT, "Properties contain unsupported property: 'write.data.path'"
    return None


@pytest.mark.parametrize("exists", [False, True])
def test_a_conflict_about_a_property_is_a_refusal(
    rest_catalog: RestCatalogServer, path: TableIdentifier, exists: bool
) -> None:
    target = Target(path, V0, (ID,), {}, replaces=False)
    wanted = replace(target, properties={"write.data.path": f"file://{rest_catalog.warehouse}/elsewhere"})
    with refusing(rest_catalog.uri, refuse_directories) as (uri, gateway):
        catalog = connect(uri, rest_catalog)
        if exists:
            fit(catalog, target)
        with pytest.raises(UserError) as error, rest_errors.translate_errors(uri):
            fit(catalog, wanted)
        assert len(gateway.refused) == 1
    assert "Properties contain unsupported property: 'write.data.path'. Remove them from" in str(error.value)
    assert "`additional_table_properties`" in str(error.value)


def refuse_creation(words: str) -> Refuse:
    def refuse(sent: Sent, _: Json) -> tuple[HTTPStatus, str] | None:
        is_creation = sent.method == "POST" and sent.path.endswith("/tables")
        return (HTTPStatus.CONFLICT, words) if is_creation else None

    return refuse


def test_a_conflict_that_is_no_view_is_quoted(rest_catalog: RestCatalogServer, path: TableIdentifier) -> None:
    location = f"file://{rest_catalog.warehouse}/taken"
    words = f"Location '{location}' is already taken by another table or view."
    with refusing(rest_catalog.uri, refuse_creation(words)) as (uri, gateway):
        with pytest.raises(UserError) as error:
            fit(connect(uri, rest_catalog), Target(path, V0, (ID,), {}, replaces=False), location)
        assert len(gateway.refused) == 1
    check_text("apply_errors", "a location is taken", str(error.value), {location: "LOCATION", path.namespace: "shop"})


# Snowflake Horizon


def refuse_the_current_schema(_: Sent, asked: Json) -> tuple[HTTPStatus, str] | None:
    """Unless the same commit adds it."""
    actions = [update["action"] for update in asked.get("updates", [])]
    if "set-current-schema" in actions and "add-schema" not in actions:
        return HTTPStatus.CONFLICT, "Indeterminate result during conflict resolution check"
    return None


def test_a_commit_that_changes_no_column_does_not_set_the_current_schema(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    target = Target(path, V0, (ID,), {}, replaces=False)
    with refusing(rest_catalog.uri, refuse_the_current_schema) as (uri, gateway):
        catalog = connect(uri, rest_catalog)
        fit(catalog, target)
        [change] = fit(catalog, replace(target, properties={"color": "red"}))
        assert isinstance(change, SetTableProperties)
        writer = WriterId(V0.materialization, V0.state_key, WHOLE_RANGE.key_range)
        commit_all_or_raise(catalog, [stage(catalog, path, writer, 1, 2)])
        fit(catalog, replace(target, owner=V1, replaces=True))
        commit_all_or_raise(catalog, [stage(catalog, path, replace(writer, state_key=V1.state_key), 3)])
        assert ids_of(catalog, path) == [3]
        assert len(fit(catalog, replace(target, owner=V1, columns=(ID, NOTE)))) == 1
        assert gateway.refused == []
