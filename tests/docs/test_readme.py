"""README repeats the figures that other pages have, and shows the output of its first command as it is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.parts import targets
from support.repository import REPOSITORY

README: Final = (REPOSITORY / "README.md").read_text()
PERFORMANCE: Final = (REPOSITORY / "docs" / "performance.md").read_text()
TESTED: Final = (REPOSITORY / "docs" / "tested.md").read_text()
BLOCK: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FIGURE: Final = re.compile(
    r"\d[\d.,]*\d?\s(?:GB|MB/s|MB|KB|rows/s|s|ms|seconds|minutes|hours|%|per cent|times|commits)\b"
)
SHELL: Final = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
VERSION: Final = re.compile(r"\b[A-Z]\w+(?: with Iceberg)? \d+(?:\.\d+)+\b")
GAP: Final = "…"


def figures(text: str) -> list[str]:
    """Return the measured figures of a text, without its blocks of code."""
    return FIGURE.findall(BLOCK.sub("", text))


def test_readme_has_figures() -> None:
    assert len(figures(README)) >= 2 * len(targets.HEADLINES)


@pytest.mark.parametrize("figure", sorted(set(figures(README))))
def test_a_figure_of_readme_is_one_that_scripts_bench_has_written(figure: str) -> None:
    _, _, measured = PERFORMANCE.partition(targets.BEGIN)
    assert re.search(rf"(?<![\d.]){re.escape(figure)}\b", measured.partition(targets.END)[0])


def test_a_figure_that_no_benchmark_has_written_is_found() -> None:
    assert figures("It takes 0.07 s, and 161 MB/s.\n```\n7 MB\n```\n") == ["0.07 s", "161 MB/s"]


@pytest.mark.parametrize("version", sorted(set(VERSION.findall(README.partition("## What it runs with")[2]))))
def test_a_version_of_readme_is_on_the_page_of_what_is_tested(version: str) -> None:
    assert version.rpartition(" ")[2] in TESTED


@pytest.mark.spark
def test_the_first_command_prints_what_readme_shows(tmp_path: Path) -> None:
    command = [
        sys.executable,
        f"{REPOSITORY}/scripts/run_conversation.py",
        f"{REPOSITORY}/fixtures/conversations/orders.jsonl",
    ]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = iter([*run.stderr.splitlines(), *run.stdout.splitlines()])
    [shown] = re.findall(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    missing = [line for line in shown.splitlines() if line != GAP and not _occurs(line, printed)]
    assert missing == []


@pytest.mark.spark
def test_the_commands_of_readme_work_if_the_block_is_copied_whole(tmp_path: Path) -> None:
    for name in (".venv", "fixtures", "scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    [_, commands] = SHELL.findall(README)
    run = subprocess.run(
        ["bash", "-c", f"set -e\n{commands}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, (run.stdout, run.stderr)
    assert "demo.documents" in run.stdout.partition("All checks passed.")[2], "inspect shows the table"


def _occurs(line: str, printed: Iterator[str]) -> bool:
    """Look for a line of README among the lines that are left. A gap of the line may be any text."""
    expected = re.compile(".*".join(map(re.escape, line.split(GAP))))
    return any(expected.fullmatch(each) for each in printed)
