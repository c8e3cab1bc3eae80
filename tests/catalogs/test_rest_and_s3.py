"""The whole connector with its tables in a REST catalog and a bucket, whose servers are not ours."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog
from connector.model.table_identifier import TableIdentifier
from fixtures.collection import encode
from fixtures.conversation import CONFIG, line
from fixtures.orders import COLLECTIONS
from protocol.flow import Json
from support.engines.readers import duckdb_rows
from support.repository import REPOSITORY
from support.rows.conversations import Conversation, hold_conversations
from support.servers.endpoint_configs import aws_keys, on_s3, rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.server_process import free_address
from support.sessions.connector_process import ConnectorProcess, Outcome, run_conversation
from support.sessions.processes import marked, new_mark
from support.tables.compacted_tables import check_compactions

# They share sessions.
pytestmark = [pytest.mark.spark, pytest.mark.catalog, pytest.mark.xdist_group("rest_and_s3")]


ORDERS: Final = (REPOSITORY / "fixtures" / "conversations" / "orders.jsonl").read_bytes().splitlines(keepends=True)
VALIDATE: Final = 1
OPEN: Final = 3  # spec, validate and apply go before it
FIRST_START_COMMIT: Final = next(n for n, request in enumerate(ORDERS) if request.startswith(b'{"startCommit"'))
TABLES: Final = [collection.table for collection in COLLECTIONS]
REST_SECRET: Final = "planted-in-the-rest-credential"
SPARK_SECRET: Final = "planted-in-a-spark-setting"


def config(server: RestCatalogOnS3, namespace: str, **changed: Json) -> Json:
    return {
        **on_s3(server.s3, server.bucket, namespace, catalog_at(server.uri)),
        "advanced": {"spark": {"spark.hadoop.fs.s3a.secret.key": SPARK_SECRET}},
        **changed,
    }


def catalog_at(uri: str) -> Json:
    return {**rest(uri), "credential": f"robot:{REST_SECRET}"}


def orders(endpoint: Json) -> list[bytes]:
    """The orders conversation with another endpoint config."""
    path = b'"resourcePath":["%s"'
    return [
        request
        if request.startswith(b'{"store"')
        else request.replace(encode(CONFIG), encode(endpoint)).replace(
            path % CONFIG["namespace"].encode(), path % endpoint["namespace"].encode()
        )
        for request in ORDERS
    ]


def documents(binding: int) -> list[Json]:
    """What the conversation stores in one table, in any order."""
    stored = [json.loads(request)["store"] for request in ORDERS if request.startswith(b'{"store"')]
    return in_order([store["doc"] for store in stored if store.get("binding", 0) == binding])


def in_order(found: list[Json]) -> list[Json]:
    return sorted(found, key=encode)


def documents_in(rows: pa.Table) -> list[Json]:
    return in_order([json.loads(text) for text in rows["flow_document"].to_pylist()])


# A whole conversation, and what ends one


@pytest.fixture(scope="module")
def held(rest_on_s3: RestCatalogOnS3, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Conversation]:
    nobody = f"http://{free_address()}"
    endpoints = {
        "orders": config(rest_on_s3, "orders"),
        "wrong_secret": config(rest_on_s3, "wrong_secret", credentials=aws_keys(rest_on_s3.s3, "planted-and-wrong")),
        "no_store": config(rest_on_s3, "no_store", s3_endpoint=nobody),
        "no_bucket": config(rest_on_s3, "no_bucket", bucket="no-such-bucket"),
        "no_catalog": config(rest_on_s3, "no_catalog", catalog=catalog_at(nobody)),
    }
    conversations = {name: orders(endpoint) for name, endpoint in endpoints.items()}
    for name in endpoints.keys() - {"orders"}:
        del conversations[name][VALIDATE]  # it would find all of that; what was right then may be wrong by now
    return hold_conversations(conversations, tmp_path_factory.mktemp("on-s3"), {"LOG_LEVEL": "debug"})


@pytest.fixture
def catalog(rest_on_s3: RestCatalogOnS3) -> Iterator[Catalog]:
    with rest_on_s3.client() as opened:
        yield opened


def test_a_conversation_ends_well(held: Mapping[str, Conversation]) -> None:
    outcome = held["orders"].outcome
    assert (outcome.status, outcome.kinds.count("acknowledged")) == (0, 6), outcome.log


@pytest.mark.parametrize(("binding", "table"), list(enumerate(TABLES)))
def test_every_row_is_in_the_bucket_for_pyiceberg_and_duckdb(
    held: Mapping[str, Conversation],
    catalog: Catalog,
    duckdb_on_s3: duckdb.DuckDBPyConnection,
    rest_on_s3: RestCatalogOnS3,
    binding: int,
    table: str,
) -> None:
    assert held["orders"].outcome.status == 0
    loaded = catalog.load_table(("orders", table))
    assert loaded.location().startswith(f"s3://{rest_on_s3.bucket}/lake/flow/orders/{table}_")
    rows = loaded.scan().to_arrow()
    files = loaded.inspect.files()["file_path"].to_pylist()
    assert all(path.startswith(f"{loaded.location()}/data/") for path in files)
    assert documents_in(rows) == documents(binding)
    by_duckdb = duckdb_rows(duckdb_on_s3, loaded.metadata_location, "flow_document")
    assert by_duckdb == rows.sort_by("flow_document").to_pylist()


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        (
            "wrong_secret",
            "the object store does not accept the credentials (SIGNATURE_DOES_NOT_MATCH",
            "Check /credentials, or /storage/credentials if they are set.",
        ),
        (
            "no_store",
            "the object store cannot be reached (NETWORK_CONNECTION",
            "/s3_endpoint and /region, or with /storage its endpoint and region.",
        ),
        ("no_bucket", "NoSuchBucketException: The specified bucket does not exist", "not be allowed to use /bucket."),
        ("no_catalog", "cannot be reached", "check /catalog/uri: then the catalog is its own OAuth2 server."),
    ],
)
def test_what_is_not_there_or_refuses_us_is_the_last_thing_that_the_log_says(
    held: Mapping[str, Conversation], rest_on_s3: RestCatalogOnS3, name: str, what: str, remedy: str
) -> None:
    outcome = held[name].outcome
    assert outcome.status == 1
    assert outcome.log.count(" error ") == 1, outcome.log
    last = outcome.last_log_line
    assert " error " in last
    assert what in last
    assert last.endswith(remedy)
    assert any(place in last for place in (f"s3://{rest_on_s3.bucket}/lake/flow/", "the REST catalog at http://"))


@pytest.mark.parametrize("name", ["orders", "wrong_secret", "no_store", "no_bucket", "no_catalog"])
def test_no_log_and_no_answer_has_a_secret(
    held: Mapping[str, Conversation], rest_on_s3: RestCatalogOnS3, name: str
) -> None:
    outcome = held[name].outcome
    said = f"{outcome.log}{outcome.answers}"
    assert not [secret for secret in (*secrets(rest_on_s3), "planted-and-wrong") if secret in said]


def secrets(server: RestCatalogOnS3) -> tuple[str, ...]:
    return server.s3.root.secret_access_key, REST_SECRET, SPARK_SECRET


def test_no_row_is_lost_when_a_table_is_compacted_beside_transactions(rest_on_s3: RestCatalogOnS3) -> None:
    endpoint, _ = parse(config(rest_on_s3, "compacted"), [])
    with open_catalog(endpoint) as opened:
        check_compactions(opened, TableIdentifier("compacted", f"orders_{uuid.uuid4().hex}"))


# A crash between startedCommit and acknowledge


@dataclass(frozen=True)
class Crash:
    """What could be seen of a connector that was killed with a transaction staged, and what came after it."""

    commands: list[str]
    visible: Mapping[str, bytes]
    refused: Outcome
    finished: Outcome


@pytest.fixture(scope="module")
def crash(rest_on_s3: RestCatalogOnS3, tmp_path_factory: pytest.TempPathFactory) -> Crash:
    endpoint = config(rest_on_s3, "crashed")
    wrong = config(rest_on_s3, "crashed", credentials=aws_keys(rest_on_s3.s3, "planted-and-wrong"))
    directory = tmp_path_factory.mktemp("crash")
    mark = new_mark()
    environment = {"LOG_LEVEL": "debug", "TMPDIR": str(directory), **mark}
    requests = orders(endpoint)
    with ConnectorProcess(directory, environment) as connector:
        connector.send(*requests[: FIRST_START_COMMIT + 1])
        while (answer := connector.receive()).kind != "startedCommit":
            pass
        processes = marked(mark)
        visible = left_behind(directory) | of_processes(processes)
        visible["answers"] = repr(connector.kill().answers).encode()
    state = answer.body["state"]["updated"]
    refused = run_conversation(
        [with_state(orders(wrong)[OPEN], state), line("acknowledge", {})], directory_of(directory, "refused")
    )
    rest_of_it = [with_state(requests[OPEN], state), line("acknowledge", {}), *requests[FIRST_START_COMMIT + 2 :]]
    finished = run_conversation(rest_of_it, directory_of(directory, "finished"))
    return Crash(list(processes.values()), visible, refused, finished)


def directory_of(parent: Path, name: str) -> Path:
    directory = parent / name
    directory.mkdir()
    return directory


def with_state(request: bytes, state: Json) -> bytes:
    return line("open", {**json.loads(request)["open"], "state": state})


def left_behind(directory: Path) -> dict[str, bytes]:
    found = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[str(path)] = path.read_bytes()
    return found


def of_processes(pids: Mapping[int, str]) -> dict[str, bytes]:
    found = {}
    for pid in pids:
        for name in ("cmdline", "environ"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found[f"{pid}/{name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
    return found


def test_a_transaction_that_was_staged_before_a_crash_lands_once(crash: Crash, catalog: Catalog) -> None:
    assert crash.finished.status == 0, crash.finished.log
    for binding, table in enumerate(TABLES):
        rows = catalog.load_table(("crashed", table)).scan().to_arrow()
        assert documents_in(rows) == documents(binding)


def test_a_staged_transaction_waits_for_keys_that_are_accepted(crash: Crash) -> None:
    assert crash.refused.status == 1
    # The staged files are looked for first. The store's answer to that has no text, but that to listing them has.
    assert "does not accept the credentials (SIGNATURE_DOES_NOT_MATCH" in crash.refused.last_log_line
    assert "Check /credentials" in crash.refused.last_log_line
    assert "planted" not in crash.refused.log


def test_no_secret_can_be_seen_while_it_runs(crash: Crash, rest_on_s3: RestCatalogOnS3) -> None:
    commands = " ".join(crash.commands)
    assert all(part in commands for part in ("-m connector", "SparkSubmit", "connector.spark.tasks.daemon")), commands
    names = {os.path.basename(name) for name in crash.visible}
    assert {"connector.log", "environ", "cmdline", "answers"} <= names
    seen = [
        (name, secret)
        for name, text in crash.visible.items()
        for secret in secrets(rest_on_s3)
        if secret.encode() in text
    ]
    assert seen == []
