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


def in_files(**contents: str) -> Callable[[Path], dict[str, str]]:
    """Each in the directory that a variable of this name has, and in the working directory what is of `WORKING`."""

    def write(directory: Path) -> dict[str, str]:
        places = {name: directory if name == "WORKING" else directory / name for name in contents}
        for name, place in places.items():
            place.mkdir(exist_ok=True)
            (place / ".pyiceberg.yaml").write_text(contents[name])
        return {name: str(place) for name, place in places.items() if name != "WORKING"}

    return write


@pytest.mark.parametrize(
    "arrange",
    [
        # A number that is none, another form of metadata, and catalogs.
        in_environment(
            PYICEBERG_MANIFEST_CACHE_SIZE="x",
            PYICEBERG_LEGACY_CURRENT_SNAPSHOT_ID="true",
            pyiceberg_catalog="x",
            PYICEBERG_CATALOG__A__URI="y",
        ),
        # PyIceberg takes the first file that it finds.
        in_files(PYICEBERG_HOME=OLD_FORM, HOME="[broken", WORKING=OLD_FORM),
        pytest.param(in_files(HOME="[broken"), marks=pytest.mark.slow),
        pytest.param(in_files(WORKING=OLD_FORM), marks=pytest.mark.slow),
    ],
    ids=["the environment", "files", "a broken file at home", "a file in the working directory"],
)
def test_settings_of_pyiceberg_have_no_effect(arrange: Callable[[Path], dict[str, str]], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **arrange(tmp_path)}
    command = [sys.executable, "-m", "connector"]
    ended = subprocess.run(command, input=REQUEST, capture_output=True, check=False, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.startswith(b'{"applied"')
    (metadata,) = tmp_path.glob("warehouse/**/*.metadata.json")
    assert "current-snapshot-id" not in metadata.read_text()
