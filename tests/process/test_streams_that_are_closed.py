"""A process without someone to listen or to speak to says so, in one record and by its exit status, and with no
traceback."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from support.snapshots import check_text

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "machine_errors.json"
FULL: Final = "/dev/full"


def run(redirections: str, *arguments: str, **streams: Any) -> "subprocess.CompletedProcess[str]":
    """The command as a shell runs it."""
    command = ["bash", "-c", f'exec "$@" {redirections}', "bash", sys.executable, "-m", "connector", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_the_protocol_needs_both_of_its_streams(closed: str) -> None:
    ended = run(closed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert ended.returncode == 1
    check_text(SNAPSHOTS, "a closed stream", ended.stderr.partition(" error ")[2], {})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("plan without stdin", ["plan"]),
        ("a config from a closed stdin", ["fence", "show", "--config", "-", "--table", "shop.orders"]),
    ],
)
def test_a_command_that_reads_stdin_needs_it(name: str, arguments: list[str]) -> None:
    ended = run("<&-", *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert ended.returncode == 1
    check_text(SNAPSHOTS, name, ended.stderr.partition(" error ")[2], {})


def test_what_cannot_be_printed_is_no_success() -> None:
    ended = run(f">{FULL}", "spec")
    assert ended.returncode == 1
    check_text(SNAPSHOTS, "a full stdout", ended.stderr.partition(" error ")[2], {})


def test_a_reader_who_has_seen_enough_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("", "spec", stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
