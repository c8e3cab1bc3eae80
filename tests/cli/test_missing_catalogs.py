"""Commands make no Local catalog: its directory may only be misspelled. Those that look at tables say that there is
none. A check and a plan go on, as before the first start of a task."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.cli.arguments import parse_arguments
from connector.cli.commands import check_command, fence_command, inspect_command, maintain_command, plan_command
from connector.cli.flow.flow_files import ConfigFile, FlowFile
from connector.cli.waiting import WaitingLine
from connector.config.catalog import LOCAL
from connector.host.errors import UserError
from support.snapshots import check_text


def inspect(source: ConfigFile) -> None:
    inspect_command.inspect_tables(inspect_command.InspectArguments(source))


def show_fence(source: ConfigFile) -> None:
    fence_command.show(fence_command.FenceArguments(source, "shop.orders"), as_json=False)


def maintain(source: ConfigFile) -> None:
    options = parse_arguments(["maintain", "all", "--config", source.file])
    maintain_command.maintain_tables(maintain_command.read_arguments(options, source), WaitingLine(None))


each_command = pytest.mark.parametrize("run", [inspect, show_fence, maintain])


def write_config(directory: Path, catalog: str) -> ConfigFile:
    file = directory / "config.yaml"
    file.write_text(f"namespace: shop\ncatalog: {{catalog_type: {LOCAL}{catalog}}}\n")
    return ConfigFile(str(file))


@each_command
@pytest.mark.parametrize("exists", [False, True], ids=["no directory", "an empty directory"])
def test_a_misspelled_warehouse_stays_as_it_is(tmp_path: Path, run: Callable[[ConfigFile], None], exists: bool) -> None:
    warehouse = tmp_path / "werehouse"
    if exists:
        warehouse.mkdir()
    source = write_config(tmp_path, f", warehouse: {warehouse}")
    with pytest.raises(UserError) as raised:
        run(source)
    check_text("cli_errors", "no Local catalog", str(raised.value), {str(tmp_path): "…"})
    assert {*tmp_path.rglob("*")} == {*[warehouse] * exists, Path(source.file)}


@each_command
def test_a_catalog_without_a_warehouse_has_no_tables_of_earlier_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[ConfigFile], None]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    source = write_config(tmp_path, "")
    with pytest.raises(UserError) as raised:
        run(source)
    check_text("cli_errors", "no warehouse of a Local catalog", str(raised.value))
    assert [*tmp_path.iterdir()] == [Path(source.file)]


# A check and a plan


SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def write_task(directory: Path, warehouse: Path) -> FlowFile:
    config = {"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": str(warehouse)}}
    binding = {"source": "acme/orders", "resource": {"table": "orders"}}
    task = {"endpoint": {"connector": {"config": config}}, "bindings": [binding]}
    collections = {"acme/orders": {"key": ["/id"], "schema": SCHEMA}}
    file = directory / "flow.yaml"
    file.write_text(json.dumps({"materializations": {"acme/lake": task}, "collections": collections}))
    return FlowFile(str(file), "acme/lake")


def check(source: ConfigFile | FlowFile, *, may_write: bool = False) -> dict[str, str]:
    """What each step says, after a mark."""
    said: list[str] = []
    check_command.check(source, said.append, WaitingLine(None), as_json=False, may_write=may_write)
    return {line.split()[1]: line for line in said[:-1]}


@pytest.mark.parametrize("may_write", [False, True], ids=["", "--write"])
def test_a_check_before_the_first_start_creates_nothing(tmp_path: Path, may_write: bool) -> None:
    """It passes, but for the check of commits, which needs a namespace."""
    warehouse = tmp_path / "lakes" / "warehouse"
    source = write_task(tmp_path, warehouse)
    said = check(source, may_write=may_write)
    assert [step for step, line in said.items() if line.startswith("✗")] == (["commits"] if may_write else [])
    catalog = f"✓ catalog   the Local catalog in {warehouse} does not exist yet: publishing a task creates it ("
    assert said["catalog"].startswith(catalog)
    assert said["namespace"].startswith("✓ namespace shop is created when a task is published (")
    assert said["table"].startswith("✓ table     could be created (")
    storage = f"✓ storage   a file was written, read and deleted in {tmp_path}, in which {warehouse} can be created ("
    assert said["storage"].startswith(storage)
    assert said["bindings"].startswith("✓ bindings  are valid: shop.orders (")
    assert [*tmp_path.rglob("*")] == [Path(source.file)]


def test_a_directory_without_a_catalog_is_left_as_it_is(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    said = check(write_task(tmp_path, warehouse))
    assert f"the Local catalog in {warehouse} does not exist yet" in said["catalog"]
    assert f"a file was written, read and deleted in {warehouse} (" in said["storage"]
    assert [*warehouse.iterdir()] == []


def test_a_directory_that_cannot_be_made_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = check(write_task(tmp_path, tmp_path / "file" / "warehouse"))
    assert said["storage"].startswith(f"✗ storage   the warehouse directory {tmp_path}/file/warehouse of the Local")
    assert said["bindings"].startswith("- bindings  not checked: needs the storage")


def test_a_name_that_is_too_long_for_a_directory_is_found(tmp_path: Path) -> None:
    said = check(write_task(tmp_path, tmp_path / ("w" * 300)))
    assert "File name too long" in said["catalog"]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    os.symlink(tmp_path / "nowhere", tmp_path / "warehouse")
    said = check(write_task(tmp_path, tmp_path / "warehouse"))
    assert said["storage"].startswith("✗ storage   the warehouse directory")


def test_a_plan_before_the_first_start_creates_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warehouse = tmp_path / "werehouse"
    source = write_task(tmp_path, warehouse)
    with caplog.at_level(logging.INFO):
        actions = plan_command.plan_task(source)
    assert actions[0] == "create namespace shop"
    assert len(actions) == 2
    assert actions[1].startswith("create table shop.orders")
    assert [*tmp_path.rglob("*")] == [Path(source.file)]
    assert f"there is no Local catalog in {warehouse} yet: apply creates it" in caplog.text
