"""A command that looks at existing tables makes no Local catalog: its directory may only be misspelled."""

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.cli.arguments import parse_arguments
from connector.cli.commands import fence_command, inspect_command, maintain_command
from connector.cli.flow.flow_files import ConfigFile
from connector.cli.waiting import WaitingLine
from connector.config.catalog import LOCAL
from connector.host.errors import UserError
from support.snapshots import check_text


def inspect(source: ConfigFile) -> None:
    inspect_command.inspect_tables(inspect_command.InspectArguments(source))


def show_fence(source: ConfigFile) -> None:
    fence_command.show(fence_command.Place(source, "shop.orders"), as_json=False)


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
