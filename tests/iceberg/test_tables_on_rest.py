"""The performers of changes on a REST catalog, whose server is not ours."""

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import rest as pyiceberg_rest
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from connector.config.catalog import RestCatalog
from connector.config.terms import parse_partition_by, parse_sort_by
from connector.evolution.arrangement_changes import SetPartitionSpec, SetSortOrder
from connector.evolution.arrangement_terms import ArrangementTerms
from connector.evolution.binding_settings import BindingSettings
from connector.evolution.existing_table import CatalogEntry
from connector.evolution.plan_changes import plan_changes
from connector.evolution.table_change import AddColumn, Alteration, StartBackfill, TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.perform_changes import evolve
from connector.model.table_identifier import Owner, TableIdentifier
from support.bindings import MATERIALIZATION
from support.engines.snapshot_refs import point
from support.rows.staged_rows import staged
from support.servers.fault_proxy import Fault, Request, always, fault_proxy
from support.servers.rest_catalog import RestCatalogServer
from support.tables.arranged_tables import AT, check_arrangements, publish
from support.tables.found_tables import find
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog

V0, V1 = (Owner(MATERIALIZATION, f"orders.v{backfill}") for backfill in (0, 1))
ID = NewColumn("id", "id", LongType(), required=True, doc="The key", is_indispensable=True)
EVIL = NewColumn(
    "$ %s '\"` {} a.b/💩", "$ %s '\"` {} a.b/💩", StringType(), required=False, doc="", is_indispensable=False
)
NOTE = NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False)


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


def connect(server: RestCatalogServer) -> Catalog:
    return open_rest(RestCatalog(server.uri, str(server.warehouse)), {})


def fit(catalog: Catalog, target: Target) -> list[TableChange]:
    return evolve(catalog, target.path, None, partial(plan_changes, target=target), alterer())


def test_a_table_is_created_altered_and_replaced(rest_catalog: RestCatalogServer, path: TableIdentifier) -> None:
    catalog = connect(rest_catalog)
    assert find(catalog, path) == CatalogEntry(namespace_exists=False, table=None)
    fit(catalog, Target(path, V0, (ID,), {"color": "red"}, replaces=False))
    table = catalog.load_table(path)
    assert (table.metadata.format_version, table.properties["color"]) == (2, "red")
    assert Owner.of(table.properties) == V0

    altered = Target(path, V0, (NOTE, EVIL), {"color": "blue"}, replaces=False)
    assert len(fit(catalog, altered)) == 4
    assert catalog.load_table(path).properties["color"] == "blue"
    assert [(field.name, field.required) for field in catalog.load_table(path).schema().fields] == [
        ("id", False),
        ("note", False),
        (EVIL.name, False),
    ]
    assert fit(catalog, altered) == []

    terms = ArrangementTerms(parse_partition_by("note"), parse_sort_by("note"))
    replaced = Target(path, V1, (ID, NOTE), {}, replaces=True, settings=BindingSettings(arrangement=terms))
    assert [type(change) for change in fit(catalog, replaced)] == [SetPartitionSpec, SetSortOrder, StartBackfill]
    assert fit(catalog, replaced) == []
    after = catalog.load_table(path)
    assert after.metadata.table_uuid == table.metadata.table_uuid
    assert [field.name for field in after.spec().fields] == ["note"]


def test_a_namespace_that_the_server_hides_need_not_be_created(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    def asks(request: Request) -> bool:
        return request.method in ("GET", "HEAD") and request.path.endswith(f"/namespaces/{path.namespace}")

    connect(rest_catalog).create_namespace(path.namespace)
    with fault_proxy(rest_catalog.uri) as proxy:
        proxy.choose = always(Fault(0, HTTPStatus.NOT_FOUND), asks)
        catalog = open_rest(RestCatalog(proxy.uri, str(rest_catalog.warehouse)), {})
        fit(catalog, Target(path, V0, (ID,), {}, replaces=False))
    assert connect(rest_catalog).table_exists(path)


def test_partitions_and_the_order_of_a_table_change(rest_catalog: RestCatalogServer, path: TableIdentifier) -> None:
    check_arrangements(connect(rest_catalog), path)


def test_partitions_that_another_engine_sets_meanwhile_are_met_by_a_new_plan(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    catalog = connect(rest_catalog)
    publish(catalog, path, None, "", "", ID, AT)
    table = catalog.load_table(path)
    with connect(rest_catalog).load_table(path).update_spec() as update:
        update.add_identity("id")
    ours: list[Alteration] = [SetPartitionSpec(parse_partition_by("day(`at.``then```)"))]
    with pytest.raises(CommitFailedException):
        alterer().alter(catalog, table, ours)
    publish(catalog, path, None, "day(`at.``then```)", "", ID, AT)
    assert [(spec.spec_id, [f.name for f in spec.fields]) for spec in catalog.load_table(path).specs().values()] == [
        (0, []),
        (1, ["id"]),
        (2, ["at.`then`_day"]),
    ]


def test_a_change_by_somebody_else_in_between_is_met_by_a_new_plan(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    catalog = connect(rest_catalog)
    fit(catalog, Target(path, V0, (ID,), {}, replaces=False))
    plans = 0

    def plan(found: CatalogEntry) -> Sequence[TableChange]:
        nonlocal plans
        plans += 1
        if plans == 1:
            fit(connect(rest_catalog), Target(path, V0, (ID, EVIL), {}, replaces=False))
        return plan_changes(found, Target(path, V0, (ID, EVIL, NOTE), {}, replaces=False))

    assert evolve(catalog, path, None, plan, alterer()) == [AddColumn(NOTE)]
    assert plans == 2


def test_racing_creators_of_one_owner_agree_on_one_table(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    together = Barrier(3)

    def create() -> str:
        catalog = connect(rest_catalog)
        together.wait()
        fit(catalog, Target(path, V0, (ID, NOTE), {}, replaces=False))
        return str(catalog.load_table(path).metadata.table_uuid)

    with ThreadPoolExecutor(3) as pool:
        uuids = {future.result() for future in [pool.submit(create) for _ in range(3)]}
    assert len(uuids) == 1


def test_a_view_of_that_name_is_refused_before_anything_is_created(
    rest_catalog: RestCatalogServer, path: TableIdentifier
) -> None:
    catalog = connect(rest_catalog)
    catalog.create_namespace(path[0])
    query = ViewRepresentation(SQLViewRepresentation(sql="SELECT 1 AS id", dialect="spark", type="sql"))
    version = ViewVersion(**{"schema-id": 0, "representations": [query], "default-namespace": path[:1]})
    catalog.create_view(path, Schema(NestedField(1, "id", LongType())), version)
    with pytest.raises(UserError, match=rf"{path[0]}\.orders is a view\. Choose another table name"):
        find(catalog, path)


# Apache Polaris and older servers of Iceberg answer 400 to such a commit, newer ones 409.
@pytest.mark.parametrize(
    "answer",
    [
        None,
        "ValidationException: Cannot add snapshot with sequence number 2 older than last sequence number 2",
        "ValidationException: Cannot add a snapshot, first-row-id is behind table next-row-id: 1 < 2",
    ],
)
def test_a_commit_is_made_again_if_one_to_another_branch_was_faster(
    rest_catalog: RestCatalogServer, path: TableIdentifier, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = connect(rest_catalog), connect(rest_catalog)
    fit(catalog, Target(path, V0, (ID,), {}, replaces=False))
    commit_all_or_raise(catalog, [staged(catalog, {"id": 1}, path=path)])
    table = other.load_table(path)
    assert table.metadata.current_snapshot_id
    point(other, path, "audit", table.metadata.current_snapshot_id)
    send = pyiceberg_rest.RestCatalog.commit_table

    def send_later(*request: Any) -> Any:
        monkeypatch.undo()
        table = other.load_table(path)
        table.append(pa.table({"id": [3]}, schema=table.schema().as_arrow()), branch="audit")
        if answer:
            raise BadRequestError(answer)
        return send(*request)

    transaction = staged(catalog, {"id": 2}, path=path)
    monkeypatch.setattr(pyiceberg_rest.RestCatalog, "commit_table", send_later)
    commit_all_or_raise(catalog, [transaction])
    assert ids_of(other, path) == [1, 2]
