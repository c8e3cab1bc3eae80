"""Google's store or Azure's fails between a transaction's files and its commit: the error says what, and nothing is
lost or doubled."""

import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias

import pytest

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Failed
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage import arrow_file_io
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.azure import ACCOUNT, AzureStore
from support.servers.google import GoogleStore
from support.servers.postgres import Postgres
from support.servers.server_process import free_address
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY, ids_of
from support.tables.outcomes import try_commits

pytestmark = pytest.mark.catalog


Storage: TypeAlias = Mapping[str, Json]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)


@pytest.fixture
def on_google(google: GoogleStore) -> Storage:
    place = {"storage_type": "Google Cloud Storage", "bucket": google.new_bucket(), "endpoint": google.uri}
    return {**place, "service_account_json": google.service_account()}


@pytest.fixture
def on_azure(azure: AzureStore) -> Storage:
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": azure.new_container(), "endpoint": azure.uri}
    return {**place, "sas_token": azure.sas_token()}


def down(_: object) -> Storage:
    return {"endpoint": f"http://{free_address()}"}


GOOGLE_FAILURES: Final[Mapping[str, Callable[[GoogleStore], Storage]]] = {
    "Google's store goes down": down,
    "Google's token is revoked": lambda google: {"service_account_json": google.service_account(lifetime=0)},
    "Google's permission is taken away": lambda google: {"service_account_json": google.service_account("GET")},
}
AZURE_FAILURES: Final[Mapping[str, Callable[[AzureStore], Storage]]] = {
    "Azure's store goes down": down,
    "Azure's SAS token ends": lambda azure: {"sas_token": azure.sas_token(lasts=timedelta(hours=-1))},
    "Azure's permission is taken away": lambda azure: {"sas_token": azure.sas_token("rl")},
}


@pytest.mark.parametrize("name", GOOGLE_FAILURES)
def test_a_failure_of_google_s_is_told_and_loses_nothing(
    google: GoogleStore, on_google: Storage, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(arrow_file_io, "RETRY_SECONDS", 1)
    fail_and_land(postgres, name, on_google, {**on_google, **GOOGLE_FAILURES[name](google)})


@pytest.mark.parametrize("name", AZURE_FAILURES)
def test_a_failure_of_azure_s_is_told_and_loses_nothing(
    azure: AzureStore, on_azure: Storage, postgres: Postgres, name: str
) -> None:
    fail_and_land(postgres, name, on_azure, {**on_azure, **AZURE_FAILURES[name](azure)})


def fail_and_land(postgres: Postgres, name: str, storage: Storage, failing: Storage) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")
    endpoint = config(postgres, storage)
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace(path[0])
        catalog.create_table(path, ID_ONLY, location=table_location(endpoint, path))
        staged = stage(catalog, path, WRITER, 1, 2)
        with open_catalog(config(postgres, failing)) as without_store:
            (outcome,) = try_commits(without_store, [staged], without_retry=[staged.chain_id])
        assert isinstance(outcome, Failed)
        bucket = storage.get("bucket") or storage["container"]
        placeholders = {path[0]: "shop", bucket: "BUCKET", failing["endpoint"]: "ENDPOINT"}
        check_text("mid_run_errors", name, str(outcome.error), placeholders)
        commit.commit_all_or_raise(catalog, [staged])
        assert ids_of(catalog, path) == [1, 2]


def config(postgres: Postgres, storage: Storage) -> EndpointConfig:
    catalog = {"catalog_type": "SQL", "uri": postgres.uri, "password": postgres.password}
    return parse({"namespace": "shop", "catalog": catalog, "storage": storage}, [])[0]
