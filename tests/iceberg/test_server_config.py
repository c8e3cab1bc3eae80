"""What a REST catalog's own config may change: it must not decide what runs here, who signs in, or which certificates
count."""

import json
from collections.abc import Mapping
from contextlib import closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from requests.exceptions import SSLError

from connector.checks.endpoint import Namespace, open_endpoint, try_to_create
from connector.config.catalog import RestCatalog
from connector.config.endpoint_config import EndpointConfig
from connector.config.secret import Secret
from connector.host.redaction import redact
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.metadata.retention import is_in_nessie
from connector.storage.file_access import file_properties
from iceberg.catalog_configs import SCHEMA
from support.servers.certificate import new_certificate
from support.servers.odd_servers import Server, answering
from support.servers.server_thread import QuietHandler, in_thread

SENT_IN: Final = ("defaults", "overrides")
METADATA: Final = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://b/t", {})
TABLE: Final = {"metadata-location": "s3://b/t/1.json", "metadata": METADATA.model_dump(mode="json")}
EMPTY: Final[Mapping[str, Any]] = {"defaults": {}, "overrides": {}, "namespaces": [], "identifiers": [], **TABLE}


def open_and_list(server: Server) -> Catalog:
    catalog = open_rest(RestCatalog(server.uri, token=Secret("bearer")), file_properties())
    catalog.list_namespaces()
    return catalog


@pytest.mark.parametrize("sent_in", SENT_IN)
def test_the_server_s_config_runs_no_program(sent_in: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    auth = {"type": "custom", "impl": "subprocess.check_call", "custom": {"args": ["touch", str(made)]}}
    with answering(200, json.dumps({**EMPTY, sent_in: {"auth": auth}})) as server:
        open_and_list(server)
    assert not made.exists()


@pytest.mark.parametrize("sent_in", SENT_IN)
def test_the_server_s_config_does_not_sign_with_the_machine_s_credentials(
    sent_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    signed = {"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1"}
    with answering(200, json.dumps({**EMPTY, sent_in: signed})) as server:
        open_and_list(server)
    assert [authorization for _, authorization, _ in server.requests] == ["Bearer bearer"] * 2


@pytest.mark.parametrize("sent_in", SENT_IN)
def test_the_server_s_config_does_not_send_requests_for_tokens(sent_in: str) -> None:
    with answering(200, json.dumps({"access_token": "t", "token_type": "bearer"})) as other:
        sent = {"credential": "robot:word", "oauth2-server-uri": f"{other.uri}/inside"}
        with answering(200, json.dumps({**EMPTY, sent_in: sent})) as server:
            open_and_list(server)
    assert not other.requests


def test_the_server_s_config_does_not_turn_off_the_check_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    untrusted = ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler)
    untrusted.socket = new_certificate(tmp_path).served(untrusted.socket)
    sent = {"uri": f"https://127.0.0.1:{untrusted.server_port}", "ssl": {"cabundle": False}}
    config = json.dumps({**EMPTY, "overrides": sent})
    with in_thread(untrusted), answering(200, config) as server, pytest.raises(SSLError):
        open_and_list(server)
    assert [path for path, _, _ in server.requests] == ["/v1/config"]


@pytest.mark.parametrize("sent_in", SENT_IN)
@pytest.mark.parametrize("value", [5, True, None, {"a": "b"}, ["s3"]])
def test_what_is_no_text_in_the_server_s_config_is_ignored(sent_in: str, value: object) -> None:
    names = ("prefix", "rest-page-size", "s3.secret-access-key", "s3.endpoint", "token", "header.X-Planted")
    with answering(200, json.dumps({**EMPTY, sent_in: dict.fromkeys(names, value)})) as server:
        catalog = open_and_list(server)
        found = file_properties(catalog.load_table(("ns", "t")).io.properties)
    assert [path for path, _, _ in server.requests][:2] == ["/v1/config", "/v1/namespaces"]
    assert "X-Planted" not in server.headers[-1]
    assert found == file_properties()


@pytest.mark.parametrize("sent_in", SENT_IN)
def test_the_server_s_config_says_how_to_reach_the_catalog_and_the_files(sent_in: str) -> None:
    files = {
        "client.region": "eu-north-1",
        "s3.endpoint": "http://minio:9000",
        "s3.path-style-access": "true",
        "s3.secret-access-key": "planted-in-config",
        "adls.sas-token.lake.dfs.core.windows.net": "planted-in-sas",
    }
    others = {"prefix": "of/warehouse", "rest-page-size": "7", "header.X-Asked": "yes"}
    others |= {"nessie.is-nessie-catalog": "true", "token": "planted-token"}
    with answering(200, json.dumps({**EMPTY, sent_in: {**files, **others}})) as server:
        catalog = open_and_list(server)
        catalog.list_tables("ns")
        table = catalog.load_table(("ns", "t"))
    assert [path for path, _, _ in server.requests[-2:]] == [
        "/v1/of/warehouse/namespaces/ns/tables?pageSize=7",
        "/v1/of/warehouse/namespaces/ns/tables/t",
    ]
    assert server.headers[-1]["X-Asked"] == "yes"
    assert file_properties(table.io.properties) == file_properties(files)
    assert is_in_nessie(table)
    assert redact("planted-in-config planted-in-sas planted-token") == "*** *** ***"


def test_a_token_for_google_in_the_server_s_config_needs_no_time_of_expiry() -> None:
    found = {"kind": "storage#object", "bucket": "b", "name": "k", "size": "2"}
    with answering(200, json.dumps(found)) as store:
        sent = {"gcs.oauth2.token": "planted-token", "gcs.service.host": store.uri}
        with answering(200, json.dumps({**EMPTY, "overrides": sent})) as server:
            table = open_and_list(server).load_table(("ns", "t"))
        assert table.io.new_input("gs://b/k").exists()
    assert {authorization for _, authorization, _ in store.requests} == {"Bearer planted-token"}


def try_creation(server: Server) -> None:
    opened = open_endpoint(EndpointConfig(namespace="ns", catalog=RestCatalog(server.uri)))
    with closing(opened.catalog):
        assert try_to_create(Namespace(opened, "ns", exists=True)) is None


@pytest.mark.parametrize("sent_in", ["config", "storage-credentials", "metadata"])
def test_the_answer_to_a_creation_that_is_only_tried_runs_no_code(
    sent_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"planted_in_{sent_in.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text("raise SystemExit('code of the server')")
    monkeypatch.syspath_prepend(tmp_path)
    sent = {"py-io-impl": f"{module}.FileIO"}
    answer = {
        "config": sent,
        "storage-credentials": [{"prefix": "s3://b", "config": sent}],
        "metadata": {**METADATA.model_dump(mode="json"), "properties": sent},
    }
    with answering(200, json.dumps({**EMPTY, sent_in: answer[sent_in]})) as server:
        try_creation(server)


def test_keys_in_the_answer_to_a_creation_that_is_only_tried_are_hidden() -> None:
    others = [{"prefix": "s3://other", "config": {"s3.secret-access-key": "planted-beside"}}]
    vended = {
        "config": {"s3.secret-access-key": "planted-in-answer", "adls.sas-token": 5},
        "storage-credentials": others,
    }
    with answering(200, json.dumps({**EMPTY, **vended, "metadata-location": None})) as server:
        try_creation(server)
    assert redact("planted-in-answer planted-beside") == "*** ***"
