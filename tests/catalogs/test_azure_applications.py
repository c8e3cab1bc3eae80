"""An application of Azure's signs in with its secret: the connector and its tasks get tokens, and the storage wants
them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fixtures.collection import NAMESPACE
from support.servers.azure import ACCOUNT, AzureStore, azure_store, azurite
from support.servers.certificate import Certificate, new_certificate
from support.servers.entra import Entra, entra
from support.servers.postgres import Postgres
from support.sessions.leftovers import Watch, exposed
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

Json: TypeAlias = Any


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """One that this process and those that it starts trust."""
    made = new_certificate(tmp_path_factory.mktemp("certificate"))
    monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
    return made


@pytest.fixture
def sign_in(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entra]:
    with entra(certificate) as running:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", running.uri)
        yield running


@pytest.fixture
def store(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStore]:
    with azure_store(azurite(), tmp_path_factory.mktemp("azure-over-tls"), certificate) as running:
        yield running


@pytest.mark.slow  # the next test signs in at the same server
def test_a_run_signs_in_with_the_machine_s_identity(
    postgres: Postgres, store: AzureStore, sign_in: Entra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes offers it to a pod: a file with a token of the cluster."""
    token_file = tmp_path / "token"
    token_file.write_text("planted-and-wrong")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token_file))
    monkeypatch.setenv("AZURE_TENANT_ID", sign_in.tenant)
    monkeypatch.setenv("AZURE_CLIENT_ID", sign_in.client)
    collection = replace(LEDGER, table="of_a_machine")
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": store.new_container(), "endpoint": store.uri}
    endpoint = {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "advanced": {"feature_flags": "use_machine_credentials"},
        "catalog": catalog,
        "storage": place,
    }
    outcome = Runtime(tmp_path, [collection], endpoint).apply_and_fail()
    placeholders = {store.uri: "STORE", place["container"]: "CONTAINER"}
    check_text(
        "azure_errors", "wrong identity of the machine", outcome.last_log_line.partition(" error ")[2], placeholders
    )

    token_file.write_text(sign_in.cluster_token)
    runtime = Runtime(tmp_path, [collection], endpoint)
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1}, {"id": 2})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    with SqlCatalog("iceberg", uri=postgres.with_password(catalog["uri"]), **store.file_properties()) as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def config(catalog: Json, store: AzureStore, sign_in: Entra, watch: Watch) -> Mapping[str, Json]:
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": store.new_container(), "endpoint": store.uri}
    application = {"tenant_id": sign_in.tenant, "client_id": sign_in.client, "client_secret": sign_in.secret}
    return {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "advanced": {"spark": watch.spark_settings},
        "catalog": catalog,
        "storage": {**place, **application},
    }


def test_a_run_signs_in_with_an_application_s_secret_which_nobody_sees(
    postgres: Postgres, store: AzureStore, sign_in: Entra, tmp_path: Path
) -> None:
    collection, watch = replace(LEDGER, table="of_an_application"), Watch.over(tmp_path)
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    endpoint = config(catalog, store, sign_in, watch)
    refused = {**endpoint, "storage": {**endpoint["storage"], "client_secret": "planted-and-wrong"}}
    outcome = Runtime(watch.work, [collection], refused, watch.environment).apply_and_fail()
    check_text("azure_errors", "wrong client secret", outcome.last_log_line.partition(" error ")[2])

    runtime = Runtime(watch.work, [collection], endpoint, watch.environment)
    with runtime.start(publish=True) as session:
        session.opened()
        session.acknowledge()
        session.transaction({"id": 1}, {"id": 2})
        running = watch.seen()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    with SqlCatalog("iceberg", uri=postgres.with_password(catalog["uri"]), **store.file_properties()) as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    secrets = ["planted-and-wrong", sign_in.secret, *sign_in.issued]
    assert exposed([*running, *watch.left(), ("state", json.dumps(runtime.log).encode())], secrets) == []
