"""A table is shown as it is, and the commands that open it are quoted for a shell."""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from connector.cli.texts.table_lines import SPARK_PACKAGES, align, describe_table, explain_opening
from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.engines.readers import readers_catalog
from support.repository import REPOSITORY
from support.rows.updated_rows import make_table, stage_updates

ROWS = pa.table({"id": pa.array([41, 42], pa.int64()), "name": ["ä" * 40, None]})


def test_a_table_is_shown_with_its_schema_its_snapshots_and_its_rows(tmp_path: Path) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    shown = "\n".join(describe_table(table))
    assert "shop.things: 4 rows, 2 snapshots, 2 columns" in shown
    assert [line.split() for line in shown.splitlines()].count(["42"]) == 2
    assert "ä" * 27 + "…" in shown
    assert str(table.current_snapshot().snapshot_id) in shown  # type: ignore[union-attr]  # it was just committed


def test_rows_that_are_deleted_by_position_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    catalog = readers_catalog(tmp_path)
    make_table(catalog)
    for values in ({1: "a", 2: "a"}, {1: "b"}):
        commit_all_or_raise(catalog, [stage_updates(catalog, values)])
    lines = list(describe_table(catalog.load_table(PATH)))
    assert f"{'.'.join(PATH)}: 2 rows, 2 snapshots" in lines[0]
    assert any(line.endswith("  rows in files") for line in lines)


def test_a_table_without_a_snapshot_is_shown_as_empty(tmp_path: Path) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", pa.schema([pa.field("id", pa.int64())]))
    assert "shop.things: 0 rows, 0 snapshots, 1 column" in "\n".join(describe_table(table))


@pytest.mark.parametrize("name", ["warehouse", "it's $HOME", 'a "quoted" one'])
def test_the_commands_that_open_a_table_are_words_of_a_shell_in_any_directory(name: str, tmp_path: Path) -> None:
    directory = tmp_path / name
    directory.mkdir()
    catalog = readers_catalog(directory)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", ROWS.schema)
    commands = "\n".join(explain_opening(table, directory / "catalog.db")).replace("\\\n", "").splitlines()
    python, duckdb, spark = [shlex.split(line) for line in commands if line.startswith("    ")]
    compile(python[2], "printed", "exec")
    assert duckdb[2].count(table.metadata_location.replace("'", "''")) == 1
    assert f"spark.sql.catalog.local.warehouse={directory}" in spark


def test_spark_gets_the_same_packages_and_settings_as_the_documentation_says(tmp_path: Path) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", ROWS.schema)
    printed = shlex.split("\n".join(explain_opening(table, tmp_path / "catalog.db")).split("Spark 4.1:")[1])
    pages = "".join((REPOSITORY / page).read_text() for page in ("README.md", "docs/reading.md"))
    [block] = re.findall(r"```sh\n(spark-sql [^`]+JdbcCatalog[^`]+)```", pages)
    told = shlex.split(block.replace("/absolute/path/to/warehouse", str(tmp_path)))
    assert printed[:-1] == told[:-1]
    assert ",".join(SPARK_PACKAGES) in told
    assert re.sub("`", "", printed[-1]) == told[-1]


@pytest.mark.parametrize(("text", "shown"), [("x" * 28, "x" * 28), ("x" * 29, "x" * 27 + "…"), ("a\nb", "a⏎b")])
def test_a_long_value_is_shortened_and_has_one_line(text: str, shown: str) -> None:
    assert list(align(("a",), [(text,)]))[1] == f"  {shown}"


def test_characters_that_take_two_places_keep_the_columns_aligned() -> None:
    assert list(align(("a", "b"), [("京都", "1"), ("Lima", "2")])) == ["  a     b", "  京都  1", "  Lima  2"]


def test_the_newest_snapshots_are_shown(tmp_path: Path) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", ROWS.schema)
    for _ in range(6):
        table.append(ROWS)
    shown = "\n".join(describe_table(table))
    first, *newest = [str(snapshot.snapshot_id) for snapshot in table.snapshots()]
    assert first not in shown
    assert all(snapshot in shown for snapshot in newest)


@pytest.mark.parametrize("columns", ["10", "12"])
def test_columns_that_the_terminal_has_no_room_for_are_counted(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert list(align(("a", "b", "c"), [("12345", "1", "long, long")])) == ["  a      b  … 1 more", "  12345  1"]
