"""A task is read from a Flow specification as people write it: its config, its bindings and their collections."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from connector.cli.flow.flow_files import ConfigFile, FlowFile, Task
from connector.host.errors import UserError
from protocol.flow import Json
from support.snapshots import check_text

CONFIG: Final = {"namespace": "shop", "catalog": {"catalog_type": "Local"}}
ENDPOINT: Final = {"connector": {"image": "materialize-iceberg:dev", "config": CONFIG}}
SCHEMA: Final = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
ORDERS: Final = {"key": ["/id"], "schema": SCHEMA}
BINDING: Final = {"source": "acme/orders", "resource": {"table": "orders"}}


def write(directory: Path, files: Mapping[str, Json]) -> str:
    """Write the files, each as text or as JSON, and return the first one's name."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(directory / next(iter(files)))


def specification(*bindings: Json, collections: Json = None, endpoint: Json = None, **others: Json) -> dict[str, Json]:
    task = {"endpoint": endpoint or ENDPOINT, "bindings": [*bindings]}
    return {"materializations": {"acme/lake": task}, "collections": collections or {"acme/orders": ORDERS}, **others}


def read(directory: Path, specified: Json, **files: Json) -> Task:
    return FlowFile(write(directory, {"flow.yaml": specified, **files})).read()


def types(task: Task) -> dict[str, tuple[str, ...]]:
    return {
        projection.field: projection.inference.types
        for projection in task.bindings[0].collection.projections
        if not projection.field.startswith(("_meta", "flow_"))
    }


def test_a_specification_in_one_yaml_file_is_read(tmp_path: Path) -> None:
    text = """
materializations:
  acme/lake:
    endpoint:
      connector:
        image: ghcr.io/acme/materialize-iceberg:v1
        config:
          namespace: shop
          upload_interval: PT5M
    bindings:
      - source: {name: acme/orders, notBefore: 2023-01-23T01:00:00Z}
        resource: {table: orders, _meta: {path: [shop, orders]}}
        fields:
          recommended: 1
          exclude: [note]
          require: {qty: {castToString: true}}
          groupBy: [id]
        backfill: 2
      - {source: acme/orders, resource: {table: off}, disable: true}
collections:
  acme/orders:
    key: [/id]
    schema:
      type: object
      required: [id]
      properties: {id: {type: integer}, qty: {type: [number, "null"]}}
    projections:
      amount: /qty
      part: {location: /qty, partition: true}
"""
    task = read(tmp_path, text)
    assert (task.name, task.config) == ("acme/lake", {"namespace": "shop", "upload_interval": "PT5M"})
    (binding,) = task.bindings
    assert (binding.resource, binding.backfill) == ({"table": "orders", "_meta": {"path": ["shop", "orders"]}}, 2)
    rules = binding.rules
    assert (rules.recommended, rules.exclude, rules.configs, rules.group_by) == (
        1,
        ("note",),
        {"qty": {"castToString": True}},
        ("id",),
    )
    assert (binding.collection.name, binding.collection.key) == ("acme/orders", ("/id",))
    assert types(task) == {
        "id": ("integer",),
        "qty": ("null", "number"),
        "amount": ("null", "number"),
        "part": ("null", "number"),
    }
    partitions = {each.field for each in binding.collection.projections if each.is_partition_key}
    assert partitions == {"part"}


def test_configs_schemas_and_imports_are_files_beside_the_file_that_names_them(tmp_path: Path) -> None:
    config = "namespace: shop\ncredentials:\n  aws_secret_access_key_sops: decrypted\n"
    schema = {"type": "object", "properties": {"id": {"$ref": "../parts.yaml#/$defs/id"}}}
    task = read(
        tmp_path,
        {
            "import": ["lake/collections.flow.yaml"],
            "materializations": {
                "acme/lake": {"endpoint": {"connector": {"config": "secrets/config.yaml"}}, "bindings": [BINDING]}
            },
        },
        **{
            "secrets/config.yaml": config,
            # It imports the first file again.
            "lake/collections.flow.yaml": {
                "import": ["../flow.yaml", {"url": "more.json"}],
                "collections": {"acme/orders": {"key": ["/id"], "schema": "schemas/orders.yaml"}},
            },
            "lake/more.json": {"collections": {"acme/others": ORDERS}},
            "lake/schemas/orders.yaml": schema,
            "lake/parts.yaml": {"$defs": {"id": {"type": "string"}}},
        },
    )
    assert task.config == {"namespace": "shop", "credentials": {"aws_secret_access_key": "decrypted"}}
    assert types(task) == {"id": ("string",)}


def test_a_read_schema_may_refer_to_the_write_schema_and_to_the_inferred_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collection = {
        "key": ["/id"],
        "writeSchema": {
            "type": "object",
            "properties": {"id": {"$ref": "#/$defs/id"}, "day": {"$ref": "parts.yaml#/day"}},
            "$defs": {"id": {"type": "integer"}},
        },
        "readSchema": {"allOf": [{"$ref": "flow://write-schema"}, {"$ref": "flow://inferred-schema"}]},
    }
    with caplog.at_level(logging.WARNING):
        task = read(
            tmp_path,
            specification(BINDING, collections={"acme/orders": collection}),
            **{"parts.yaml": {"day": {"type": "string", "format": "date"}}},
        )
        assert types(task) == {"id": ("integer",), "day": ("string",)}
    assert "flow://inferred-schema is known to Flow only" in caplog.text


def test_one_of_several_tasks_is_chosen_by_name(tmp_path: Path) -> None:
    other = {"endpoint": {"connector": {"config": {"namespace": "other"}}}}
    specified = specification(BINDING)
    specified["materializations"]["acme/other"] = other
    file = write(tmp_path, {"flow.yaml": specified})
    assert FlowFile(file, "acme/other").read().config == {"namespace": "other"}
    assert FlowFile(file, "acme/lake").read().config == CONFIG


def test_a_task_can_be_read_without_its_collections(tmp_path: Path) -> None:
    task = read(tmp_path, specification(BINDING, collections={"acme/others": ORDERS}))
    assert [binding.resource for binding in task.bindings] == [{"table": "orders"}]


def test_a_local_endpoint_is_read_like_an_image(tmp_path: Path) -> None:
    endpoint = {"local": {"command": ["materialize-iceberg"], "config": CONFIG}}
    assert read(tmp_path, specification(BINDING, endpoint=endpoint)).config == CONFIG


def test_a_config_file_gives_a_config_alone(tmp_path: Path) -> None:
    assert ConfigFile(write(tmp_path, {"config.yaml": "namespace: shop"})).read() == Task({"namespace": "shop"})


NO_KEY: Final[Json] = {"acme/orders": {"key": [], "schema": {}}}
NO_POINTER: Final = {"acme/orders": {"key": ["id"], "schema": {}}}
NO_LOCATION: Final = {"acme/orders": {"key": ["/id"], "schema": {}, "projections": {"at": "at"}}}
NO_NAME: Final = {"acme/orders": {"key": ["/id"], "schema": "http://[::1"}}
MISSING_SCHEMA: Final = {"acme/orders": {"key": ["/id"]}}
REMOTE_REFERENCE: Final = {"acme/orders": {"key": ["/id"], "schema": {"$ref": "https://schemas.test/a.json"}}}
MISSING_FILE: Final = {"acme/orders": {"key": ["/id"], "schema": "missing.yaml"}}
WRONG_REFERENCE: Final = {"acme/orders": {"key": ["/id"], "schema": {"$ref": "#/nowhere"}}}
TWO_TASKS: Final[Json] = {"materializations": {"acme/a": {}, "acme/b": {}}}
ENCRYPTED: Final[Json] = {"connector": {"config": {"sops": {}}}}


@pytest.mark.parametrize(
    ("name", "specified", "task"),
    [
        ("a specification without tasks", {"collections": {}}, None),
        ("a specification with two tasks", TWO_TASKS, None),
        ("a task that the specification does not have", TWO_TASKS, "acme/c"),
        ("a specification that is a list", [1], None),
        ("a task without an endpoint", {"materializations": {"acme/lake": {"bindings": []}}}, None),
        ("a binding without a source", specification({"resource": {"table": "orders"}}), None),
        ("a dekaf endpoint", specification(endpoint={"dekaf": {"variant": "x"}}), None),
        ("an inline config that is encrypted", specification(endpoint=ENCRYPTED), None),
        ("a config file that is not there", specification(endpoint={"connector": {"config": "gone.yaml"}}), None),
        ("a collection that is not there", specification(BINDING, collections={"acme/a": ORDERS}), None),
        ("a collection without a key", specification(BINDING, collections={"acme/orders": {}}), None),
        ("a collection with an empty key", specification(BINDING, collections=NO_KEY), None),
        ("a collection whose key is no pointer", specification(BINDING, collections=NO_POINTER), None),
        ("a projection that is no pointer", specification(BINDING, collections=NO_LOCATION), None),
        ("a schema whose name is none", specification(BINDING, collections=NO_NAME), None),
        ("an import of another type", {"import": [{"url": 5}]}, None),
        ("an import with a null character", {"import": ["a\0b"]}, None),
        ("a collection without a schema", specification(BINDING, collections=MISSING_SCHEMA), None),
        ("a schema that is not there", specification(BINDING, collections=MISSING_FILE), None),
        ("a schema on the web", specification(BINDING, collections=REMOTE_REFERENCE), None),
        ("a schema with a wrong reference", specification(BINDING, collections=WRONG_REFERENCE), None),
        ("an import that is not there", {"import": ["missing.flow.yaml"]}, None),
    ],
)
def test_an_error_says_the_file_and_what_to_change(
    tmp_path: Path, name: str, specified: Json, task: str | None
) -> None:
    file = write(tmp_path, {"flow.yaml": specified})
    with pytest.raises(UserError) as error:
        _ = [binding.collection for binding in FlowFile(file, task).read().bindings]
    check_text("cli_errors", name, str(error.value), {str(tmp_path): "…"})


def test_an_import_from_the_web_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read(tmp_path, specification(BINDING, **{"import": ["https://specs.test/flow.yaml"]}))
    assert "imports https://specs.test/flow.yaml, which is not read" in caplog.text
