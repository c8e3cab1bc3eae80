"""A REST catalog that takes Google's tokens, which live for an hour, or here for seconds: BigLake's is one."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, translate_errors
from support.servers.endpoint_configs import rest
from support.servers.google import new_key
from support.servers.google_catalog import PROJECT, PROJECT_HEADER, GoogleCatalog, google_catalog
from support.servers.rest_catalog import RestCatalogServer
from support.snapshots import check_text

pytestmark = pytest.mark.catalog


LIFETIME: Final = 2  # seconds
SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True))


@pytest.fixture
def gateway(rest_catalog: RestCatalogServer) -> Iterator[GoogleCatalog]:
    with google_catalog(rest_catalog.uri) as running:
        yield running


def config(gateway: GoogleCatalog, key: str | None = None, *, flags: str = "", **properties: str) -> EndpointConfig:
    properties = {f"header.{PROJECT_HEADER}": PROJECT, **properties}
    catalog = {**rest(gateway.uri), "service_account_json": key, "properties": properties}
    return parse({"namespace": "shop", "catalog": catalog, "advanced": {"feature_flags": flags}}, [])[0]


def use(endpoint: EndpointConfig, table: str) -> None:
    path = ("signed_in_to_google", table)
    with translate_errors(endpoint), open_catalog(endpoint) as catalog:
        catalog.create_namespace_if_not_exists(path[0])
        catalog.create_table(path, SCHEMA)
        assert catalog.load_table(path).name() == path


def test_a_service_account_signs_in_with_one_token(gateway: GoogleCatalog) -> None:
    use(config(gateway, gateway.service_account()), "once")
    assert (len(gateway.issued), gateway.refusals) == (1, 0)


def test_tokens_are_refreshed_before_they_expire(rest_catalog: RestCatalogServer) -> None:
    with google_catalog(rest_catalog.uri, LIFETIME) as gateway:
        with open_catalog(config(gateway, gateway.service_account())) as catalog:
            ends = time.monotonic() + 2 * LIFETIME
            while time.monotonic() < ends:
                assert isinstance(catalog.list_namespaces(), list)
        assert gateway.refusals == 0
        assert len(gateway.issued) > 2


def test_a_token_that_is_refused_before_its_time_is_replaced(gateway: GoogleCatalog) -> None:
    with open_catalog(config(gateway, gateway.service_account())) as catalog:
        gateway.revoke_tokens()
        assert isinstance(catalog.list_namespaces(), list)
    assert (len(gateway.issued), gateway.refusals) == (2, 1)


def test_this_machine_s_credentials_sign_in_if_that_is_allowed(
    gateway: GoogleCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.json"
    key.write_text(gateway.service_account())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    use(config(gateway, flags="use_machine_credentials", **{"rest.auth.type": "google"}), "of_a_machine")
    assert (len(gateway.issued), gateway.refusals) == (1, 0)


def test_who_writes_files_gets_neither_the_key_nor_a_token(gateway: GoogleCatalog) -> None:
    endpoint, path = config(gateway, gateway.service_account()), ("signed_in_to_google", "properties")
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace_if_not_exists(path[0])
        seen = str(catalog.create_table(path, SCHEMA).io.properties)
    assert "PRIVATE KEY" not in seen
    assert "planted" not in seen


def test_a_sign_in_that_google_refuses_is_explained(gateway: GoogleCatalog) -> None:
    with pytest.raises(UserError) as raised:
        use(config(gateway, gateway.service_account(new_key())), "never")
    check_text("google_errors", "a catalog's service account has another key", str(raised.value))


def test_a_token_that_the_catalog_refuses_is_explained(gateway: GoogleCatalog) -> None:
    gateway.lifetime = -1
    with pytest.raises(UserError) as raised:
        use(config(gateway, gateway.service_account()), "never")
    check_text("google_errors", "a catalog refuses Google's token", str(raised.value), {gateway.uri: "CATALOG"})


def test_a_permission_that_is_missing_is_explained(gateway: GoogleCatalog) -> None:
    endpoint = config(gateway, gateway.service_account(), **{f"header.{PROJECT_HEADER}": "another"})
    with pytest.raises(UserError) as raised:
        use(endpoint, "never")
    check_text(
        "google_errors", "a catalog forbids this to a service account", str(raised.value), {gateway.uri: "CATALOG"}
    )
