"""A task whose data files are in Google Cloud Storage."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from fixtures.collection import NAMESPACE
from support.servers.google import GoogleStore
from support.servers.postgres import Postgres
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

LIFETIME = 4  # seconds, of a token; it is renewed when half of that is over
PAUSE = 0.5  # seconds, between transactions: more of them in a lifetime show nothing new, and take the processor


def test_a_run_outlives_its_tokens_again_and_again(google: GoogleStore, postgres: Postgres, tmp_path: Path) -> None:
    collection, database = replace(LEDGER, table="on_google"), postgres.new_database()
    bucket = google.new_bucket()
    key = google.service_account(lifetime=LIFETIME)
    storage = {"storage_type": "Google Cloud Storage", "bucket": bucket, "prefix": "lake", "endpoint": google.uri}
    config = {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "catalog": {"catalog_type": "SQL", "uri": database, "password": postgres.password},
        "storage": {**storage, "service_account_json": key},
    }
    runtime = Runtime(tmp_path, [collection], config)
    stored: list[int] = []
    with runtime.open(publish=True) as session:
        opened = time.monotonic()
        while time.monotonic() < opened + 3 * LIFETIME:
            stored.append(len(stored))
            session.transaction({"id": stored[-1], "note": "still here"})
            time.sleep(PAUSE)
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    with SqlCatalog("iceberg", uri=postgres.with_password(database), **google.file_properties()) as reader:
        table = reader.load_table((NAMESPACE, collection.table))
        assert table.location().startswith(f"gs://{bucket}/lake/")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == stored
