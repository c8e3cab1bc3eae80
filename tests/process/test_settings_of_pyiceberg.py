"""The config decides, and not the settings that PyIceberg reads from the environment and from a file."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from fixtures.conversation import CONFIG, line
from support.repository import REPOSITORY

BINDING: Final = {
    "resourceConfig": {"table": "notes"},
    "resourcePath": [CONFIG["namespace"], "notes"],
    "collection": {
        "name": "acme/notes",
        "key": ["/id"],
        "projections": [{"ptr": "/id", "field": "id", "inference": {"types": ["integer"], "exists": "MUST"}}],
    },
    "fieldSelection": {"keys": ["id"]},
    "deltaUpdates": True,
    "stateKey": "notes.v0",
}
REQUEST: Final = line("apply", {"materialization": {"name": "acme/task", "config": CONFIG, "bindings": [BINDING]}})
OLD_FORM: Final = "legacy-current-snapshot-id: true\n"  # of the current snapshot's id in metadata, if there is none


def in_environment(**variables: str) -> Callable[[Path], dict[str, str]]:
    return lambda _: variables


def in_file_of(place: str, content: str) -> Callable[[Path], dict[str, str]]:
    """`place` is the variable that names the directory of the file, or "" for the working directory."""

    def write(directory: Path) -> dict[str, str]:
        file = (directory / place if place else directory) / ".pyiceberg.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
        return {place: str(file.parent)} if place else {}

    return write


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(in_environment(PYICEBERG_MANIFEST_CACHE_SIZE="x"), id="a number that is none"),
        pytest.param(in_environment(PYICEBERG_LEGACY_CURRENT_SNAPSHOT_ID="true"), id="another form of metadata"),
        pytest.param(in_environment(pyiceberg_catalog="x", PYICEBERG_CATALOG__A__URI="y"), id="a catalog"),
        pytest.param(in_file_of("PYICEBERG_HOME", OLD_FORM), id="a file that a variable names"),
        pytest.param(in_file_of("HOME", "[broken"), id="a broken file at home"),
        pytest.param(in_file_of("", OLD_FORM), id="a file in the working directory"),
    ],
)
def test_settings_of_pyiceberg_have_no_effect(arrange: Callable[[Path], dict[str, str]], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **arrange(tmp_path)}
    command = [sys.executable, "-m", "connector"]
    ended = subprocess.run(command, input=REQUEST, capture_output=True, check=False, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.startswith(b'{"applied"')
    (metadata,) = tmp_path.glob("warehouse/**/*.metadata.json")
    assert "current-snapshot-id" not in metadata.read_text()
