"""The publisher of the connector sets the address of its documentation in one place; spec and --help answer with it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

pytestmark = pytest.mark.long

PARTS: Final = ("connector", "protocol", "pyproject.toml", "README.md", "LICENSE")
FLOWS_OWN: Final = "https://docs.estuary.dev/concepts/materialization/"
PUBLISHED: Final = "https://lake.test/materialize-iceberg/"


def checkout(directory: Path, url: str) -> Path:
    """A copy of the repository, in which the publisher has set the address."""
    directory.mkdir()
    for part in PARTS:
        source = REPOSITORY / part
        if source.is_dir():
            shutil.copytree(source, directory / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory)
    project = directory / "pyproject.toml"
    urls = f'[project.urls]\nDocumentation = "{url}"\n\n' if url else ""
    project.write_text(project.read_text().replace("[project.scripts]", f"{urls}[project.scripts]"))
    return directory


def install(source: Path, target: Path) -> Path:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"),
            *("--disable-pip-version-check", "--target", str(target), str(source)),
        ],
        check=True,
        capture_output=True,
    )
    return target


def answered(directory: Path, environment: Mapping[str, str] = os.environ) -> str:
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from connector.command_line import main; main()"
    command = [sys.executable, "-P", "-c", program, str(directory), "spec"]
    spec = subprocess.run(command, check=True, capture_output=True, text=True, cwd=directory, env=environment).stdout
    return str(json.loads(spec)["documentationUrl"])


@pytest.mark.parametrize(("url", "expected"), [(PUBLISHED, PUBLISHED), ("", FLOWS_OWN)])
def test_spec_answers_with_the_address_that_the_publisher_set(tmp_path: Path, url: str, expected: str) -> None:
    source = checkout(tmp_path / "checkout", url)
    assert answered(source) == expected
    assert answered(install(source, tmp_path / "installed")) == expected


def test_the_address_is_found_in_a_locale_whose_encoding_is_not_utf_8(tmp_path: Path) -> None:
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    source = checkout(tmp_path / "checkout", PUBLISHED)
    assert answered(source, ascii_only) == PUBLISHED
    assert answered(install(source, tmp_path / "installed"), ascii_only) == PUBLISHED
