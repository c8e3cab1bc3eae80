"""A task whose data files are in Google Cloud Storage."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fixtures.collection import NAMESPACE
from support.google import GoogleStore
from support.postgres import Postgres, postgres_programs, postgres_server
from support.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

LIFETIME = 4  # seconds, of a token; it is renewed when half of that is over


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server(postgres_programs()) as running:
        yield running


def test_a_run_outlives_its_tokens_again_and_again(google: GoogleStore, postgres: Postgres, tmp_path: Path) -> None:
    collection = replace(LEDGER, table=f"on_google_{uuid.uuid4().hex}")
    bucket = google.new_bucket()
    key = google.service_account(lifetime=LIFETIME)
    storage = {"storage_type": "Google Cloud Storage", "bucket": bucket, "prefix": "lake", "endpoint": google.uri}
    config = {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "catalog": {"catalog_type": "SQL", "uri": postgres.uri, "password": postgres.password},
        "storage": {**storage, "service_account_json": key},
    }
    runtime = Runtime(tmp_path, [collection], config)
    runtime.apply()
    stored: list[int] = []
    with runtime.open() as session:
        opened = time.monotonic()
        while time.monotonic() < opened + 3 * LIFETIME:
            stored.append(len(stored))
            session.transaction({"id": stored[-1], "note": "still here"})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    with SqlCatalog("iceberg", uri=postgres.uri_with_password, **google.file_properties()) as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        assert table.location().startswith(f"gs://{bucket}/lake/")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == stored
