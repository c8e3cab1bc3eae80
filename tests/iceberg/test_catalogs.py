"""A config opens its catalog, places its tables, and hears in clear words why a catalog cannot be used."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from msgspec.structs import replace
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.config.catalog import GlueCatalog, LocalCatalog, RestCatalog, SqlCatalog
from connector.config.credentials import AwsCredentials, MachineCredentials
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.host.errors import RetryableError, UserError
from connector.host.refresh import Lease
from connector.iceberg.catalogs import opening, retry_after
from connector.iceberg.catalogs.opening import load_opened_table, open_catalog, table_location, translate_errors
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.catalogs.time_limits import TimeLimits
from connector.model.properties import Properties
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_access import STORE_FILE_IO, keep_access_fresh
from connector.storage.file_stores import data_file_properties
from protocol.flow import Json
from support.certificate import new_certificate
from support.odd_servers import Dripping, Server, answering, dripping, silent
from support.rest_catalog import RestCatalogServer
from support.server_process import free_address
from support.small_disk import small_disk
from support.snapshots import check_text

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
KEYS = AwsCredentials("keyid", Secret("planted"), Secret("session"))
IMPATIENT = TimeLimits(connect=0.2, read=0.2)


def local(warehouse: Path | None, **settings: Any) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=LocalCatalog(warehouse), **settings)


def on_s3(catalog: RestCatalog | GlueCatalog, **settings: Any) -> EndpointConfig:
    return EndpointConfig(namespace="ns", catalog=catalog, credentials=KEYS, bucket="b", region="us-east-1", **settings)


def rest(uri: str, **settings: Any) -> RestCatalog:
    return RestCatalog(uri, "wh", **settings)


@pytest.fixture
def silent_uri() -> Iterator[str]:
    with silent() as uri:
        yield uri


@pytest.fixture
def refusing_uri() -> str:
    """An address where nobody listens."""
    return f"http://{free_address()}"


def test_access_to_a_table_that_is_gone_cannot_be_refreshed(tmp_path: Path) -> None:
    config, path = local(tmp_path), TableIdentifier("ns", "orders")
    with open_catalog(config) as catalog:
        catalog.create_namespace("ns")
        expired = Lease(Properties(), expires_at=0, renew_at=0)
        access = keep_access_fresh(path, expired, partial(load_opened_table, catalog, config, path))
        with pytest.raises(UserError, match=r"orders was dropped or renamed while the task was running"):
            access.current()


# Local


def test_a_local_catalog_and_its_tables_are_in_the_warehouse_directory(tmp_path: Path) -> None:
    endpoint = local(tmp_path / "a b" / "wh")
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace("ns")
        table = catalog.create_table(("ns", "t"), SCHEMA, location=table_location(endpoint, TableIdentifier("ns", "t")))
    assert catalog.name == "local"
    assert (tmp_path / "a b" / "wh" / "catalog.db").is_file()
    assert Path(table.metadata_location.removeprefix("file://")).is_relative_to(tmp_path / "a b" / "wh" / "ns")
    with open_catalog(endpoint) as again:
        assert again.load_table(("ns", "t")).metadata == table.metadata


@pytest.mark.parametrize(
    "write",
    [
        lambda catalog: catalog.create_namespace("other"),
        lambda catalog: catalog.create_table("ns.t", SCHEMA),
    ],
    ids=["catalog", "metadata"],
)
def test_a_full_disk_is_named_with_the_catalog_that_it_holds(
    tmp_path: Path, write: Callable[[Catalog], object]
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        endpoint = local(disk.directory)
        with open_catalog(endpoint) as catalog:
            catalog.create_namespace("ns")
            with disk.filled(), pytest.raises(RetryableError) as error, translate_errors(endpoint):
                write(catalog)
    check_text("catalog_errors", "Local: a full disk", str(error.value), {str(disk.directory): "DIRECTORY"})


def test_a_new_local_catalog_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    # A round collides with a chance of about one half: ten do not all miss it.
    openers = 8
    outcomes: list[str] = []
    for round_ in range(10):
        barrier = threading.Barrier(openers)

        def open_with_the_others(barrier: threading.Barrier, endpoint: EndpointConfig) -> None:
            barrier.wait()
            with open_catalog(endpoint) as catalog:
                outcomes.append(catalog.name)

        arguments = (barrier, local(tmp_path / str(round_)))
        threads = [threading.Thread(target=open_with_the_others, args=arguments) for _ in range(openers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["local"] * openers * 10


def test_without_a_warehouse_the_process_has_one_temporary_directory_and_says_which(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(opening, "_temporary_warehouse", cache(opening._temporary_warehouse.__wrapped__))
    with open_catalog(local(None)) as first:
        first.create_namespace("ns")
    with open_catalog(local(None)) as second:
        assert second.namespace_exists("ns")
    (directory,) = tmp_path.iterdir()
    assert f"file://{directory}/ns/t_" in str(table_location(local(None), TableIdentifier("ns", "t")))
    assert [record.getMessage() for record in caplog.records if str(directory) in record.getMessage()] == [
        f"the Local catalog has no /catalog/warehouse: its tables go to a temporary directory, {directory}, in which "
        "no other process looks for them"
    ]


def test_a_temporary_warehouse_that_cannot_be_made_is_an_error_that_names_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setattr(opening, "_temporary_warehouse", cache(opening._temporary_warehouse.__wrapped__))
    with pytest.raises(UserError, match=f"no temporary directory in {tmp_path}/missing can be made.*TMPDIR"):
        open_catalog(local(None))


@pytest.mark.parametrize("obstacle", ["wh", "wh/catalog.db/x", "wh/catalog.db"])
def test_a_warehouse_that_cannot_be_used_is_named(tmp_path: Path, obstacle: str) -> None:
    (tmp_path / obstacle).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / obstacle).write_bytes(b"this is no database, and no directory" * 100)
    with pytest.raises(UserError, match=f"the warehouse directory {tmp_path}/wh of the Local catalog cannot be used"):
        open_catalog(local(tmp_path / "wh"))


@pytest.mark.parametrize("name", ["of#1", "of?1", "of 1"])
def test_a_table_is_found_by_a_path_that_would_be_cut_as_a_uri(tmp_path: Path, name: str) -> None:
    """Another engine may have registered it. What writes to the table says what is wrong with its location."""
    catalog = open_catalog(local(tmp_path / "warehouse"))
    catalog.create_namespace("ns")
    made = catalog.create_table("ns.t", SCHEMA).metadata_location.removeprefix("file://")
    metadata = tmp_path / name / "1.metadata.json"
    metadata.parent.mkdir()
    metadata.write_bytes(Path(made).read_bytes())
    catalog.register_table("ns.registered", str(metadata))
    assert catalog.load_table("ns.registered").metadata_location == str(metadata)


def test_tables_of_a_warehouse_that_was_moved_are_found_once_its_old_path_leads_there(tmp_path: Path) -> None:
    old, new, path = tmp_path / "old", tmp_path / "new", ("ns", "t")
    with open_catalog(local(old)) as catalog:
        catalog.create_namespace("ns")
        made = catalog.create_table(path, SCHEMA, location=table_location(local(old), TableIdentifier(*path)))
    old.rename(new)
    file = made.metadata_location.removeprefix("file://")
    with open_catalog(local(new)) as catalog:
        with pytest.raises(UserError) as raised, translate_errors(local(new)):
            catalog.load_table(path)
        old.symlink_to(new)
        assert catalog.load_table(path).metadata == made.metadata
    check_text("catalog_errors", "Local: a moved warehouse", str(raised.value), {file: "FILE", str(new): "NEW"})


# REST


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


# Glue


@contextmanager
def glue_answering(monkeypatch: pytest.MonkeyPatch, status: int, body: Json) -> Iterator[Server]:
    with answering(status, json.dumps(body)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
        yield server


def test_glue_is_opened_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with glue_answering(monkeypatch, 500, {}) as server, open_catalog(on_s3(GlueCatalog())) as catalog:
        assert catalog.name == "glue"
    assert server.requests == []


def test_the_machine_s_keys_are_used_where_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    endpoint = replace(on_s3(GlueCatalog()), credentials=MachineCredentials())
    with glue_answering(monkeypatch, 200, {"DatabaseList": []}) as server, open_catalog(endpoint) as catalog:
        assert catalog.list_namespaces() == []
    ((_, authorization, _),) = server.requests
    assert "Credential=of-the-machine/" in authorization
    assert data_file_properties(endpoint)["s3.access-key-id"] == "of-the-machine"


def test_a_machine_without_keys_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UserError) as error:
        data_file_properties(replace(on_s3(GlueCatalog()), credentials=MachineCredentials()))
    check_text("catalog_errors", "AWS: a machine without keys", str(error.value))


def test_tables_that_are_looked_at_side_by_side_know_glue_s_errors_by_the_same_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    make = ClientExceptionsFactory._create_client_exceptions

    def counted(*service: object) -> object:
        made.append(service)
        return make(*service)

    monkeypatch.setattr(ClientExceptionsFactory, "_create_client_exceptions", counted)
    missing = {"__type": "EntityNotFoundException", "Message": "Database shop not found"}
    with glue_answering(monkeypatch, 400, missing), open_catalog(on_s3(GlueCatalog())) as catalog:
        before_any_thread = len(made)
        assert not catalog.namespace_exists("shop")
    assert len(made) == before_any_thread == 1


@pytest.mark.parametrize(("glue_id", "sent"), [("", {}), ("123", {"CatalogId": "123"})])
def test_glue_is_asked_with_the_config_s_keys_for_its_account(
    monkeypatch: pytest.MonkeyPatch, glue_id: str, sent: Json
) -> None:
    endpoint = on_s3(GlueCatalog(glue_id))
    with glue_answering(monkeypatch, 200, {"DatabaseList": []}) as server, open_catalog(endpoint) as catalog:
        assert catalog.list_namespaces() == []
    ((_, authorization, body),) = server.requests
    assert "Credential=keyid/" in authorization
    assert "/us-east-1/glue/" in authorization
    assert json.loads(body) == sent


def test_what_glue_refuses_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = on_s3(GlueCatalog())
    answer = {"__type": "AccessDeniedException", "Message": "not you."}
    with (
        glue_answering(monkeypatch, 400, answer),
        open_catalog(endpoint) as catalog,
        pytest.raises(UserError) as raised,
        translate_errors(endpoint),
    ):
        catalog.list_namespaces()
    assert str(raised.value) == (
        "AWS Glue in us-east-1 forbids this (AccessDeniedException: not you). "
        "Allow it in the policy of these credentials, or set others in /credentials."
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="https://glue"), RetryableError),
        (ReadTimeoutError(endpoint_url="https://glue"), RetryableError),
        (ClientError({"Error": {"Code": "ThrottlingException", "Message": "slowly"}}, "GetTable"), RetryableError),
        (
            ClientError({"Error": {"Code": "502"}, "ResponseMetadata": {"HTTPStatusCode": 502}}, "GetTable"),
            RetryableError,
        ),
    ],
)
def test_what_botocore_gives_up_on_is_explained(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="AWS Glue in us-east-1 "), translate_errors(on_s3(GlueCatalog())):
        raise error


# Files


def test_workers_get_what_files_take_and_no_catalog_secret() -> None:
    catalog = rest("http://host", credential=Secret("client:other"), token=Secret("bearer"))
    assert data_file_properties(on_s3(catalog, s3_endpoint="http://store")) == {
        "py-io-impl": STORE_FILE_IO,
        "s3.region": "us-east-1",
        "s3.endpoint": "http://store",
        "s3.force-virtual-addressing": "false",
        "s3.access-key-id": "keyid",
        "s3.secret-access-key": "planted",
        "s3.session-token": "session",
        "s3.connect-timeout": "10",
        "s3.request-timeout": "60",
    }


def test_properties_of_files_reach_whoever_opens_them_and_others_do_not() -> None:
    catalog = rest("http://host", properties=Properties({"s3.proxy-uri": "http://proxy", "header.X-Key": "planted"}))
    properties = data_file_properties(on_s3(catalog))
    assert properties["s3.proxy-uri"] == "http://proxy"
    assert "header.X-Key" not in properties


def test_glue_keeps_older_versions_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = on_s3(GlueCatalog(properties=Properties({"glue.skip-archive": "false", "s3.request-timeout": "5"})))
    with glue_answering(monkeypatch, 500, {}), open_catalog(endpoint) as catalog:
        assert (catalog.properties["glue.skip-archive"], catalog.properties["s3.request-timeout"]) == ("false", "5")


def test_local_workers_need_no_keys(tmp_path: Path) -> None:
    assert data_file_properties(local(tmp_path, credentials=KEYS)) == {"py-io-impl": STORE_FILE_IO}


def test_an_s3_endpoint_is_asked_by_path() -> None:
    with answering(404, "") as server:
        properties = data_file_properties(on_s3(GlueCatalog(), s3_endpoint=server.uri))
        assert not load_file_io(properties).new_input("s3://b/lake/file").exists()
    path, authorization, _ = server.requests[0]
    assert path == "/b/lake/file"
    assert "Credential=keyid/" in authorization


# Locations


def test_a_new_table_s_location_is_readable_and_ends_in_a_digest_of_its_name() -> None:
    endpoint = on_s3(GlueCatalog(), prefix="lake/flow")
    assert table_location(endpoint, TableIdentifier("ns", "orders")) == "s3://b/lake/flow/ns/orders_1c168adb00d208e4"
    assert (
        table_location(on_s3(rest("http://host")), TableIdentifier("ns", "orders"))
        == "s3://b/ns/orders_1c168adb00d208e4"
    )


def test_a_local_table_s_location_is_below_the_warehouse(tmp_path: Path) -> None:
    location = table_location(local(tmp_path, prefix="lake"), TableIdentifier("ns", "orders"))
    assert location == f"file://{tmp_path}/lake/ns/orders_1c168adb00d208e4"


@pytest.mark.parametrize(
    ("table", "readable"), [("a b/c#ü?%", "a_b_c____"), ("x" * 300, "x" * 64), ("A-z_0", "A-z_0"), ("../..", "_____")]
)
def test_a_location_holds_no_character_that_a_uri_could_trip_over(table: str, readable: str) -> None:
    location = table_location(on_s3(GlueCatalog()), TableIdentifier("ns", table))
    assert re.fullmatch(f"s3://b/ns/{readable}_[0-9a-f]{{16}}", str(location))


@pytest.mark.parametrize(
    ("one", "other"), [(("ns", "a b"), ("ns", "a_b")), (("n s", "t"), ("n_s", "t")), (("n" * 65, "t"), ("n" * 64, "t"))]
)
def test_no_two_tables_share_a_location(one: TableIdentifier, other: TableIdentifier) -> None:
    assert table_location(on_s3(GlueCatalog()), one) != table_location(on_s3(GlueCatalog()), other)


@pytest.mark.parametrize(
    "parameter", ["sslmode=planned", "connect_timeout=soon", "keepalives=on", "service=nowhere", "require_auth=none,x"]
)
def test_a_parameter_with_a_wrong_value_is_named(parameter: str) -> None:
    catalog = SqlCatalog(f"postgresql://flow@{free_address()}/lake?{parameter}")
    with pytest.raises(UserError, match=r"cannot be reached with these parameters: .*(invalid|bad|not found)") as error:
        open_catalog(EndpointConfig(namespace="ns", catalog=catalog, credentials=KEYS, bucket="b", region="us-east-1"))
    if parameter.startswith("sslmode"):
        text = re.sub(r"127.0.0.1:\d+", "…", str(error.value))
        check_text("catalog_errors", "SQL: a parameter with a wrong value", text)
