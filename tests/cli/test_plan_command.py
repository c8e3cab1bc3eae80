"""A person reads what an apply would do: its very lines, and nothing is done."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from connector.cli.plan_command import plan
from connector.host.errors import UserError
from connector.model.state import encode_added
from connector.model.table_identifier import TableIdentifier
from connector.rpc.apply import apply
from fixtures.evil_names import TABLE_NAMES
from protocol import request
from protocol.flow import Exists, Json, Materialization, StringInference
from protocol.request import Request
from support.bindings import ID, MATERIALIZATION, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.jars import REPOSITORY
from support.tables import local_catalog, staged_ids

PATH = TableIdentifier("shop", "orders")
ORDERS = collection(ID, projection("note", "string"), projection("qty", "integer"))
RELAXED = collection(ID, projection("note", "string", exists=Exists.MAY), projection("qty", "integer"))


def staged(warehouse: Path, *ids: int) -> Json:
    table = local_catalog(warehouse).load_table(PATH)
    return encode_added([staged_ids(table, PATH, MATERIALIZATION, "shop%2Forders.v0", [*ids])])


def everything_at_once(warehouse: Path) -> request.Apply:
    """One table to be altered after a staged transaction, one to be replaced, two to be made in a new namespace."""
    old = (binding(ORDERS, "note"), binding(ORDERS, table="items"))
    apply(request.Apply(materialization(local_config(warehouse), *old)))
    new = (
        binding(RELAXED, "note", "qty"),
        binding(ORDERS, table="items", backfill=1),
        *(
            msgspec.structs.replace(binding(ORDERS, table=name), resource_path=("elsewhere", name))
            for name in ("first", "second")
        ),
    )
    return request.Apply(
        materialization(local_config(warehouse), *new),
        last_materialization=Materialization(bindings=old),
        state=staged(warehouse, 1, 2),
    )


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_plan_is_what_apply_will_say_that_it_did(tmp_path: Path) -> None:
    message = everything_at_once(tmp_path)
    planned = plan([message])
    assert [line.split(" ")[0] for line in planned.splitlines()] == [
        *("finish", "alter", "alter"),
        *("drop", "create"),
        *("create", "create", "create"),
    ]
    assert apply(message).action_description == planned


def test_planning_changes_nothing(tmp_path: Path) -> None:
    message = everything_at_once(tmp_path)
    before = files(tmp_path)
    plan([message])
    assert files(tmp_path) == before


def test_where_every_table_fits_the_plan_says_so(tmp_path: Path) -> None:
    message = request.Apply(materialization(local_config(tmp_path), binding(ORDERS)))
    apply(message)
    assert plan([message]) == "nothing to do: every table fits its binding"


def test_what_speaks_against_any_binding_is_said_at_once(tmp_path: Path) -> None:
    config = local_config(tmp_path)
    apply(request.Apply(materialization(config, binding(ORDERS), binding(ORDERS, table="items"))))
    dates = collection(projection("id", "string", string=StringInference("date")))
    with pytest.raises(UserError) as error:
        plan([request.Apply(materialization(config, binding(dates), binding(dates, table="items")))])
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["table shop.orders", "table shop.items"]


def test_of_a_whole_conversation_the_first_apply_request_is_planned(tmp_path: Path) -> None:
    first, second = (
        request.Apply(materialization(local_config(tmp_path), binding(ORDERS, table=name))) for name in "ab"
    )
    assert "create table shop.a" in plan([request.Spec(), request.Validate(), first, second])
    with pytest.raises(UserError, match="stdin has no apply request"):
        plan(requests_without_apply())


def requests_without_apply() -> Iterator[Request]:
    yield request.Spec()
    yield request.Open()


# The command


def run(stdin: bytes, directory: Path) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "connector", "plan"],
        input=stdin,
        capture_output=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LOG_FORMAT": "json"},
    )


def test_a_fixture_conversation_is_planned_by_the_command(tmp_path: Path) -> None:
    conversation = REPOSITORY / "fixtures" / "conversations" / "evil_names.jsonl"
    ended = run(conversation.read_bytes(), tmp_path)
    assert ended.returncode == 0, ended.stderr
    namespace, *tables = ended.stdout.decode().splitlines()
    assert namespace == "create namespace shop"
    assert [line.partition(" (")[0] for line in tables] == [f"create table shop.{name.lower()}" for name in TABLE_NAMES]


def test_a_plan_that_fails_ends_with_status_1_and_nothing_on_stdout(tmp_path: Path) -> None:
    ended = run(b'{"apply": {"materialization": {"config": {}}}}\n', tmp_path)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert json.loads(ended.stderr.splitlines()[-1])["level"] == "error"
