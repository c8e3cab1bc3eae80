"""A REST catalog that demands OAuth2, with tokens that live for seconds and a prefix before its paths."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from connector.iceberg.commits import commit, retry_commits
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import ADLS_MACHINE_CREDENTIALS
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE, Json
from support.engines.readers import duckdb_rows
from support.rows.staged_files import stage
from support.servers.catalog_gateway import SCOPE, TOKEN_PATH, CatalogGateway, catalog_gateway
from support.servers.endpoint_configs import rest
from support.servers.fault_proxy import fault_proxy
from support.servers.rest_catalog import RestCatalogServer
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, ids_of

pytestmark = pytest.mark.catalog


WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
LIFETIME: Final = 2.0  # seconds, of a token that is to expire
SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))


@pytest.fixture
def gateway(rest_catalog: RestCatalogServer) -> Iterator[CatalogGateway]:
    with catalog_gateway(rest_catalog.uri, lifetime=3600) as running:
        yield running


@pytest.fixture
def hasty_gateway(rest_catalog: RestCatalogServer) -> Iterator[CatalogGateway]:
    with catalog_gateway(rest_catalog.uri, LIFETIME) as running:
        yield running


def config(gateway: CatalogGateway, namespace: str, **catalog: Json) -> Mapping[str, Json]:
    """The catalog has its tables in files, so that there is neither a bucket nor a key."""
    signing_in = {"credential": gateway.credential, "scope": SCOPE, "oauth2_server_uri": gateway.token_uri}
    return {
        "namespace": namespace,
        "upload_interval": "PT0S",
        "catalog": {**rest(gateway.uri), **signing_in, **catalog},
    }


def use(endpoint_config: Mapping[str, Json], path: tuple[str, str]) -> None:
    endpoint = parse(endpoint_config, [])[0]
    with translate_errors(endpoint), open_catalog(endpoint) as catalog:
        catalog.create_namespace_if_not_exists(path[0])
        catalog.create_table(path, SCHEMA)
        assert catalog.load_table(path).name() == path


def test_a_credential_is_exchanged_once_where_the_config_says(gateway: CatalogGateway) -> None:
    use(config(gateway, "signed_in"), ("signed_in", "once"))
    (form,) = gateway.token_requests
    assert form["grant_type"] == "client_credentials"
    assert gateway.refusals == 0


def test_the_third_seed_s_spelling_of_the_oauth2_server_is_read(gateway: CatalogGateway) -> None:
    properties = {"oauth2-server-uri": gateway.token_uri, "audience": "lake", "header.X-Team": "data"}
    use(config(gateway, "signed_in", oauth2_server_uri=None, properties=properties), ("signed_in", "by_property"))
    assert gateway.token_requests[0]["audience"] == "lake"


def test_a_token_that_is_refused_before_its_time_is_replaced(gateway: CatalogGateway) -> None:
    endpoint = parse(config(gateway, "signed_in"), [])[0]
    with open_catalog(endpoint) as catalog:
        gateway.revoke_tokens()
        assert isinstance(catalog.list_namespaces(), list)
    assert (gateway.refusals, len(gateway.token_requests)) == (1, 2)


def test_each_token_is_asked_for_on_a_new_connection(
    gateway: CatalogGateway,
) -> None:
    with fault_proxy(gateway.uri) as proxy:
        endpoint = parse(config(gateway, "signed_in", oauth2_server_uri=f"{proxy.uri}{TOKEN_PATH}"), [])[0]
        with open_catalog(endpoint) as catalog:
            gateway.revoke_tokens()
            assert isinstance(catalog.list_namespaces(), list)
        assert (len(proxy.seen), len(proxy.clients)) == (2, 2)


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({"credential": "robot:planted-and-wrong"}, "invalid_client: who is that?"),
        ({"scope": "too much"}, "invalid_scope"),
        ({"credential": None, "token": "planted-and-old"}, "UnauthorizedException: the token has expired"),
    ],
)
def test_a_sign_in_that_is_refused_says_what_to_check(gateway: CatalogGateway, changed: Json, answer: str) -> None:
    with pytest.raises(UserError, match="does not accept the sign-in") as raised:
        use(config(gateway, "signed_in", **changed), ("signed_in", "never"))
    assert answer in str(raised.value)
    assert "planted" not in str(raised.value)


def test_a_credential_that_is_revoked_in_mid_run_is_told_and_loses_nothing(
    gateway: CatalogGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", 0.001)
    path = TableIdentifier("signed_in", "revoked")
    endpoint = config(gateway, path[0])
    with open_catalog(parse(endpoint, [])[0]) as catalog:
        foreign_table(catalog, path)
        staged = stage(catalog, path, WRITER, 1, 2)
        gateway.revoke_tokens()
        gateway.secret = "another"
        with pytest.raises(UserError) as error:
            commit.commit_all_or_raise(catalog, [staged])
    check_text("mid_run_errors", "the catalog's credential is revoked", str(error.value))
    with open_catalog(parse({**endpoint, **config(gateway, path[0])}, [])[0]) as catalog:
        commit.commit_all_or_raise(catalog, [staged])
        assert ids_of(catalog, path) == [1, 2]


@pytest.mark.spark
def test_a_run_of_more_than_three_token_lifetimes_notices_nothing(
    hasty_gateway: CatalogGateway, tmp_path: Path, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    endpoint_config = config(hasty_gateway, NAMESPACE)
    collection = replace(LEDGER, table="of_a_long_run")
    runtime = Runtime(tmp_path, [collection], endpoint_config)
    ids: list[int] = []
    with runtime.open(publish=True) as session:
        enough = len(hasty_gateway.token_requests) + 2 * 3 + 1  # each is used for half of its life
        while len(hasty_gateway.token_requests) < enough:
            ids.append(len(ids))
            session.transaction({"id": ids[-1], "note": "still here"})
        assert session.finish().status == 0
    with open_catalog(parse(endpoint_config, [])[0]) as catalog:
        metadata = catalog.load_table((NAMESPACE, collection.table)).metadata_location
    assert [row["id"] for row in duckdb_rows(duckdb_reader, metadata, "id")] == ids


def test_a_server_cannot_turn_on_the_machine_s_credentials(rest_catalog: RestCatalogServer) -> None:
    path = ("signed_in", "of_no_machine")
    with (
        catalog_gateway(rest_catalog.uri, 3600, lambda: {ADLS_MACHINE_CREDENTIALS: "/a/token"}) as gateway,
        open_catalog(parse(config(gateway, path[0]), [])[0]) as catalog,
    ):
        catalog.create_namespace_if_not_exists(path[0])
        assert ADLS_MACHINE_CREDENTIALS not in catalog.create_table(path, SCHEMA).io.properties
