"""A REST catalog that hands out keys for its tables' files: if the config has none, these live for seconds."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from fixtures.collection import NAMESPACE
from support.servers.catalog_gateway import SCOPE, CatalogGateway, catalog_gateway
from support.servers.endpoint_configs import on_s3, rest
from support.servers.key_vendor import KeyVendor, key_vendor
from support.servers.rest_catalog import RestCatalogOnS3
from support.sessions.leftovers import Watch, exposed
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]

Json: TypeAlias = Any

LIFETIME: Final = 10.0  # seconds, of a key; half of it must do for what a loaded machine uploads at once
PAUSE: Final = 0.5  # seconds, between transactions: more of them in a lifetime show nothing new, and take the processor
FULL_BLOCK: Final = 33  # documents of a MiB each: a task writes them before the transaction ends


@pytest.fixture
def vendor(rest_on_s3: RestCatalogOnS3) -> Iterator[KeyVendor]:
    with key_vendor(rest_on_s3.s3, LIFETIME) as running:
        yield running


@pytest.fixture
def gateway(rest_on_s3: RestCatalogOnS3, vendor: KeyVendor) -> Iterator[CatalogGateway]:
    with catalog_gateway(rest_on_s3.uri, lifetime=3600, vend=vendor.vend) as running:
        yield running


def config(gateway: CatalogGateway) -> Mapping[str, Json]:
    """Neither a bucket nor keys."""
    signing_in = {"credential": gateway.credential, "scope": SCOPE, "oauth2_server_uri": gateway.token_uri}
    return {"namespace": NAMESPACE, "upload_interval": "PT0S", "catalog": {**rest(gateway.uri), **signing_in}}


def ids(server: RestCatalogOnS3, table: str) -> list[int]:
    with server.client() as catalog:
        rows = catalog.load_table((NAMESPACE, table)).scan(selected_fields=("id",)).to_arrow()
    return sorted(rows["id"].to_pylist())


def test_a_run_outlives_its_keys_again_and_again(
    gateway: CatalogGateway, vendor: KeyVendor, rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table="on_vended_keys")
    watch = Watch.over(tmp_path)
    advanced = {"spark": watch.spark_settings}
    runtime = Runtime(watch.work, [collection], {**config(gateway), "advanced": advanced}, watch.environment)
    stored: list[int] = []
    with runtime.open(publish=True) as session:
        of_open = set(vendor.vended)
        while not of_open <= set(vendor.expired) or len(vendor.expired) < len(of_open) + 3:
            stored.append(len(stored))
            session.transaction({"id": stored[-1], "note": "still here"})
            time.sleep(PAUSE)
        running = watch.seen()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert ids(rest_on_s3, collection.table) == stored
    secrets = [gateway.secret, *gateway.tokens, *(keys.secret_access_key for keys in vendor.vended)]
    assert exposed([*running, *watch.left(), ("state", json.dumps(runtime.log).encode())], secrets) == []


@pytest.mark.slow  # other tests with a REST server have keys of their own, too
def test_a_task_with_keys_for_its_bucket_needs_no_others(
    gateway: CatalogGateway, vendor: KeyVendor, rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table="on_its_own_keys")
    of_s3 = on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, config(gateway)["catalog"])
    with Runtime(tmp_path, [collection], of_s3).open(publish=True) as session:
        session.transaction({"id": 0, "note": "here"})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert ids(rest_on_s3, collection.table) == [0]
    assert vendor.vended == []


def test_a_transaction_outlives_the_keys_that_its_first_file_was_opened_with(
    gateway: CatalogGateway, vendor: KeyVendor, rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table="in_a_long_transaction")
    runtime = Runtime(tmp_path, [collection], config(gateway))
    numbers = count()
    with runtime.open(publish=True) as session:
        session.flush()
        for _ in range(2):
            session.store(*({"id": next(numbers), "note": "x" * (1 << 20)} for _ in range(FULL_BLOCK)))
            assert wait_until(partial(set(vendor.vended).issubset, vendor.expired))
        session.start_commit()
        session.acknowledge()
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert ids(rest_on_s3, collection.table) == list(range(2 * FULL_BLOCK))
