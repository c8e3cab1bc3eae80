"""Data files in a container of Azure's: a probe says before anything is written whether that can be, and if not,
why."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace
from pyiceberg.io import ADLS_BLOB_STORAGE_SCHEME, ADLS_DFS_STORAGE_SCHEME

from connector.checks import storage_probe
from connector.checks.steps import Skipped
from connector.config.catalog import RestCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.config.storage import AzureStorage
from connector.host.errors import RetryableError, UserError
from connector.storage.arrow_file_io import ArrowFileIO
from connector.storage.file_access import add_expiry, file_properties, keep_addresses
from connector.storage.file_io import open_file_io, write_small_file
from connector.storage.store_properties import data_file_properties
from support.servers.azure import ACCOUNT, AzureStore, hosts_of
from support.servers.odd_servers import answering
from support.servers.server_process import free_address
from support.snapshots import check_text

SQL: Final = SqlCatalog("postgresql://host/lake")


@pytest.fixture
def container(azure: AzureStore) -> str:
    return azure.new_container()


@pytest.fixture
def right(azure: AzureStore, container: str) -> AzureStorage:
    """What works."""
    return AzureStorage(ACCOUNT, container, "lake/flow", account_key=Secret(azure.key), endpoint=azure.uri)


def probe(place: AzureStorage, catalog: SqlCatalog | RestCatalog = SQL) -> str | Skipped:
    config = EndpointConfig(namespace="ns", catalog=catalog, storage=place)
    return storage_probe.probe(config, data_file_properties(config))


def of_application(secret: str) -> Mapping[str, Any]:
    return {
        "account_key": None,
        "tenant_id": "tenant",
        "client_id": "client",
        "client_secret": Secret(secret),
    }


def of_sas_token(token: str) -> Mapping[str, Any]:
    return {"account_key": None, "sas_token": Secret(token)}


def test_a_location_names_container_and_account_as_other_engines_have_it() -> None:
    location = AzureStorage(ACCOUNT, "tables", "lake/flow").location
    assert location == "abfss://tables@lake.dfs.core.windows.net/lake/flow"
    # PyIceberg's own would write to a container of the name tables@lake.dfs.core.windows.net.
    assert ArrowFileIO.parse_location(location)[2] == "tables/lake/flow"


@pytest.mark.parametrize("prefix", ["", "lake/flow"])
def test_a_container_that_can_be_used_is_left_as_it_was(
    azure: AzureStore, right: AzureStorage, container: str, prefix: str
) -> None:
    place = replace(right, prefix=prefix)
    assert probe(place) == place.location
    assert azure.files(container) == []


@pytest.mark.parametrize("mark", ["", "?"])
def test_a_sas_token_signs_in_with_its_question_mark_and_without(
    azure: AzureStore, right: AzureStorage, mark: str
) -> None:
    assert probe(replace(right, account_key=None, sas_token=Secret(f"{mark}{azure.sas_token()}"))) == right.location


@pytest.mark.parametrize(
    "host", ["lake.dfs.fabric.microsoft.com", "lake.dfs.core.chinacloudapi.cn", "lake.z9.blob.storage.azure.net"]
)
def test_a_vended_sas_token_goes_to_the_host_in_its_name(
    azure: AzureStore, container: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemes = {ADLS_BLOB_STORAGE_SCHEME: "http", ADLS_DFS_STORAGE_SCHEME: "http"}
    vended = add_expiry({f"adls.sas-token.{host}": azure.sas_token(), **schemes})
    location = f"abfss://{container}@{host}/t/file"
    with hosts_of(azure) as (proxy, hosts):
        monkeypatch.setenv("http_proxy", proxy)
        io = open_file_io(keep_addresses(file_properties(vended), {}))
        write_small_file(io, location, b"rows")
        with io.new_input(location).open() as stream:
            assert stream.read() == b"rows"
    assert azure.files(container) == ["t/file"]
    assert {each.replace(".dfs.", ".blob.") for each in hosts} == {host.replace(".dfs.", ".blob.")}


def test_what_killed_probes_have_left_behind_is_deleted(
    azure: AzureStore, right: AzureStorage, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"lake/flow/{storage_probe.new_name()}", "lake/flow/materialize-iceberg-probe-mine", "lake/flow/a/table"]
    for name in names:
        with azure.file_system().open_output_stream(f"{container}/{name}") as stream:
            stream.write(b"{}")
    probe(right)
    assert set(azure.files(container)) == set(names), "another probe may still be under way"
    monkeypatch.setattr(storage_probe, "LONGEST_PROBE", timedelta(seconds=-1))
    probe(right)
    assert set(azure.files(container)) == set(names[1:])


def test_where_a_rest_catalog_hands_out_tokens_nothing_is_tried(right: AzureStorage) -> None:
    assert isinstance(probe(replace(right, account_key=None), RestCatalog("http://catalog", "lake")), Skipped)


def test_an_application_s_secret_gets_to_the_client(right: AzureStorage) -> None:
    signed = replace(right, **of_application("secret"))
    properties = data_file_properties(EndpointConfig(namespace="ns", catalog=SQL, storage=signed))
    application = {"adls.tenant-id": "tenant", "adls.client-id": "client", "adls.client-secret": "secret"}
    assert application.items() <= properties.items()
    ArrowFileIO(properties).new_input(f"{right.location}/file")  # PyArrow takes them


def test_a_token_server_that_cannot_be_reached_may_be_tried_again(
    right: AzureStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"https://{free_address()}"
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", nobody)
    endpoint = right.endpoint.replace("http:", "https:")  # its client sends no token without TLS
    with pytest.raises(RetryableError) as raised:
        probe(replace(right, **of_application("planted"), endpoint=endpoint))
    check_text("azure_errors", "no token server", str(raised.value), {right.container: "CONTAINER", nobody: "ENDPOINT"})


Change: TypeAlias = Callable[[AzureStore], Mapping[str, Any]]


def with_sas(permissions: str = "racwdl", lasts: timedelta = timedelta(hours=1)) -> Change:
    return lambda azure: of_sas_token(azure.sas_token(permissions, lasts))


REFUSALS: Final[Mapping[str, tuple[Change, type[Exception]]]] = {
    "another's key": (lambda _: {"account_key": Secret(b64encode(b"planted").decode())}, UserError),
    "no SAS token": (lambda _: of_sas_token("planted"), UserError),
    "late SAS token": (with_sas(lasts=timedelta(hours=-1)), UserError),
    "may only read": (with_sas("rl"), UserError),
    "may not read": (with_sas("acwdl"), UserError),
    "may not delete": (with_sas("racwl"), UserError),
    "no such container": (lambda _: {"container": "no-such-container"}, UserError),
    "no such account": (lambda _: {"account": "another"}, UserError),
    "nobody listens": (lambda _: {"endpoint": f"http://{free_address()}"}, RetryableError),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_azure_refuses_is_explained(azure: AzureStore, right: AzureStorage, name: str) -> None:
    change, kind = REFUSALS[name]
    place = replace(right, **change(azure))
    with pytest.raises(kind) as raised:
        probe(place)
    assert "planted" not in str(raised.value)
    placeholders = {right.container: "CONTAINER", place.endpoint: "ENDPOINT"}
    check_text("azure_errors", name, str(raised.value), placeholders)


def test_a_clock_that_is_wrong_is_one_of_the_things_to_check(right: AzureStorage) -> None:
    detail = "Request date header too old: 'Sat, 21 Nov 2026 10:00:00 GMT'"
    body = (
        "<Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate the request.</Message>"
        f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail></Error>"
    )
    headers = {"x-ms-error-code": "AuthenticationFailed"}
    with answering(403, body, headers) as server, pytest.raises(UserError) as raised:
        probe(replace(right, endpoint=server.uri))
    check_text("azure_errors", "clock", str(raised.value), {right.container: "CONTAINER"})
