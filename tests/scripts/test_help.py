"""Each script prints its help at once: it installs nothing before, and starts nothing."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

SCRIPTS: Final = sorted(
    path.name
    for path in (REPOSITORY / "scripts").iterdir()
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash")
)
FEW_PROGRAMS: Final = ("bash", "dirname", "env", "sed")  # no Python, no package installer, no container engine


@pytest.fixture
def fresh_copy(tmp_path: Path) -> Path:
    """A copy of the scripts in which nothing is installed, and a directory of the few programs that help may use."""
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for program in FEW_PROGRAMS:
        found = shutil.which(program)
        assert found
        (tmp_path / "bin" / program).symlink_to(found)
    return tmp_path


def run(copy: Path, *command: str, directory: str = ".") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": str(copy / "bin")}
    return subprocess.run(command, cwd=copy / directory, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_the_first_comment_of_the_script(fresh_copy: Path, script: str, option: str) -> None:
    lines = (REPOSITORY / "scripts" / script).read_text().splitlines()
    comment = [line.removeprefix("#").removeprefix(" ") for line in lines[1 : lines.index("set -euo pipefail")]]
    helped = run(fresh_copy, f"scripts/{script}", option)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.splitlines() == comment
    assert not (fresh_copy / ".venv").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_is_on_the_page_for_contributors(script: str) -> None:
    assert f"`scripts/{script}" in (REPOSITORY / "CONTRIBUTING.md").read_text()


def test_help_may_be_asked_for_from_any_directory_and_after_other_arguments(fresh_copy: Path) -> None:
    expected = run(fresh_copy, "scripts/test", "--help").stdout
    assert run(fresh_copy, "./test", "--all", "-k", "fence", "--help", directory="scripts").stdout == expected
    assert run(fresh_copy, str(fresh_copy / "scripts/test"), "--help", directory="bin").stdout == expected


def test_the_help_of_benchmarks_lists_their_programs(fresh_copy: Path) -> None:
    helped = run(fresh_copy, "scripts/bench", "--help").stdout
    programs = {path.stem for path in (REPOSITORY / "benchmarks").glob("[!_]*.py")}
    assert {line.split()[0] for line in helped.splitlines() if line.startswith("  ")} == programs


@pytest.mark.parametrize("name", ["speed", "store", "", "a", "*", "stores\n"])
def test_an_unknown_benchmark_is_refused_before_anything_is_installed(fresh_copy: Path, name: str) -> None:
    refused = run(fresh_copy, "scripts/bench", name)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == run(fresh_copy, "scripts/bench", "--help").stdout
    assert not (fresh_copy / ".venv").exists()


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_a_benchmark_is_that_of_its_program_and_installs_nothing(fresh_copy: Path, option: str) -> None:
    python = fresh_copy / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/usr/bin/env bash\necho "$@"\n')
    python.chmod(0o755)
    helped = run(fresh_copy, "scripts/bench", "stores", "--rows", "5", option)
    assert (helped.returncode, helped.stdout, helped.stderr) == (0, "-m benchmarks.stores --help\n", "")


def test_the_help_of_a_benchmark_is_that_of_the_script_until_the_packages_are_installed(fresh_copy: Path) -> None:
    helped = run(fresh_copy, "scripts/bench", "stores", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout == run(fresh_copy, "scripts/bench", "--help").stdout
    assert not (fresh_copy / ".venv").exists()
