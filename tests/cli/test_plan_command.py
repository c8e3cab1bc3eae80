"""A person reads what an apply would do: its very lines, and nothing is done."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from connector.cli.commands.plan_command import describe_plan, plan_recorded, plan_task
from connector.cli.flow.flow_files import FlowFile
from connector.cli.flow.task_requests import find_last, make_apply, make_validate
from connector.config.settings import parse
from connector.evolution.property_changes import REFUSED_IDENTIFIER_FIELDS
from connector.host.errors import UserError
from connector.model.state import encode_added
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from fixtures.evil_names import TABLE_NAMES
from protocol import request
from protocol.flow import Exists, Json, Materialization, StringInference
from protocol.request import Request
from support.bindings import ID, PATH, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.repository import REPOSITORY
from support.rows.staged_files import land, stage
from support.rows.staged_rows import WRITER
from support.tables.local_tables import ID_ONLY, files_of, foreign_table, local_catalog

ORDERS = collection(ID, projection("note", "string"), projection("qty", "integer"))
RELAXED = collection(ID, projection("note", "string", exists=Exists.MAY), projection("qty", "integer"))


def staged(warehouse: Path, *ids: int) -> Json:
    return encode_added([stage(local_catalog(warehouse), PATH, WRITER, *ids)])


def plan(requests: Iterable[Request]) -> str:
    return describe_plan(plan_recorded(requests), as_json=False)


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


def test_the_plan_is_what_apply_will_say_that_it_did(tmp_path: Path) -> None:
    message = everything_at_once(tmp_path)
    planned = plan([message])
    assert [line.split(" ")[0] for line in planned.splitlines()] == [
        *("finish", "alter", "alter"),
        "backfill",
        *("create", "create", "create"),
    ]
    assert apply(message).action_description == planned


def test_planning_changes_nothing(tmp_path: Path) -> None:
    message = everything_at_once(tmp_path)
    before = files_of(tmp_path)
    plan([message])
    assert files_of(tmp_path) == before


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


# A Flow specification


SPECIFICATION = """
materializations:
  acme/lake:
    endpoint:
      connector:
        image: ghcr.io/acme/materialize-iceberg:v1
        config: config.yaml
    bindings:
      - source: acme/orders
        resource: {table: orders}
        backfill: 0
collections:
  acme/orders:
    key: [/id]
    schema: orders.schema.yaml
"""
SCHEMA = """
type: object
required: [id]
properties:
  id: {type: integer}
  placed: {type: string, format: date-time}
  customer: {type: object, properties: {name: {type: string}}}
"""
COLUMNS = "('id' long not null, 'customer/name' string, 'flow_published_at' timestamptz not null, 'placed' timestamptz)"


@pytest.fixture
def flow(tmp_path: Path) -> FlowFile:
    (tmp_path / "flow.yaml").write_text(SPECIFICATION)
    (tmp_path / "orders.schema.yaml").write_text(SCHEMA)
    (tmp_path / "config.yaml").write_text(json.dumps(local_config(tmp_path / "warehouse")))
    return FlowFile(str(tmp_path / "flow.yaml"), "acme/lake")


def publish(flow: FlowFile) -> str:
    """Apply the task, as Flow would."""
    task = flow.read()
    last = find_last(task, *parse(task.config, [binding.resource for binding in task.bindings]))
    return apply(make_apply(task, validate(make_validate(task, last)), last)).action_description


def replace_in(flow: FlowFile, name: str, old: str, new: str) -> None:
    file = Path(flow.file).with_name(name)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_a_task_that_was_never_published_is_planned_from_its_specification(flow: FlowFile) -> None:
    assert plan_task(flow) == ["create namespace shop", f"create table shop.orders {COLUMNS}"]


def test_what_a_specification_plans_is_what_apply_does(flow: FlowFile) -> None:
    planned = plan_task(flow)
    assert publish(flow) == "\n".join(planned)
    assert plan_task(flow) == []


def test_a_changed_schema_is_planned(flow: FlowFile) -> None:
    publish(flow)
    replace_in(flow, "orders.schema.yaml", "date-time}", "date-time}\n  qty: {type: integer}")
    assert plan_task(flow) == ["alter table shop.orders: add column 'qty' long"]


def test_a_backfill_is_planned_from_what_the_table_says_of_its_task(flow: FlowFile) -> None:
    publish(flow)
    replace_in(flow, "flow.yaml", "backfill: 0", "backfill: 1")
    [change] = plan_task(flow)
    assert change.startswith("backfill table shop.orders: its rows stay until the first commit")
    assert change.endswith(f"the columns {COLUMNS}")
    publish(flow)
    assert plan_task(flow) == []


def test_staged_transactions_of_the_state_are_planned(flow: FlowFile, tmp_path: Path) -> None:
    publish(flow)
    with local_catalog(tmp_path / "warehouse") as catalog:
        commit = stage(catalog, PATH, replace(WRITER, materialization="acme/lake"), 1, 2)
    (tmp_path / "state.json").write_text(json.dumps(encode_added([commit])))
    replace_in(flow, "orders.schema.yaml", "placed", "sent")
    assert (
        plan_task(flow, str(tmp_path / "state.json"))[0] == "finish 1 staged transactions of table shop.orders (2 rows)"
    )


def test_what_validate_refuses_is_said(flow: FlowFile) -> None:
    replace_in(flow, "orders.schema.yaml", "required: [id]", "required: []")
    with pytest.raises(UserError, match="'id' at /id is part of the key and may be null or missing"):
        plan_task(flow)


@pytest.mark.long
def test_the_command_plans_from_a_specification(flow: FlowFile) -> None:
    command = [sys.executable, "-m", "connector", "plan", "--flow", flow.file]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout
    assert said.splitlines() == ["create namespace shop", f"create table shop.orders {COLUMNS}"]
    assert json.loads(as_json) == {"actions": said.splitlines()}


# What the tables tell of the task as it was applied last


def test_a_published_binding_with_standard_updates_needs_nothing(flow: FlowFile) -> None:
    replace_in(flow, "flow.yaml", "{table: orders}", "{table: orders, delta_updates: false}")
    publish(flow)
    assert plan_task(flow) == []


def test_delta_updates_that_become_standard_updates_are_refused(flow: FlowFile) -> None:
    publish(flow)
    replace_in(flow, "flow.yaml", "{table: orders}", "{table: orders, delta_updates: false}")
    with pytest.raises(UserError, match="`delta_updates` cannot become false without a backfill"):
        plan_task(flow)


def test_the_updates_count_as_unchanged_where_the_key_columns_cannot_be_identifier_fields(
    flow: FlowFile, tmp_path: Path
) -> None:
    replace_in(flow, "flow.yaml", "{table: orders}", "{table: orders, delta_updates: false}")
    publish(flow)
    with local_catalog(tmp_path / "warehouse").load_table(PATH).update_schema() as update:
        update.set_identifier_fields()
        update.make_column_optional("id")
    assert plan_task(flow) == []


def test_the_updates_count_as_unchanged_where_the_catalog_refuses_identifier_fields(
    flow: FlowFile, tmp_path: Path
) -> None:
    replace_in(flow, "flow.yaml", "{table: orders}", "{table: orders, delta_updates: false}")
    publish(flow)
    table = local_catalog(tmp_path / "warehouse").load_table(PATH)
    with table.transaction() as transaction:
        transaction.set_properties(REFUSED_IDENTIFIER_FIELDS)
        with transaction.update_schema() as update:
            update.set_identifier_fields()
    assert plan_task(flow) == []


def take_over(flow: FlowFile, *, has_written: bool = True) -> None:
    """Another program has made the table. The task has had it before, so it may write to it."""
    task = replace(WRITER, materialization="acme/lake")
    with local_catalog(Path(flow.file).parent / "warehouse") as catalog:
        foreign_table(catalog, PATH, Schema(*ID_ONLY.fields, NestedField(2, "flow_document", StringType())))
        if has_written:
            land(catalog, 1, writer=task)


ADDED = [
    f"alter table shop.orders: add column {column}"
    for column in ("'customer/name' string", "'flow_published_at' timestamptz", "'placed' timestamptz")
]


@pytest.mark.parametrize("updates", ["", ", delta_updates: false"])
def test_a_table_of_another_program_counts_as_the_tasks_once_it_has_rows_of_the_task(
    flow: FlowFile, updates: str
) -> None:
    """Its identifier fields do not tell which updates the task had."""
    replace_in(flow, "flow.yaml", "{table: orders}", f"{{table: orders{updates}}}")
    take_over(flow)
    assert [line.partition(";")[0] for line in plan_task(flow)] == ADDED
    publish(flow)
    assert plan_task(flow) == []


def test_a_table_of_another_program_without_rows_of_the_task_is_refused(flow: FlowFile) -> None:
    take_over(flow, has_written=False)
    with pytest.raises(UserError, match="exists already, and this task did not create it"):
        plan_task(flow)


def test_a_backfill_is_planned_from_what_the_task_has_written_to_a_table_of_another_program(flow: FlowFile) -> None:
    take_over(flow)
    replace_in(flow, "flow.yaml", "backfill: 0", "backfill: 1")
    [change] = plan_task(flow)
    assert change.startswith("backfill table shop.orders: ")
    publish(flow)
    assert plan_task(flow) == []


def test_a_column_that_may_be_renamed_instead_is_said_to_be(flow: FlowFile) -> None:
    """The table does not tell which column a field had."""
    publish(flow)
    replace_in(
        flow, "flow.yaml", "backfill: 0", "backfill: 0\n        fields: {require: {placed: {column: placed_at}}}"
    )
    assert plan_task(flow) == [
        "alter table shop.orders: add column 'placed_at' timestamptz; or, if its field had another column before, "
        "rename that one (the table has 'placed')"
    ]
