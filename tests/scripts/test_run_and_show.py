"""scripts/run puts a conversation's tables where it says, and shows them as they are."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from fixtures.conversation import CONFIG, line
from run_conversation import main, with_warehouse
from show_tables import show_tables
from support.engines.readers import readers_catalog


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


def test_the_tables_of_a_warehouse_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    for name in ("things", "others"):
        catalog.create_table(("shop", name), pa.schema([pa.field("id", pa.int64())]))
    show_tables(tmp_path)
    shown = capsys.readouterr().out
    assert "shop.things: 0 rows" in shown
    assert "shop.others: 0 rows" in shown
    assert "iceberg_scan" in shown
