"""A catalog that goes down in the middle of a run is named, and what was staged lands once when it is back."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from connector.config.settings import parse
from connector.iceberg.catalogs import local
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.commits.commit_outcomes import Committed, Failed
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE, Json
from support.rows.staged_files import stage
from support.servers.endpoint_configs import glue, on_s3
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, always, fault_proxy
from support.servers.hive import IN_ONE_WORKER, Metastore
from support.servers.metastore_proxy import MetastoreProxy, metastore_proxy
from support.servers.postgres import Postgres
from support.servers.s3_server import S3Server
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY, ids_of
from support.tables.outcomes import try_commits

pytestmark = pytest.mark.catalog


Config: TypeAlias = Mapping[str, Json]
Down: TypeAlias = AbstractContextManager[None]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
NO_ANSWER: Final = Fault(0, Answer.NONE)
# How long it took, and the servers' addresses.
VARYING: Final = {r"for \d+ s": "for N s", r"port \d+": "port N", r"127\.0\.0\.1:\d+": "ADDRESS"}


@contextmanager
def on_sql(request: pytest.FixtureRequest, directory: Path) -> Iterator[tuple[Config, Down]]:
    postgres: Postgres = request.getfixturevalue("postgres")
    catalog = {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password}
    yield {"catalog": catalog, **in_files(directory)}, postgres.down()


@contextmanager
def on_glue(request: pytest.FixtureRequest, _: Path) -> Iterator[tuple[Config, Down]]:
    s3: S3Server = request.getfixturevalue("s3_server")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    with fault_proxy(request.getfixturevalue("glue_uri")) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", proxy.uri)
        yield on_s3(s3, s3.new_bucket(), "unused", glue()), without_answers(proxy)


@contextmanager
def on_hive(request: pytest.FixtureRequest, directory: Path) -> Iterator[tuple[Config, Down]]:
    metastore: Metastore = request.getfixturevalue("metastore")
    with metastore_proxy(metastore.uri) as proxy:
        yield (
            {"catalog": {"catalog_type": "Hive Metastore", "uri": proxy.uri}, **in_files(directory)},
            (without_answers(proxy)),
        )


@contextmanager
def on_local(request: pytest.FixtureRequest, directory: Path) -> Iterator[tuple[Config, Down]]:
    request.getfixturevalue("monkeypatch").setattr(local, "BUSY_SECONDS", 0)
    yield {"catalog": {"catalog_type": "Local", "warehouse": str(directory)}}, locked(directory)


def in_files(directory: Path) -> Config:
    return {"storage": {"storage_type": "Local Files", "directory": str(directory)}}


@contextmanager
def without_answers(proxy: FaultProxy | MetastoreProxy) -> Iterator[None]:
    proxy.choose = always(NO_ANSWER)
    yield
    proxy.choose = lambda _: GENUINE


@contextmanager
def locked(warehouse: Path) -> Iterator[None]:
    """By a process that writes, and does not end."""
    with closing(sqlite3.connect(warehouse / "catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


CATALOGS: Final = {"SQL": on_sql, "Glue": on_glue, "Hive": on_hive, "Local": on_local}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=IN_ONE_WORKER if name == "Hive" else ()) for name in CATALOGS]
)
def test_a_catalog_that_goes_down_is_named_and_takes_what_was_staged_when_it_is_back(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = TableIdentifier(f"shop_{tmp_path.name.lower()}", "orders")
    with CATALOGS[name](request, tmp_path) as (config, down):
        endpoint = parse({**config, "namespace": path[0]}, [])[0]
        with open_catalog(endpoint) as catalog:
            catalog.create_namespace(path[0])
            catalog.create_table(path, ID_ONLY, location=table_location(endpoint, path))
            staged = stage(catalog, path, WRITER, 1, 2)
            with down:
                # On connections that are still open.
                try_commits(catalog, [staged], without_retry=[staged.chain_id])
                [outcome] = try_commits(catalog, [staged], without_retry=[staged.chain_id])
                assert isinstance(outcome, Failed)
            [landed] = try_commits(catalog, [staged])
            assert isinstance(landed, Committed)
            assert ids_of(catalog, path) == [1, 2]
    text = str(outcome.error).replace(path[0], "shop")
    for varying, placeholder in VARYING.items():
        text = re.sub(varying, placeholder, text)
    check_text("mid_run_errors", f"{name} goes down", text)
