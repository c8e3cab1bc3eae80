"""`check --write` finds out whether a catalog checks what commits assert: on real servers, which do, and on one that
does not."""

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from connector.checks import commit_probe
from connector.checks.commit_probe import try_false_commits
from connector.checks.endpoint import SCHEMA, Namespace, OpenedEndpoint, new_table_name
from connector.config.catalog import LOCAL
from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from protocol.flow import Json
from support.servers.catalog_gateway import Sent, serving
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.fault_proxy import GENUINE, Fault, always, fault_proxy, is_commit
from support.servers.hive import IN_ONE_WORKER, Metastore
from support.servers.postgres import Postgres
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address
from support.snapshots import check_text

ASSERTIONS: Final = 5


def local(warehouse: Path) -> Json:
    return {"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": str(warehouse)}}


@contextmanager
def opened(config: Json) -> Iterator[Namespace]:
    """The namespace of a config, which has no tables yet."""
    endpoint, _ = parse(config, [])
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace_if_not_exists(endpoint.own_namespace)
        yield Namespace(OpenedEndpoint(endpoint, catalog), endpoint.own_namespace, exists=True)


def new_namespace() -> str:
    return f"shop_{uuid.uuid4().hex}"


@pytest.fixture
def on_rest(request: pytest.FixtureRequest, s3_server: S3Server) -> Json:
    server: RestCatalogOnS3 = request.getfixturevalue("rest_on_s3")
    return on_s3(s3_server, s3_server.new_bucket(), new_namespace(), rest(server.uri))


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest, s3_server: S3Server) -> Json:
    server: Postgres = request.getfixturevalue("postgres")
    catalog = {"catalog_type": "SQL", "uri": server.new_database(), "password": server.password}
    return on_s3(s3_server, s3_server.new_bucket(), new_namespace(), catalog)


@pytest.fixture
def on_hive(request: pytest.FixtureRequest, s3_server: S3Server) -> Json:
    server: Metastore = request.getfixturevalue("metastore")
    catalog = {"catalog_type": "Hive Metastore", "uri": server.uri}
    return on_s3(s3_server, s3_server.new_bucket(), new_namespace(), catalog)


@pytest.fixture
def on_glue(request: pytest.FixtureRequest, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Json:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", request.getfixturevalue("glue_uri"))
    return on_s3(s3_server, s3_server.new_bucket(), new_namespace(), glue())


def keys_in(s3: S3Server, bucket: str) -> list[str]:
    with s3.client() as client:
        return [each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


@pytest.mark.catalog
@pytest.mark.parametrize("on", ["on_rest", "on_postgres", pytest.param("on_hive", marks=IN_ONE_WORKER), "on_glue"])
def test_a_catalog_that_checks_assertions_passes_and_nothing_is_left(
    on: str, request: pytest.FixtureRequest, s3_server: S3Server
) -> None:
    config = request.getfixturevalue(on)
    with opened(config) as namespace:
        before = keys_in(s3_server, config["bucket"])
        assert try_false_commits(namespace) == ASSERTIONS
        assert namespace.endpoint.catalog.list_tables(namespace.name) == []
    assert keys_in(s3_server, config["bucket"]) == before


def test_a_local_catalog_passes_and_no_table_is_left(tmp_path: Path) -> None:
    with opened(local(tmp_path)) as namespace:
        assert try_false_commits(namespace) == ASSERTIONS
        assert namespace.endpoint.catalog.list_tables("shop") == []
    assert {path.name for path in tmp_path.rglob("*")} == {"catalog.db", "shop"}


def test_a_namespace_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    endpoint, _ = parse(local(tmp_path), [])
    with open_catalog(endpoint) as catalog:
        with pytest.raises(UserError) as raised:
            try_false_commits(Namespace(OpenedEndpoint(endpoint, catalog), "shop", exists=False))
        assert catalog.list_namespaces() == []
    check_text("catalog_errors", "a probe table in a namespace that does not exist", str(raised.value))


# A catalog that does not check


@dataclass
class Careless:
    """A gateway that keeps some of the requirements of commits from the server, which therefore cannot check them."""

    ignored: str  # type of a requirement, and for a reference whether it has a snapshot

    def answer(self, sent: Sent) -> Sent:
        if sent.method != "POST" or "/tables/" not in sent.path:
            return sent
        body = json.loads(sent.body)
        body["requirements"] = [each for each in body["requirements"] if self.ignored not in describe(each)]
        return replace(sent, body=json.dumps(body).encode())

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


def describe(requirement: Any) -> str:
    """The type, and of a reference whether a snapshot is asserted."""
    kind = {None: "none"}.get(requirement.get("snapshot-id"), "some") if "ref" in requirement else ""
    return f"{requirement['type']} {kind}"


@contextmanager
def careless(server: RestCatalogOnS3, ignored: str) -> Iterator[str]:
    address = free_address()
    with serving(Careless(ignored), address, server.uri):
        yield f"http://{address}"


@pytest.mark.catalog
@pytest.mark.parametrize(
    "ignored",
    [
        "assert-ref-snapshot-id none",
        "assert-ref-snapshot-id some",
        "assert-table-uuid",
        "assert-current-schema-id",
        "assert-last-assigned-field-id",
    ],
)
def test_a_catalog_that_ignores_an_assertion_is_found(
    ignored: str, rest_on_s3: RestCatalogOnS3, s3_server: S3Server
) -> None:
    bucket = s3_server.new_bucket()
    with careless(rest_on_s3, ignored) as uri, opened(on_s3(s3_server, bucket, new_namespace(), rest(uri))) as found:
        with pytest.raises(UserError) as raised:
            try_false_commits(found)
        assert found.endpoint.catalog.list_tables(found.name) == []
    assert keys_in(s3_server, bucket) == []
    check_text("catalog_errors", f"ignored: {ignored}", str(raised.value))


@pytest.mark.catalog
def test_a_commit_whose_answer_is_lost_is_looked_for(rest_on_s3: RestCatalogOnS3, on_rest: Json) -> None:
    """An answer of a server that is in trouble is no refusal, and no proof that the commit was accepted either."""
    with fault_proxy(rest_on_s3.uri) as proxy, opened({**on_rest, "catalog": rest(proxy.uri)}) as namespace:
        for fault in GENUINE, GENUINE, Fault(1, HTTPStatus.BAD_GATEWAY):
            proxy.inject(is_commit, fault)
        assert try_false_commits(namespace) == ASSERTIONS
        assert len(proxy.fired) == 1
    with careless(rest_on_s3, "assert-table-uuid") as uri, fault_proxy(uri) as proxy:
        lost = {**on_rest, "catalog": rest(proxy.uri)}
        for fault in GENUINE, GENUINE, GENUINE, GENUINE, Fault(1, HTTPStatus.BAD_GATEWAY):
            proxy.inject(is_commit, fault)
        with opened(lost) as namespace, pytest.raises(UserError, match="the table has another UUID"):
            try_false_commits(namespace)
        assert len(proxy.fired) == 1


# What is left


def leave_table(catalog: Catalog) -> None:
    """As a killed process leaves it."""
    catalog.create_table(("shop", new_table_name()), SCHEMA)


def test_the_table_of_a_killed_process_is_dropped_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(local(tmp_path)) as namespace:
        catalog = namespace.endpoint.catalog
        leave_table(catalog)
        catalog.create_table(("shop", "materialize_iceberg_probe_of_mine"), SCHEMA)
        try_false_commits(namespace)
        assert len(catalog.list_tables("shop")) == 2
        monkeypatch.setattr(commit_probe, "LONGEST_PROBE", timedelta(0))
        try_false_commits(namespace)
        assert catalog.list_tables("shop") == [("shop", "materialize_iceberg_probe_of_mine")]


def test_an_interrupted_check_drops_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commit_probe, "_list_false_assertions", interrupt)
    with opened(local(tmp_path)) as namespace:
        with pytest.raises(KeyboardInterrupt):
            try_false_commits(namespace)
        assert namespace.endpoint.catalog.list_tables("shop") == []


@pytest.mark.catalog
def test_a_table_that_may_not_be_dropped_is_named(
    rest_on_s3: RestCatalogOnS3, on_rest: Json, caplog: pytest.LogCaptureFixture
) -> None:
    with fault_proxy(rest_on_s3.uri) as proxy, opened({**on_rest, "catalog": rest(proxy.uri)}) as namespace:
        proxy.choose = always(Fault(0, HTTPStatus.FORBIDDEN), lambda request: request.method == "DELETE")
        with caplog.at_level(logging.WARNING):
            assert try_false_commits(namespace) == ASSERTIONS
        [(_, name)] = namespace.endpoint.catalog.list_tables(namespace.name)
    [record] = [record.getMessage() for record in caplog.records if "probe table" in record.getMessage()]
    check_text(
        "catalog_errors", "a probe table stays", record, {f"{namespace.name}.{name}": "TABLE", proxy.uri: "SERVER"}
    )


@pytest.mark.catalog
def test_a_catalog_that_refuses_commits_is_found(rest_on_s3: RestCatalogOnS3, on_rest: Json) -> None:
    with fault_proxy(rest_on_s3.uri) as proxy, opened({**on_rest, "catalog": rest(proxy.uri)}) as namespace:
        proxy.choose = always(Fault(0, HTTPStatus.FORBIDDEN), is_commit)
        with pytest.raises(UserError) as raised:
            try_false_commits(namespace)
        assert namespace.endpoint.catalog.list_tables(namespace.name) == []
    said = str(raised.value)
    [name] = [word for word in said.split() if word.startswith(namespace.name)]
    check_text("catalog_errors", "commits are forbidden", said, {name: "TABLE:"})
