"""Data files in Google Cloud Storage: a probe says before anything is written whether that can be, and if not, why."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace
from pyiceberg.io import GCS_SERVICE_HOST, GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS, PY_IO_IMPL

from connector.checks import storage_probe
from connector.checks.endpoint import open_endpoint, try_storage
from connector.checks.steps import Skipped
from connector.config.advanced_options import AdvancedOptions
from connector.config.catalog import RestCatalog, SqlCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.config.storage import GoogleStorage
from connector.config.values import MACHINE_CREDENTIALS
from connector.host.errors import RetryableError, UserError
from connector.storage import arrow_file_io
from connector.storage.file_io import StoreFileIO
from connector.storage.storage_errors import translate_errors
from connector.storage.store_properties import data_file_properties
from support.servers.google import GoogleStore, new_key
from support.servers.odd_servers import answering
from support.servers.server_process import free_address
from support.snapshots import check_text

SQL: Final = SqlCatalog("postgresql://host/lake")


@pytest.fixture
def bucket(google: GoogleStore) -> str:
    return google.new_bucket()


@pytest.fixture
def right(google: GoogleStore, bucket: str) -> GoogleStorage:
    """What works."""
    return GoogleStorage(bucket, "lake/flow", Secret(google.service_account()), endpoint=google.uri)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_file_io, "RETRY_SECONDS", 1)


def probe(
    place: GoogleStorage, catalog: SqlCatalog | RestCatalog = SQL, *, flags: frozenset[str] = frozenset()
) -> str | Skipped:
    config = EndpointConfig(namespace="ns", catalog=catalog, storage=place, advanced=AdvancedOptions(flags))
    return storage_probe.probe(config, data_file_properties(config))


@pytest.mark.parametrize("prefix", ["", "lake/flow"])
def test_a_bucket_that_can_be_used_is_left_as_it_was(
    google: GoogleStore, right: GoogleStorage, bucket: str, prefix: str
) -> None:
    assert probe(replace(right, prefix=prefix)) == f"gs://{bucket}{prefix and f'/{prefix}'}"
    assert google.objects(bucket) == []


def test_what_killed_probes_have_left_behind_is_deleted(
    google: GoogleStore, right: GoogleStorage, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"lake/flow/{storage_probe.new_name()}", "lake/flow/materialize-iceberg-probe-mine", "lake/flow/a/table"]
    for name in names:
        google.call(f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", b"{}")
    probe(right)
    assert set(google.objects(bucket)) == set(names), "another probe may still be under way"
    monkeypatch.setattr(storage_probe, "LONGEST_PROBE", timedelta(seconds=-1))
    probe(right)
    assert set(google.objects(bucket)) == set(names[1:])


def test_this_machine_s_credentials_are_used_where_that_is_allowed(
    google: GoogleStore, right: GoogleStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.json"
    key.write_text(google.service_account())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    without_key = replace(right, service_account=None)
    assert probe(without_key, flags=frozenset({MACHINE_CREDENTIALS})) == right.location
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing"))
    with pytest.raises(UserError) as error:
        probe(without_key, flags=frozenset({MACHINE_CREDENTIALS}))
    check_text("google_errors", "a machine without credentials", str(error.value))


def test_the_probe_sends_its_token_to_no_store_that_a_catalog_s_server_names(right: GoogleStorage) -> None:
    with answering(200, "{}") as theirs:
        sent = {"defaults": {}, "overrides": {GCS_SERVICE_HOST: theirs.uri}}
        with answering(200, json.dumps(sent)) as server:
            config = EndpointConfig(namespace="ns", catalog=RestCatalog(server.uri), storage=right)
            opened = open_endpoint(config)
            with closing(opened.catalog):
                assert try_storage(config, opened) == right.location
    assert theirs.requests == []


def test_who_writes_files_gets_a_token_and_never_the_service_account_s_key(right: GoogleStorage) -> None:
    properties = data_file_properties(EndpointConfig(namespace="ns", catalog=SQL, storage=right))
    assert properties.keys() == {GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS, GCS_SERVICE_HOST, PY_IO_IMPL}
    assert properties[GCS_TOKEN].startswith("planted-token-")


def test_where_a_rest_catalog_hands_out_tokens_nothing_is_tried(right: GoogleStorage) -> None:
    unsigned = replace(right, service_account=None)
    assert isinstance(probe(unsigned, RestCatalog("http://catalog", "lake")), Skipped)


def test_a_file_that_is_gone_is_no_missing_bucket(google: GoogleStore, bucket: str) -> None:
    with pytest.raises(RetryableError, match="a file is gone"), translate_errors(f"gs://{bucket}/file"):
        StoreFileIO(google.file_properties()).new_input(f"gs://{bucket}/file").open()


Change: TypeAlias = Callable[[GoogleStore], Mapping[str, Any]]


def with_key(key: Callable[[GoogleStore], str]) -> Change:
    return lambda google: {"service_account": Secret(key(google))}


REFUSALS: Final[Mapping[str, tuple[Change, type[Exception]]]] = {
    "another's key": (with_key(lambda google: google.service_account(key=new_key())), UserError),
    "no private key": (
        with_key(lambda _: '{"client_email": "a@b", "private_key": "planted", "token_uri": "https://host/token"}'),
        UserError,
    ),
    "no token server": (
        with_key(lambda google: google.service_account(token_server=f"http://{free_address()}")),
        RetryableError,
    ),
    "late token": (with_key(lambda google: google.service_account(lifetime=0)), UserError),
    "may not write": (with_key(lambda google: google.service_account("GET", "DELETE")), UserError),
    "may not read": (with_key(lambda google: google.service_account("POST", "PUT", "DELETE")), UserError),
    "may not delete": (with_key(lambda google: google.service_account("GET", "POST", "PUT")), UserError),
    "no such bucket": (lambda _: {"bucket": "no-such-bucket"}, UserError),
    "nobody listens": (lambda _: {"endpoint": f"http://{free_address()}"}, RetryableError),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", REFUSALS)
def test_what_google_refuses_is_explained(google: GoogleStore, right: GoogleStorage, name: str) -> None:
    change, kind = REFUSALS[name]
    place = replace(right, **change(google))
    with pytest.raises(kind) as raised:
        probe(place)
    assert "planted" not in str(raised.value)
    check_text("google_errors", name, str(raised.value), {place.bucket: "BUCKET"})


@pytest.mark.usefixtures("impatient")
def test_a_store_that_is_not_able_to_answer_may_be_tried_again(right: GoogleStorage) -> None:
    with answering(503, "busy") as server, pytest.raises(RetryableError) as raised:
        probe(replace(right, endpoint=server.uri))
    check_text("google_errors", "busy", str(raised.value), {right.bucket: "BUCKET"})


def test_a_token_server_that_is_not_able_to_answer_may_be_tried_again(
    google: GoogleStore, right: GoogleStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
    with (
        answering(503, '{"error": "server_error", "error_description": "try again"}') as server,
        pytest.raises(RetryableError) as raised,
    ):
        probe(replace(right, service_account=Secret(google.service_account(token_server=server.uri))))
    check_text("google_errors", "a busy token server", str(raised.value))


def test_a_clock_that_is_wrong_is_named(google: GoogleStore, right: GoogleStorage) -> None:
    answer = {
        "error": "invalid_grant",
        "error_description": "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
        "timeframe. Check your iat and exp values in the JWT claim.",
    }
    with answering(400, json.dumps(answer)) as server, pytest.raises(UserError) as raised:
        probe(replace(right, service_account=Secret(google.service_account(token_server=server.uri))))
    check_text("google_errors", "clock", str(raised.value))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("variable", ["CLOUD_STORAGE_EMULATOR_ENDPOINT", "CLOUD_STORAGE_TESTBENCH_ENDPOINT"])
def test_an_emulator_in_the_environment_does_not_replace_the_address_of_the_config(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = {GCS_TOKEN: "planted-token", GCS_TOKEN_EXPIRES_AT_MS: "9999999999999"}
    with answering(404, "{}") as configured, answering(404, "{}") as emulator:
        monkeypatch.setenv(variable, emulator.uri)
        io = StoreFileIO({GCS_SERVICE_HOST: configured.uri, **token})
        assert not io.new_input("gs://lake/file").exists()
    assert configured.requests
    assert not emulator.requests
