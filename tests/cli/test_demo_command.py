"""`demo` materializes documents without a config, says what it did, and names what is wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from connector.cli.commands.demo_command import SAMPLE_ORDERS
from connector.cli.commands.demo_conversation import TASK
from support.engines.readers import readers_catalog
from support.repository import REPOSITORY
from support.sessions.processes import marked, new_mark, wait_until
from support.snapshots import check_text

pytestmark = pytest.mark.long

DOCUMENTS: Final = """\
{"id": 1, "shop": "a", "at": "2026-11-02T08:15:00+01:00", "day": "2026-11-02", "price": 1.50, "who": {"name": "Ä"}}
{"id": 1, "shop": "b", "at": "2026-11-02T08:15:01Z", "day": null, "price": 2, "who": {}, "tags": ["x", 1]}

{"id": 1, "shop": "b", "at": "2026-11-02T08:15:02Z", "day": null, "price": 3, "who": {}, "count": 9007199254740993}
"""


def demo(directory: Path, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the command in a directory."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "connector", "demo", *arguments],  # as the script materialize-iceberg does it
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def rows_of(warehouse: Path, name: str) -> pa.Table:
    return readers_catalog(warehouse).load_table(f"demo.{name}").scan().to_arrow()


@pytest.mark.spark
def test_the_sample_needs_no_argument_and_a_second_run_adds_a_transaction(tmp_path: Path) -> None:
    first, second = demo(tmp_path), demo(tmp_path)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.splitlines()[0] == f"warehouse: {tmp_path / 'warehouse'}"
    assert "━━ demo.orders: 4 rows, 1 snapshot, " in first.stdout
    assert '← {"acknowledged"' in first.stdout
    assert (
        '→ {"open":{"materialization":{"name":"demo/materialize-iceberg","connectorType":"IMAGE","config":{…}'
        in first.stdout
    )
    assert "demo.orders has 4 rows already. A new transaction adds to them." in second.stdout
    assert "━━ demo.orders: 8 rows, 2 snapshots" in second.stdout
    assert "This transaction added 4 rows." in second.stdout
    orders = rows_of(tmp_path / "warehouse", "orders")
    assert sorted(orders["order_id"].to_pylist()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {"customer/city", "items", "note", "ordered_at"} <= set(orders.column_names)
    assert orders["ordered_at"].type == pa.timestamp("us", "UTC")
    documents = set(orders["flow_document"].to_pylist())
    assert documents == set(SAMPLE_ORDERS.decode().splitlines())


@pytest.mark.spark
def test_a_file_of_documents_becomes_a_table_of_its_name(tmp_path: Path) -> None:
    """Python files of the directory have no part in it."""
    for name in ("connector", "queue", "json", "pyarrow", "protocol"):
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} of the current directory')\n")
    (tmp_path / "My documents.v1.jsonl").write_text(DOCUMENTS)
    outcome = demo(tmp_path, "My documents.v1.jsonl", "--key", "shop", "--key=/id", "--into", "a/lake")
    assert outcome.returncode == 0, outcome.stderr
    assert "Rows whose key an earlier row has: 1." in outcome.stdout
    table = rows_of(tmp_path / "a" / "lake", "my_documents_v1")
    rows = [{name: row[name] for name in row if not name.startswith("flow_")} for row in table.to_pylist()]
    assert table.column_names[:2] == ["shop", "id"], "the key's columns come first"
    assert [row["at"].isoformat() for row in rows] == [
        "2026-11-02T07:15:00+00:00",
        "2026-11-02T08:15:01+00:00",
        "2026-11-02T08:15:02+00:00",
    ]
    assert [(row["price"], row["tags"], row["count"], row["who/name"], str(row["day"])) for row in rows] == [
        (1.5, None, None, "Ä", "2026-11-02"),
        (2.0, '["x",1]', None, None, "None"),
        (3.0, None, 9007199254740993, None, "None"),
    ]
    [nullable] = {field.nullable for field in table.schema if field.name in ("day", "tags", "count", "who/name")}
    assert nullable
    assert not table.schema.field("price").nullable


@pytest.mark.spark
@pytest.mark.slow  # only the source of the documents differs from the test above
def test_documents_of_stdin_change_a_table_that_exists(tmp_path: Path) -> None:
    first = demo(tmp_path, "-", "--key", "id", stdin='{"id": 1, "n": 1, "old": true}\n')
    second = demo(tmp_path, "-", "--key", "id", stdin='{"id": 2, "n": 1.5, "new": "a"}\n')
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    rows = rows_of(tmp_path / "warehouse", "documents").select(["id", "n", "old", "new"]).sort_by("id").to_pylist()
    assert rows == [{"id": 1, "n": 1.0, "old": True, "new": None}, {"id": 2, "n": 1.5, "old": None, "new": "a"}]


@pytest.mark.spark
def test_as_json_a_demo_says_only_what_was_done(tmp_path: Path) -> None:
    outcome = demo(tmp_path, "-", "--key", "id", "--json", stdin='{"id": true}\n{"id": true}\n')
    assert (outcome.returncode, outcome.stderr) == (0, "")
    said = json.loads(outcome.stdout)
    metadata = readers_catalog(tmp_path / "warehouse").load_table("demo.documents").metadata_location
    assert said == {
        "warehouse": str(tmp_path / "warehouse"),
        "table": "demo.documents",
        "metadata": metadata,
        "rows": 2,
        "added": 2,
        "replaced": 0,
        "repeatedKeys": 1,
    }
    # Documents that do not fit the table are an error that says how to start anew.
    second = demo(tmp_path, "-", "--key", "id", stdin='{"id": 2}\n')
    assert second.returncode == 1
    assert "Field 'id' has a column of type boolean, but its schema now needs long" in second.stderr
    check_text("cli_errors", "demo: a field that does not fit its column", second.stderr.rpartition("error ")[2])


@pytest.mark.spark
def test_with_updates_a_document_replaces_the_row_of_its_key(tmp_path: Path) -> None:
    first = demo(tmp_path, "-", "--key", "id", "--updates", stdin='{"id": 1, "n": 1}\n{"id": 2, "n": 2}\n')
    second = demo(
        tmp_path, "-", "--key", "id", "--updates", stdin='{"id": 2, "n": 3}\n{"id": 3, "n": 4}\n{"id": 2, "n": 5}\n'
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "━━ demo.documents: 2 rows, 1 snapshot, " in first.stdout
    assert "demo.documents has 2 rows already. A new transaction updates them, or adds to them." in second.stdout
    assert "→ 2 load requests" in second.stdout
    assert "← 1 loaded response\n" in second.stdout
    assert "━━ demo.documents: 3 rows, 2 snapshots" in second.stdout
    assert "This transaction added 1 row, and replaced 1." in second.stdout
    assert "Documents whose key an earlier document has: 1. The last document of each key counts." in second.stdout
    rows = rows_of(tmp_path / "warehouse", "documents").select(["id", "n"]).sort_by("id").to_pylist()
    assert rows == [{"id": 1, "n": 1}, {"id": 2, "n": 5}, {"id": 3, "n": 4}]


@pytest.mark.spark
def test_an_error_of_the_connector_ends_the_demo_with_its_text(tmp_path: Path) -> None:
    outcome = demo(tmp_path, "-", "--key", "id", stdin=f'{{"id": 1}}\n{{"id": {2**70}}}\n')
    assert outcome.returncode == 1
    assert f"line 7: table demo.documents, field 'id', key [{2**70}]: {2**70} is not an integer" in outcome.stderr
    last = outcome.stderr.splitlines()[-1]
    check_text("cli_errors", "demo: the connector has failed", last.partition("error ")[2])
    assert "→ 2 store requests, from line 6 of the input on" in outcome.stdout


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("demo: a file without a key", ("documents.jsonl",), 2),
        ("demo: a key without a file", ("--key", "id"), 2),
        ("demo: a file without documents", ("empty.jsonl", "--key", "id"), 1),
        ("demo: a file that is missing", ("missing.jsonl", "--key", "id"), 1),
        ("demo: a key that a document does not have", ("documents.jsonl", "--key", "who/name"), 1),
    ],
)
def test_what_is_wrong_with_the_arguments_is_one_error_and_no_table_is_made(
    name: str, arguments: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    (tmp_path / "documents.jsonl").write_text(DOCUMENTS)
    (tmp_path / "empty.jsonl").write_text("\n")
    outcome = demo(tmp_path, *arguments)
    assert outcome.returncode == status
    [line] = outcome.stderr.splitlines()
    check_text("cli_errors", name, line.partition("error ")[2])
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.spark
def test_a_signal_ends_the_demo_and_its_connector_without_a_word(tmp_path: Path) -> None:
    mark, temporary = new_mark(), tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, **mark, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "connector", "demo"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert running.stderr
        assert any("startCommit" in line for line in running.stdout)
        running.terminate()
        assert (running.stderr.read(), running.wait()) == ("", 128 + signal.SIGTERM)
    assert wait_until(lambda: not marked(mark))
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("file", ["-", "documents.jsonl"])
def test_a_warehouse_that_cannot_be_made_is_an_error_that_names_it(file: str, tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_text(DOCUMENTS)
    warehouse = tmp_path / ("x" * 300)
    said = demo(tmp_path, file, "--key", "id", "--into", str(warehouse), stdin=DOCUMENTS)
    assert said.returncode == 1
    assert f"the warehouse directory {warehouse} of the Local catalog cannot be used: File name too long" in said.stderr


def test_a_table_of_another_task_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    catalog = readers_catalog(tmp_path / "warehouse")
    catalog.create_namespace("demo")
    catalog.create_table("demo.orders", pa.schema([pa.field("order_id", pa.int64())]))
    outcome = demo(tmp_path)
    assert outcome.returncode == 1
    assert "table demo.orders exists already, and this task did not create it" in outcome.stderr
    assert outcome.stderr.endswith("To start with a new table, name another directory with --into.\n")
    assert TASK not in str(catalog.load_table("demo.orders").properties)


@pytest.mark.parametrize("place", ["--into", "--config"])
def test_the_way_to_a_new_table_is_one_that_there_is(tmp_path: Path, place: str) -> None:
    config = {"namespace": "demo", "catalog": {"catalog_type": "Local", "warehouse": str(tmp_path)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "documents.jsonl").write_text(DOCUMENTS)
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("demo")
    catalog.create_table("demo.documents", pa.schema([pa.field("id", pa.int64())]))
    where = {"--into": str(tmp_path), "--config": str(tmp_path / "config.json")}
    outcome = demo(tmp_path, "documents.jsonl", "--key", "id", place, where[place])
    other = {"--into": "name another directory with --into", "--config": "set another namespace in the config"}
    assert outcome.stderr.endswith(
        f"To start with a new table, give the file of documents another name, or {other[place]}.\n"
    )


def test_documents_that_no_table_could_have_are_refused_without_a_word_of_a_new_one(tmp_path: Path) -> None:
    outcome = demo(tmp_path, "-", "--key", "id", "--key", "ID", stdin='{"id": 1, "ID": 2}\n')
    assert outcome.returncode == 1
    assert "must both be materialized, and their columns' names differ in upper and lower case only" in outcome.stderr
    assert outcome.stderr.endswith("The connector ended with status 1. Its last line above says why.\n")


@pytest.mark.slow  # a test above reads a config, and others make tables
@pytest.mark.spark
def test_with_a_config_the_table_is_in_its_catalog_and_namespace(tmp_path: Path) -> None:
    config = {"namespace": "Shop", "catalog": {"catalog_type": "Local", "warehouse": "lake"}}
    said = demo(tmp_path, "--config", "-", stdin=json.dumps(config))
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"warehouse: {tmp_path / 'lake'}\n")
    assert readers_catalog(tmp_path / "lake").load_table("shop.orders").scan().to_arrow().num_rows == 4


def test_a_local_config_without_a_warehouse_is_refused(tmp_path: Path) -> None:
    said = demo(tmp_path, "--config", "-", stdin='{"namespace": "shop", "catalog": {"catalog_type": "Local"}}')
    assert said.returncode == 1
    assert "the config has no /catalog/warehouse" in said.stderr
