"""The first command of README works in a fresh clone on a machine that has Python, but no Java."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.engines.readers import readers_catalog
from support.repository import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.spark]

FORGOTTEN: Final = {"JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV"}
FIRST_COMMAND: Final = re.compile(r"^## Try it\n.*?^```sh\n([^\n]+)", re.DOTALL | re.MULTILINE)
OWN: Final = str(Path(sys.prefix) / "bin")


def path_without_java(links: Path) -> str:
    """The PATH without this environment's own directory. A directory with Java is replaced by links to its others."""
    directories = []
    for number, directory in enumerate(filter(None, os.environ["PATH"].split(os.pathsep))):
        if directory == OWN or not Path(directory).is_dir():
            continue
        if (Path(directory) / "java").exists():
            replaced = links / str(number)
            replaced.mkdir(parents=True)
            for program in Path(directory).iterdir():
                if not program.name.startswith("java"):
                    (replaced / program.name).symlink_to(program)
            directory = str(replaced)
        directories.append(directory)
    return os.pathsep.join(directories)


def test_the_first_command_of_readme_installs_java_and_shows_tables(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
    environment["PATH"] = path_without_java(tmp_path / "programs")
    assert shutil.which("java", path=environment["PATH"]) is None
    [first] = FIRST_COMMAND.findall((REPOSITORY / "README.md").read_text())
    outcome = subprocess.run(
        ["bash", "-c", first], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "installing the Java runtime of PyPI" in outcome.stderr
    [warehouse] = re.findall(r"^warehouse: (.+)$", outcome.stdout + outcome.stderr, re.MULTILINE)
    assert Path(warehouse).is_relative_to(clone)
    assert readers_catalog(Path(warehouse)).list_namespaces()
    shown = re.findall(r"^━━ (\S+): ([\d,]+) rows?,", outcome.stdout, re.MULTILINE)
    assert shown
    assert "0" not in {rows for _, rows in shown}
