"""scripts/run puts a conversation's tables where it says, and shows them as they are."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures.conversation import CONFIG, line
from run_conversation import main, with_warehouse
from show_tables import aligned, show_tables
from support.readers import local_catalog


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("validate", {"config": CONFIG}),
        ("apply", {"materialization": {"config": CONFIG}, "lastMaterialization": {"config": CONFIG}}),
        ("open", {"materialization": {"config": CONFIG}}),
    ],
)
def test_every_request_with_the_embedded_catalog_gets_the_warehouse(kind: str, body: object) -> None:
    before = line(kind, body)
    after = with_warehouse(before, Path("/elsewhere"))
    assert json.loads(after) == json.loads(before.replace(b'"warehouse":"warehouse"', b'"warehouse":"/elsewhere"'))
    assert b'"/elsewhere"' in after


@pytest.mark.parametrize(
    "other",
    [
        line("spec", {"config": {}}),
        line("acknowledge", {}),
        line("store", {"key": [1], "values": [{"catalog": {"catalog_type": "Local", "warehouse": "mine"}}]}),
        line("validate", {"config": {"catalog": {"catalog_type": "AWS Glue", "warehouse": "mine"}}}),
        b'{ "store": {"values": [1.10]}}\n',
        b'{"open": oops\n',
        b"[1]\n",
        b'{"open":[]}\n',
        b"\n",
    ],
)
def test_every_other_line_stays_as_it_is(other: bytes) -> None:
    assert with_warehouse(other, Path("/elsewhere")) == other


def test_a_conversation_that_the_connector_refuses_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_bytes(b'{"open": oops\n')
    monkeypatch.setattr("sys.argv", ["scripts/run", "bad.jsonl"])
    assert main() == 1
    assert "line 1: not a JSON object" in capfd.readouterr().err


@pytest.mark.parametrize(("name", "why"), [("missing.jsonl", "No such file or directory"), (".", "Is a directory")])
def test_a_conversation_that_cannot_be_read_is_one_error(
    name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["scripts/run", name])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.endswith(f"{name} cannot be read: {why}\n")


def test_a_table_is_shown_with_its_schema_its_snapshots_and_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pa.table({"id": pa.array([41, 42], pa.int64()), "name": ["ä" * 40, None]})
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.things", rows.schema)
    table.append(rows)
    table.append(rows)
    show_tables(tmp_path)
    shown = capsys.readouterr().out
    assert "shop.things: 4 rows, 2 snapshots, 2 columns" in shown
    assert [line.split() for line in shown.splitlines()].count(["42"]) == 2
    assert "ä" * 27 + "…" in shown
    assert str(table.current_snapshot().snapshot_id) in shown  # type: ignore[union-attr]  # it was just committed
    assert table.metadata_location in shown


def test_a_table_without_a_snapshot_is_shown_as_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("shop")
    catalog.create_table("shop.things", pa.schema([pa.field("id", pa.int64())]))
    show_tables(tmp_path)
    assert "shop.things: 0 rows, 0 snapshots, 1 columns" in capsys.readouterr().out


def test_columns_that_the_terminal_has_no_room_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    assert list(aligned(("a", "b", "c"), [("12345", "1", "long, long")])) == ["  a      b  … 1 more", "  12345  1"]
