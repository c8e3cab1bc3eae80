"""A REST catalog: how it is signed in to and reached, and what its errors say."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from connector.config.catalog import RestCatalog
from connector.config.credentials import AwsIam
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.config.storage import AzureStorage, S3Storage
from connector.host.errors import RetryableError, UserError
from connector.host.http_time_limits import TimeLimits
from connector.iceberg.catalogs import retry_after
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.catalogs.rest import open_rest
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import access_to
from iceberg.catalog_configs import IMPATIENT, KEYS, SCHEMA, on_s3, rest
from support.bindings import PATH
from support.servers.certificate import new_certificate
from support.servers.odd_servers import Dripping, answering, dripping, silent
from support.servers.rest_catalog import RestCatalogServer
from support.servers.server_process import free_address
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, prepend_to_log


@pytest.fixture
def silent_uri() -> Iterator[str]:
    with silent() as uri:
        yield uri


@pytest.fixture
def refusing_uri() -> str:
    """An address where nobody listens."""
    return f"http://{free_address()}"


def test_a_rest_catalog_signs_in_and_asks_for_its_warehouse() -> None:
    with answering(200, json.dumps({"access_token": "fresh", "token_type": "bearer", "defaults": {}})) as server:
        credential = Secret("client:planted")
        with open_catalog(on_s3(rest(f"{server.uri}/catalog", credential=credential, scope="all"))):
            pass
    token, configuration = server.requests[:2]
    assert token[0] == "/catalog/v1/oauth/tokens"
    assert token[2] == "grant_type=client_credentials&client_id=client&client_secret=planted&scope=all"
    assert configuration[:2] == ("/catalog/v1/config?warehouse=wh", "Bearer fresh")


def test_a_rest_catalog_of_one_warehouse_is_not_asked_for_its_name() -> None:
    with answering(200, json.dumps({"defaults": {}, "overrides": {}})) as server:
        open_rest(RestCatalog(server.uri), {})
    assert [path for path, _, _ in server.requests] == ["/v1/config"]


@pytest.mark.parametrize(
    ("properties", "asked_for"), [({}, "vended-credentials"), ({"header.X-Iceberg-Access-Delegation": ""}, "")]
)
def test_a_rest_catalog_is_asked_to_vend_credentials_unless_a_property_says_otherwise(
    properties: dict[str, str], asked_for: str
) -> None:
    with answering(200, json.dumps({"defaults": {}, "overrides": {}, "namespaces": []})) as server:
        open_rest(RestCatalog(server.uri, properties=Properties(properties)), {}).list_namespaces()
    assert server.headers[-1]["X-Iceberg-Access-Delegation"] == asked_for


BUCKET_KEYS = {"bucket": "b", "region": "us-east-1", "credentials": KEYS}
OF_A_ROLE = AwsIam("arn:aws:iam::123456789012:role/flow", "us-east-1", "keyid", Secret("planted"))
DELEGATION = "X-Iceberg-Access-Delegation"
ASKS = Properties({f"header.{DELEGATION.lower()}": "vended-credentials"})


@pytest.mark.parametrize(
    ("settings", "properties", "asked_for", "key"),
    [
        (BUCKET_KEYS, Properties(), None, "keyid"),
        ({"storage": S3Storage("b", "us-east-1", credentials=KEYS)}, Properties(), None, "keyid"),
        ({"storage": S3Storage("b", "us-east-1"), "credentials": KEYS}, Properties(), None, "keyid"),
        (BUCKET_KEYS, Properties({f"header.{DELEGATION}": ""}), None, "keyid"),
        (BUCKET_KEYS, ASKS, "vended-credentials", "vended"),
        ({**BUCKET_KEYS, "bucket": ""}, Properties(), "vended-credentials", "vended"),
        ({**BUCKET_KEYS, "region": ""}, Properties(), "vended-credentials", "vended"),
        ({**BUCKET_KEYS, "credentials": OF_A_ROLE}, Properties(), "vended-credentials", "vended"),
        ({**BUCKET_KEYS, "credentials": None}, Properties(), "vended-credentials", "vended"),
    ],
)
def test_keys_of_a_bucket_that_the_config_names_are_used_and_no_others_are_asked_for_unless_a_header_does(
    settings: Mapping[str, Any], properties: Properties, asked_for: str | None, key: str
) -> None:
    """The server vends in any case, as some do."""
    metadata = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://b/t", {})
    vended = {"s3.access-key-id": "vended", "s3.secret-access-key": "planted", "s3.session-token": "passing"}
    table = {"metadata-location": "s3://b/t/1.json", "metadata": metadata.model_dump(mode="json"), "config": vended}
    with answering(200, json.dumps({"defaults": {}, "overrides": {}, **table})) as server:
        config = EndpointConfig(namespace="ns", catalog=rest(server.uri, properties=properties), **settings)
        with open_catalog(config) as catalog:
            found = access_to(catalog.load_table(("ns", "t")))
    assert server.headers[-1].get(DELEGATION, server.headers[-1].get(DELEGATION.lower())) == asked_for
    assert found.value["s3.access-key-id"] == key
    assert found.value.get("s3.session-token") == {"keyid": "session", "vended": "passing"}[key]
    assert (found.expires_at is None) == (key == "keyid")


ELSEWHERE = {"adls.dfs-storage-authority": "theirs", "adls.account-name": "theirs"}


@pytest.mark.parametrize("sent", ["config", "defaults", "overrides"])
@pytest.mark.parametrize(("vended", "address"), [({}, None), ({"adls.sas-token": "vended"}, "theirs")])
def test_a_token_of_the_config_is_not_sent_to_a_store_that_the_server_names(
    sent: str, vended: Mapping[str, str], address: str | None
) -> None:
    metadata = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "abfss://c@lake/t", {})
    table = {"metadata-location": "abfss://c@lake/t/1.json", "metadata": metadata.model_dump(mode="json")}
    answer = {"defaults": {}, "overrides": {}, "config": {}, **table, sent: {**ELSEWHERE, **vended}}
    with answering(200, json.dumps(answer)) as server:
        storage = AzureStorage("lake", "c", sas_token=Secret("planted"))
        config = EndpointConfig(namespace="ns", catalog=rest(server.uri), storage=storage)
        with open_catalog(config) as catalog:
            found = access_to(catalog.load_table(("ns", "t"))).value
    assert found["adls.sas-token"] == vended.get("adls.sas-token", "planted")
    assert found.get("adls.dfs-storage-authority") == address
    assert vended or found["adls.account-name"] == "lake"


def test_a_credential_without_a_client_id_is_the_secret_and_goes_before_a_token() -> None:
    with answering(200, json.dumps({"access_token": "fresh", "token_type": "bearer", "defaults": {}})) as server:
        signing_in = {"credential": Secret("planted"), "token": Secret("unused")}
        with open_catalog(on_s3(rest(server.uri, **signing_in))):
            pass
    token, configuration = server.requests[:2]
    assert token[2] == "grant_type=client_credentials&client_secret=planted&scope=catalog"
    assert configuration[:2] == ("/v1/config?warehouse=wh", "Bearer fresh")


def test_a_rest_catalog_is_reached_through_the_proxy_that_the_environment_had_when_it_was_opened(
    monkeypatch: pytest.MonkeyPatch, refusing_uri: str
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering(200, '{"defaults": {}, "overrides": {}, "namespaces": []}') as proxy:
        monkeypatch.setenv("http_proxy", proxy.uri)
        catalog = open_rest(rest(refusing_uri), {})
        monkeypatch.delenv("http_proxy")
        catalog.list_namespaces()
    assert [path.partition("?")[0] for path, _, _ in proxy.requests] == [
        f"{refusing_uri}/v1/config",
        f"{refusing_uri}/v1/namespaces",
    ]


def test_a_host_that_the_environment_exempts_from_its_proxy_is_reached_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, '{"defaults": {}, "overrides": {}}') as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", urlsplit(server.uri).hostname or "")
        open_rest(rest(server.uri), {})
    assert len(server.requests) == 1


def test_a_rest_catalog_presents_its_token() -> None:
    with answering(200, "{}") as server, open_catalog(on_s3(rest(server.uri, token=Secret("bearer")))):
        assert server.requests == [("/v1/config?warehouse=wh", "Bearer bearer", "")]


@pytest.mark.parametrize(("name", "credential"), [("silence", None), ("token server silent", Secret("client:planted"))])
def test_a_rest_catalog_that_never_answers_is_not_waited_for(
    silent_uri: str, name: str, credential: Secret | None
) -> None:
    catalog = rest(silent_uri, credential=credential)
    with pytest.raises(RetryableError) as error, translate_errors(on_s3(catalog)):
        open_rest(catalog, {}, IMPATIENT)
    check_text("catalog_errors", f"REST: {name}", str(error.value), {silent_uri: "URI"})


def test_an_open_rest_catalog_that_falls_silent_is_not_waited_for(silent_uri: str) -> None:
    with answering(200, json.dumps({"defaults": {}, "overrides": {"uri": silent_uri}})) as server:
        catalog = rest(server.uri)
        opened = open_rest(catalog, {}, IMPATIENT)
    with pytest.raises(RetryableError, match="did not answer in time"), opened, translate_errors(on_s3(catalog)):
        opened.list_namespaces()


@pytest.mark.parametrize("what", Dripping)
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(what: Dripping) -> None:
    with dripping(what) as (uri, has_ended):
        catalog = rest(uri)
        late = f"the REST catalog at {uri} did not answer in time"
        with pytest.raises(RetryableError, match=late), translate_errors(on_s3(catalog)):
            open_rest(catalog, {}, TimeLimits(connect=10, read=10, whole=0.3))
        assert not has_ended.is_set()


@pytest.mark.parametrize("what", Dripping)
def test_an_encrypted_answer_that_comes_byte_by_byte_is_not_waited_for_either(
    what: Dripping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = new_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.certificate))
    with dripping(what, certificate) as (uri, has_ended):
        catalog = rest(uri)
        late = f"the REST catalog at {uri} did not answer in time"
        with pytest.raises(RetryableError, match=late), translate_errors(on_s3(catalog)):
            open_rest(catalog, {}, TimeLimits(connect=10, read=10, whole=0.5))
        assert not has_ended.is_set()


def test_a_rest_catalog_that_is_not_there_may_be_tried_again(refusing_uri: str) -> None:
    with pytest.raises(RetryableError, match=f"the REST catalog at {refusing_uri}/catalog cannot be reached"):
        open_catalog(on_s3(rest(f"{refusing_uri}/catalog")))


def error_body(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "SomeException", "code": 400}})


@pytest.mark.parametrize(
    ("status", "body", "kind", "sentence"),
    [
        (200, "<html>welcome</html>", UserError, "answers, but not as an Iceberg REST catalog does"),
        (400, error_body("no warehouse wh"), UserError, "refused the request: SomeException: no warehouse wh. Check"),
        (401, error_body("who?"), UserError, "does not accept the sign-in: SomeException: who?. Check"),
        (403, error_body("never."), UserError, "forbids this: SomeException: never. Give"),
        (404, "<html>not found</html>", UserError, "answers, but not as an Iceberg REST catalog does"),
        (419, error_body("late"), UserError, "does not accept the sign-in"),
        (429, error_body("slowly"), RetryableError, "gets too many requests: SomeException: slowly"),
        (500, error_body("broken"), RetryableError, "is not able to answer now"),
        (503, "", RetryableError, "is not able to answer now"),
    ],
)
def test_what_a_rest_catalog_refuses_is_explained(
    status: int, body: str, kind: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_after, "PAUSES", (0.0,))
    with answering(status, body) as server, pytest.raises(kind) as raised:
        open_catalog(on_s3(rest(server.uri, token=Secret("bearer"))))
    assert str(raised.value).startswith(f"the REST catalog at {server.uri} {sentence}")


def test_a_refused_credential_is_not_repeated_by_the_error() -> None:
    body = json.dumps(
        {"error": "invalid_client", "error_description": "client:planted-word is wrong, so is planted-word"}
    )
    with answering(401, body) as server, pytest.raises(UserError, match="does not accept the sign-in") as raised:
        open_catalog(on_s3(rest(server.uri.replace("//", "//user:inside@"), credential=Secret("client:planted-word"))))
    assert "invalid_client: *** is wrong, so is ***" in str(raised.value)
    assert "inside" not in str(raised.value)


@pytest.mark.parametrize("error", [CommitStateUnknownException("?"), NoSuchTableError("t")])
def test_what_only_the_caller_can_judge_passes_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, translate_errors(on_s3(rest("http://host"))):
        raise error
    assert raised.value is error


@pytest.mark.catalog
def test_a_real_rest_catalog_places_tables_where_no_bucket_is_given(rest_catalog: RestCatalogServer) -> None:
    endpoint = EndpointConfig(namespace="ns", catalog=rest(rest_catalog.uri))
    path = TableIdentifier("catalogs", "t")
    assert table_location(endpoint, path) is None
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace(path[0])
        table = catalog.create_table(path, SCHEMA, location=table_location(endpoint, path))
    assert table.location().startswith(f"file://{rest_catalog.warehouse}")


def test_a_commit_of_pyiceberg_deletes_no_file_that_the_log_of_a_table_names(catalog: Catalog, tmp_path: Path) -> None:
    """The server deletes old metadata. Anyone who can commit to the table writes its log."""
    asks = {"write.metadata.delete-after-commit.enabled": "true"}
    table = foreign_table(catalog, PATH, properties=asks)
    (file := tmp_path / "of-others.metadata.json").write_text("{}")
    prepend_to_log(table, file.as_uri())
    before = catalog.load_table(PATH)
    answer = {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json())}
    with answering(200, json.dumps({"defaults": {}, "overrides": {}, **answer})) as server:
        rest = open_rest(RestCatalog(server.uri), {})
        with Table(before.name(), before.metadata, before.metadata_location, before.io, rest).transaction() as change:
            change.set_properties({"a": "b"})
    assert [path for path, _, _ in server.requests] == ["/v1/config", "/v1/namespaces/shop/tables/orders"]
    assert file.exists()
