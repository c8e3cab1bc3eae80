"""REST catalogs that refuse what Apache Iceberg's own server allows, in their words:
Unity Catalog, Lakekeeper and Snowflake Horizon."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType, StringType

from connector.config.catalog import RestCatalog
from connector.evolution.plan_changes import plan_changes
from connector.evolution.property_changes import SetTableProperties
from connector.evolution.table_change import TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import UserError
from connector.iceberg.catalogs import rest_errors
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.perform_changes import evolve
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import WHOLE_RANGE, Json
from support.bindings import MATERIALIZATION
from support.rows.staged_files import stage
from support.servers.catalog_gateway import Sent, refusal, serving
from support.servers.rest_catalog import RestCatalogServer
from support.servers.server_process import free_address
from support.snapshots import check_text
from support.tables.local_tables import alterer, ids_of

pytestmark = pytest.mark.catalog

Refuse: TypeAlias = Callable[[Sent, Json], tuple[HTTPStatus, str] | None]

V0, V1 = (Owner(MATERIALIZATION, f"orders.v{backfill}") for backfill in range(2))
ID: Final = NewColumn("id", "id", LongType(), required=True, doc="", is_indispensable=True, is_key=True)
NOTE: Final = NewColumn("note", "note", StringType(), required=False, doc="", is_indispensable=False)


class Refusing:
    """Passes all requests on, except for those that it refuses."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.sent: list[Sent] = []
        self.refused: list[Sent] = []

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        self.sent.append(sent)
        reason = self._refuse(sent, json.loads(sent.body) if sent.body.startswith(b"{") else {})
        if reason is None:
            return sent
        self.refused.append(sent)
        return reason[0], refusal(*reason)

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@contextmanager
def refusing(upstream: str, refuse: Refuse) -> Iterator[tuple[str, Refusing]]:
    """The address of a server that refuses these requests, and what it has refused."""
    address, gateway = free_address(), Refusing(refuse)
    with serving(gateway, address, upstream):
        yield f"http://{address}", gateway


def connect(uri: str, server: RestCatalogServer) -> Catalog:
    return open_rest(RestCatalog(uri, str(server.warehouse)), {})


def fit(catalog: Catalog, target: Target, location: str | None = None) -> list[TableChange]:
    return evolve(catalog, target.path, location, partial(plan_changes, target=target), alterer())


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


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
