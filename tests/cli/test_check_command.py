"""A person finds out, step by step, whether a config can be used: it fails where anything would."""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.cli.commands import check_command
from connector.cli.commands.check_command import check
from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.waiting import WaitingLine
from connector.config.catalog import LOCAL
from connector.host.cgroup import Cgroup
from connector.iceberg.catalogs import local as local_catalog
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from protocol.flow import Json
from support.bindings import PATH
from support.repository import REPOSITORY
from support.rows.staged_files import land
from support.rows.staged_rows import WRITER
from support.servers.endpoint_configs import aws_keys, glue, on_s3, rest
from support.servers.fault_proxy import Fault, Request, always, fault_proxy
from support.servers.odd_servers import answering
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address
from support.sessions.small_disk import small_disk
from support.snapshots import check_text
from support.tables.local_tables import foreign_table
from support.tables.local_tables import local_catalog as open_local_catalog

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
SILENT: Final = WaitingLine(None)
STEPS: Final = ["config", "catalog", "namespace", "table", "storage", "java", "spark", "limits", "disk"]


def local(warehouse: Path) -> Json:
    return {"namespace": "Shop", "catalog": {"catalog_type": LOCAL, "warehouse": str(warehouse)}}


def written(directory: Path, config: Json) -> str:
    file = directory / "config.json"
    file.write_text(json.dumps(config))
    return str(file)


def source(directory: Path, config: Json) -> ConfigFile:
    return ConfigFile(written(directory, config))


class Report:
    """What the command says of a config, as JSON."""

    def __init__(self, directory: Path, config: Json) -> None:
        said: list[str] = []
        self.passed = check(source(directory, config), said.append, SILENT, as_json=True)
        (self.text,) = said
        report = json.loads(self.text)
        assert report["ok"] == self.passed
        assert [step["name"] for step in report["steps"]] == STEPS
        self.outcomes = {step["name"]: step["outcome"] for step in report["steps"]}
        self.messages = {step["name"]: step["message"] for step in report["steps"]}


def all_but(**others: str) -> dict[str, str]:
    return {**dict.fromkeys(STEPS, OK), **others}


# What is said


def test_the_places_of_metrics_are_tried_if_there_are_any(tmp_path: Path) -> None:
    address, file = free_address(), tmp_path / "flow.prom"
    metrics = {"listen": address, "file": str(file)}
    said: list[str] = []
    assert check(
        source(tmp_path, {**local(tmp_path), "advanced": {"metrics": metrics}}), said.append, SILENT, as_json=False
    )
    assert said[-2].startswith(f"✓ metrics   can be published at {address} and in {file} (")
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))):
        said.clear()
        assert not check(
            source(tmp_path, {**local(tmp_path), "advanced": {"metrics": metrics}}), said.append, SILENT, as_json=False
        )
    assert f"cannot listen at {address}" in said[-2]


def test_a_person_reads_a_line_a_step_with_its_time(tmp_path: Path) -> None:
    said: list[str] = []
    assert check(source(tmp_path, local(tmp_path / "warehouse")), said.append, SILENT, as_json=False)
    *lines, last = said
    assert [re.findall(r"^✓ (\w+) +.+ \(\d+\.\d\d s\)$", line) for line in lines] == [[name] for name in STEPS]
    assert f"✓ catalog   the Local catalog in {tmp_path}/warehouse does not exist yet: publishing a task" in lines[1]
    assert "✓ namespace shop is created when a task is published" in lines[2]
    assert last == "All checks passed."


def test_a_step_that_fails_says_why_and_what_depends_on_it_is_not_checked(tmp_path: Path) -> None:
    said: list[str] = []
    assert not check(source(tmp_path, {"namespace": "a.b"}), said.append, SILENT, as_json=False)
    assert said[0].startswith("✗ config    /namespace: must not contain a dot\n            /credentials: is required")
    assert [line.split(" (")[0] for line in said[1:5]] == [
        f"- {name:<9} not checked: needs the config" for name in STEPS[1:5]
    ]
    assert said[-1] == "1 of 9 checks failed."


class UnwillingError(Exception):
    """Who is told does not want to hear any more."""


def test_a_step_is_said_before_the_next_one_begins(tmp_path: Path, s3_server: S3Server) -> None:
    def interrupt(_: str) -> None:
        raise UnwillingError

    with answering(200, "{}") as server:
        with pytest.raises(UnwillingError):
            check(
                source(tmp_path, on_s3(s3_server, "lake", "shop", rest(server.uri))), interrupt, SILENT, as_json=False
            )
        assert server.requests == []


# What is found


def test_a_local_catalog_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with open_local_catalog(warehouse) as catalog:
        catalog.create_namespace("shop")
    before = {path: path.read_bytes() for path in warehouse.rglob("*")}
    report = Report(tmp_path, local(warehouse))
    assert report.outcomes == all_but()
    assert report.messages["namespace"] == "shop exists"
    assert {path: path.read_bytes() for path in warehouse.rglob("*")} == before


def test_a_catalog_file_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_catalog, "BUSY_SECONDS", 0)
    open_local_catalog(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        report = Report(tmp_path, local(tmp_path))
    assert report.outcomes == all_but(table=FAILED)
    check_text("catalog_errors", "Local: locked", report.messages["table"], {str(tmp_path): "DIRECTORY"})


def test_a_catalog_that_is_down_fails_and_storage_is_tried_all_the_same(tmp_path: Path, s3_server: S3Server) -> None:
    config = on_s3(s3_server, s3_server.new_bucket(), "shop", rest(f"http://{free_address()}"))
    report = Report(tmp_path, config)
    assert report.outcomes == all_but(catalog=FAILED, namespace=SKIPPED, table=SKIPPED)
    assert "cannot be reached" in report.messages["catalog"]


def test_a_bucket_that_is_not_there_fails_beside_a_catalog_that_is(tmp_path: Path, s3_server: S3Server) -> None:
    with answering(200, "{}") as server:
        report = Report(tmp_path, on_s3(s3_server, "no-such-bucket", "shop", rest(server.uri)))
    assert report.outcomes["storage"] == FAILED
    assert "there is no such bucket" in report.messages["storage"]
    assert report.outcomes["catalog"] == OK


@pytest.mark.catalog
def test_a_rest_catalog_is_asked_for_a_table_that_it_does_not_make(tmp_path: Path, rest_on_s3: RestCatalogOnS3) -> None:
    s3, bucket = rest_on_s3.s3, rest_on_s3.bucket
    catalog = RestCatalog("rest", uri=rest_on_s3.uri)
    config = on_s3(s3, bucket, "checked", rest(rest_on_s3.uri))
    before_the_namespace = Report(tmp_path, config)
    catalog.create_namespace("checked")
    with s3.client() as client:
        before = client.list_objects_v2(Bucket=bucket)["KeyCount"]
        report = Report(tmp_path, config)
        assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == before
    assert before_the_namespace.outcomes == all_but(table=SKIPPED)
    assert report.outcomes == all_but()
    assert catalog.list_tables("checked") == []


@pytest.mark.catalog
def test_a_rest_catalog_that_would_not_make_a_table_fails(tmp_path: Path, rest_on_s3: RestCatalogOnS3) -> None:
    RestCatalog("rest", uri=rest_on_s3.uri).create_namespace("locked")
    with fault_proxy(rest_on_s3.uri) as proxy:
        proxy.choose = always(Fault(0, HTTPStatus.FORBIDDEN), is_creation)
        report = Report(tmp_path, on_s3(rest_on_s3.s3, rest_on_s3.bucket, "locked", rest(proxy.uri)))
    assert report.outcomes == all_but(table=FAILED)
    assert "forbids this" in report.messages["table"]


def is_creation(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/tables")


def test_glue_cannot_be_asked_for_a_table_without_making_it(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(200, json.dumps({"Database": {"Name": "shop"}})) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
        report = Report(tmp_path, on_s3(s3_server, s3_server.new_bucket(), "shop", glue()))
    assert report.outcomes == all_but(table=SKIPPED)
    assert len(server.requests) == 1


# The machine


def test_a_spark_master_that_cannot_be_reached_fails(tmp_path: Path) -> None:
    master = f"spark://{free_address()}"
    config = {**local(tmp_path / "warehouse"), "advanced": {"spark": {"spark.master": master}}}
    report = Report(tmp_path, config)
    assert report.outcomes == all_but(spark=FAILED)
    assert report.messages["spark"].startswith(f"no Spark master of {master} can be reached")


def java_that(directory: Path, script: str) -> Path:
    command = directory / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("""echo 'openjdk version "1.8.0_392"' >&2""", "is Java 1.8.0_392, and Spark needs 17 or newer"),
        ("""echo 'openjdk version "16.0.2"' >&2""", "is Java 16.0.2, and Spark needs 17 or newer"),
        ("echo no libjvm.so >&2; exit 6", "cannot be run: no libjvm.so"),
        ("exit 7", "cannot be run: it ended with status 7"),
        ("exit 0", "cannot be run: it ended with status 0"),
    ],
)
def test_a_java_that_will_not_do_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, what: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that(tmp_path / "java", script)))
    report = Report(tmp_path, local(tmp_path / "warehouse"))
    assert report.outcomes == all_but(java=FAILED)
    assert report.messages["java"].startswith(f"{tmp_path}/java/bin/java {what}")


def test_a_java_that_is_no_program_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_that(tmp_path / "java", "")
    (home / "bin" / "java").chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(home))
    report = Report(tmp_path, local(tmp_path / "warehouse"))
    assert "Permission denied" in report.messages["java"]


def test_a_newer_java_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_that(tmp_path / "java", """echo 'openjdk version "21-ea" 2023-09-19' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert "Java 21-ea" in Report(tmp_path, local(tmp_path / "warehouse")).messages["java"]


def test_a_temporary_directory_that_cannot_be_used_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    report = Report(tmp_path, local(tmp_path / "warehouse"))
    assert report.outcomes == all_but(disk=FAILED)


def test_a_temporary_directory_without_room_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk") as disk, disk.filled():
        monkeypatch.setenv("TMPDIR", str(disk.directory))
        report = Report(tmp_path, local(tmp_path / "warehouse"))
    assert report.outcomes == all_but(disk=FAILED)
    said = report.messages["disk"]
    check_text("machine_errors", "no room for temporary files", said, {str(disk.directory): "DIRECTORY"})


@pytest.mark.parametrize(
    ("memory", "outcome", "what"),
    [
        (512, FAILED, "this machine or container has 512 MB of memory, and a session needs "),
        (720, OK, "720 MB of memory and 300 open files are enough for a session"),
    ],
)
def test_a_machine_passes_if_a_session_would_open_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, outcome: str, what: str
) -> None:
    monkeypatch.setattr(check_command, "Cgroup", lambda: limited_group(tmp_path, memory << 20))
    monkeypatch.setattr(check_command, "count_files", lambda: 300)
    report = Report(tmp_path, local(tmp_path / "warehouse"))
    assert report.outcomes == all_but(limits=outcome)
    assert report.messages["limits"].startswith(what)


def limited_group(directory: Path, memory: int) -> Cgroup:
    (directory / "membership").write_text("0::/\n")
    (directory / "memory.max").write_text(str(memory))
    return Cgroup(directory / "membership", directory)


def test_a_process_that_may_open_few_files_fails(tmp_path: Path) -> None:
    config = json.dumps(local(tmp_path / "warehouse")).encode()
    command = ["bash", "-c", 'ulimit -n 100 && exec "$0" -m connector check --config - --json', sys.executable]
    ran = subprocess.run(command, input=config, capture_output=True, cwd=REPOSITORY)
    assert ran.returncode == 1
    [failed] = [step for step in json.loads(ran.stdout)["steps"] if step["outcome"] == FAILED]
    assert failed["name"] == "limits"
    assert failed["message"].startswith("a process of the connector may open only 100 files at the same time")


# A Flow specification


def specification(directory: Path, schema: Json, **binding: Json) -> FlowFile:
    binding = {"source": "acme/orders", "resource": {"table": "Orders"}, **binding}
    file = directory / "flow.yaml"
    file.write_text(
        json.dumps(
            {
                "materializations": {
                    "acme/lake": {
                        "endpoint": {"connector": {"config": local(directory / "warehouse")}},
                        "bindings": [binding],
                    }
                },
                "collections": {"acme/orders": {"key": ["/id"], "schema": schema}},
            }
        )
    )
    return FlowFile(str(file), "acme/lake")


def check_task(task: FlowFile) -> dict[str, Json]:
    said: list[str] = []
    check(task, said.append, SILENT, as_json=True)
    return {step["name"]: step for step in json.loads(said[0])["steps"]}


def test_the_bindings_of_a_specification_are_validated(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    steps = check_task(specification(tmp_path, schema))
    assert [*steps] == [*STEPS[:5], "bindings", *STEPS[5:]]
    assert {step["outcome"] for step in steps.values()} == {OK}
    assert steps["bindings"]["message"] == "are valid: shop.orders"
    assert not [*(tmp_path / "warehouse").glob("shop*")]


def test_a_binding_that_cannot_be_materialized_is_found(tmp_path: Path) -> None:
    step = check_task(specification(tmp_path, {"type": "object"}))["bindings"]
    assert step["outcome"] == FAILED
    assert "bindings[0] (acme/orders): field 'id' at /id is part of the key" in step["message"]


WITH_ID: Final = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("columns", "resource", "refusal"),
    [
        ([], {"delta_updates": False}, "`delta_updates` cannot become false without a backfill"),
        (["gone"], {"schema_evolution": "strict"}, "Column 'gone' is NOT NULL, and cannot go without values"),
    ],
    ids=["updates", "columns"],
)
def test_bindings_are_validated_after_what_the_table_says_of_the_task(
    tmp_path: Path, columns: list[str], resource: Json, refusal: str
) -> None:
    """The table refuses a binding that begins no backfill, as publishing does, and no other one."""
    fields = [NestedField(i, name, LongType(), required=True) for i, name in enumerate(["id", *columns], start=1)]
    owner = Owner("acme/lake", "shop%2Forders.v0").encode()
    with open_local_catalog(tmp_path / "warehouse") as catalog:
        foreign_table(catalog, ("shop", "orders"), Schema(*fields), properties={OWNER_PROPERTY: owner})
    resource = {"table": "orders", **resource}
    step = check_task(specification(tmp_path, WITH_ID, resource=resource))["bindings"]
    assert step["outcome"] == FAILED
    assert refusal in step["message"]
    assert check_task(specification(tmp_path, WITH_ID, resource=resource, backfill=1))["bindings"]["outcome"] == OK


def test_a_table_of_another_program_is_the_tasks_once_it_has_rows_of_the_task(tmp_path: Path) -> None:
    task = specification(tmp_path, WITH_ID)
    with open_local_catalog(tmp_path / "warehouse") as catalog:
        foreign_table(catalog, PATH)
        assert check_task(task)["bindings"]["outcome"] == FAILED
        land(catalog, 1, writer=replace(WRITER, materialization="acme/lake"))
    assert check_task(task)["bindings"]["outcome"] == OK


def test_bindings_are_not_validated_where_the_catalog_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    assert check_task(specification(tmp_path, {"type": "object"}))["bindings"]["outcome"] == SKIPPED


# The command


def run(*arguments: str, stdin: bytes = b"", glue_uri: str = "") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "connector", "check", *arguments]
    environment = os.environ | ({"AWS_ENDPOINT_URL_GLUE": glue_uri} if glue_uri else {})
    return subprocess.run(command, input=stdin, capture_output=True, cwd=REPOSITORY, env=environment)


@pytest.mark.long
def test_the_exit_status_says_whether_it_passed(tmp_path: Path) -> None:
    config = json.dumps(local(tmp_path / "warehouse")).encode()
    passed, failed = run("--config", "-", stdin=config), run("--config", str(tmp_path / "missing.json"), "--json")
    assert (passed.returncode, failed.returncode) == (0, 1)
    assert passed.stdout.decode().endswith("All checks passed.\n")
    assert "missing.json cannot be read" in json.loads(failed.stdout)["steps"][0]["message"]


def on_postgres_at(address: str) -> Json:
    return {"catalog_type": "SQL", "uri": f"postgresql://lake@{address}/lake", "password": "planted"}


def on_glue_at(_: str) -> Json:
    return glue()


@pytest.mark.parametrize("catalog_at", [on_postgres_at, pytest.param(on_glue_at, marks=pytest.mark.slow)])
def test_the_exit_status_says_that_the_catalog_is_down(
    s3_server: S3Server, catalog_at: Callable[[str], Json], tmp_path: Path
) -> None:
    nobody = free_address()
    file = written(tmp_path, on_s3(s3_server, s3_server.new_bucket(), "shop", catalog_at(nobody)))
    for_people = run("--config", file, glue_uri=f"http://{nobody}")
    for_machines = run("--config", file, "--json", glue_uri=f"http://{nobody}")
    assert (for_people.returncode, for_machines.returncode) == (1, 1)
    report = json.loads(for_machines.stdout)
    [failed] = [step["message"] for step in report["steps"] if step["outcome"] == FAILED]
    assert not report["ok"]
    assert "cannot be reached" in failed
    assert f" {failed} (" in for_people.stdout.decode()
    assert for_people.stdout.decode().endswith("1 of 9 checks failed.\n")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_secret_is_said(s3_server: S3Server, form: list[str]) -> None:
    body = json.dumps({"error": "invalid_client", "error_description": "robot:planted-1 and planted-1 are wrong"})
    with answering(401, body) as server:
        uri = server.uri.replace("//", "//user:planted-2@")
        config = on_s3(s3_server, "no-such-bucket", "shop", {**rest(uri), "credential": "robot:planted-1"})
        # The master is no secret by itself: the error that names it does not know that it says one.
        spark = {"spark.master": "spark://planted-4", "spark.ssl.keyPassword": "planted-4"}
        config |= {"credentials": aws_keys(s3_server, "planted-3"), "advanced": {"spark": spark}}
        ran = run("--config", "-", *form, stdin=json.dumps(config).encode())
    assert ran.returncode == 1
    assert b"invalid_client" in ran.stdout
    assert b"spark.master in /advanced/spark is spark://***: write it as" in ran.stdout
    assert b"planted" not in ran.stdout + ran.stderr
