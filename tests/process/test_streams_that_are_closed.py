"""A process without someone to listen or to speak to says so, in one record and by its exit status, and with no
traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from support.engines.readers import ledger_table
from support.repository import REPOSITORY
from support.sessions.connector_process import Process
from support.sessions.runtime import Runtime
from support.snapshots import check_text

pytestmark = pytest.mark.long

WITH_PACKAGES: Final = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
FULL: Final = "/dev/full"


def shell_command(redirections: str, *module: str) -> list[str]:
    return ["bash", "-c", f'exec "$@" {redirections}', "bash", sys.executable, "-m", *module]


def run(redirections: str, *arguments: str, **streams: Any) -> "subprocess.CompletedProcess[str]":
    """The command as a shell runs it."""
    command = shell_command(redirections, "connector", *arguments)
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)


def launch_without_stderr(module: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> Process:
    log.touch()
    command = shell_command("2>&-", *module)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=directory, stdin=pipe, stdout=pipe, env={**os.environ, **environment})


def test_a_program_that_gives_the_machine_keys_does_not_get_the_protocol_as_its_stdin(tmp_path: Path) -> None:
    """It could read requests."""
    place = {"bucket": "lake", "region": "us-east-1", "catalog": {"catalog_type": "AWS Glue"}}
    config = {"namespace": "ns", "advanced": {"feature_flags": "use_machine_credentials"}, **place}
    helper = f"sh -c 'readlink /proc/self/fd/0 > {tmp_path}/stdin'"
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process = {helper}\n")
    keys = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    environment = {name: value for name, value in os.environ.items() if name not in keys}
    ended = run(
        "",
        input=json.dumps({"validate": {"connectorType": "IMAGE", "config": config}}),
        env={**environment, "AWS_PROFILE": "lake", "AWS_CONFIG_FILE": str(tmp_path / "config")},
    )
    assert (tmp_path / "stdin").read_text() == f"{os.devnull}\n", ended.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_the_protocol_needs_both_of_its_streams(closed: str) -> None:
    ended = run(closed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert ended.returncode == 1
    check_text("machine_errors", "a closed stream", ended.stderr.partition(" error ")[2])


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
    check_text("machine_errors", name, ended.stderr.partition(" error ")[2])


@pytest.mark.parametrize(
    "arguments",
    [
        ["spec"],
        ["--version"],
        ["check", "--config", "gone.json"],
        ["plan"],
        ["inspect", "--config", "gone.json"],
        ["maintain", "all", "--config", "gone.json"],
        ["fence", "show", "--config", "gone.json", "--table", "shop.orders"],
        ["demo"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_cannot_print_is_no_success(arguments: list[str], tmp_path: Path) -> None:
    ended = run(">&-", *arguments, stdin=subprocess.DEVNULL, cwd=tmp_path, env=WITH_PACKAGES)
    assert ended.returncode == 1
    check_text("machine_errors", "a command with a closed stdout", ended.stderr.partition(" error ")[2])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "requests"), [(["spec"], ""), ([], '{"spec":{}}\n')], ids=["command", "protocol"]
)
def test_what_cannot_be_written_is_no_success(arguments: list[str], requests: str) -> None:
    ended = run(f">{FULL}", *arguments, input=requests)
    assert ended.returncode == 1
    check_text("machine_errors", "a full stdout", ended.stderr.partition(" error ")[2])


def test_a_reader_who_has_seen_enough_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("", "spec", stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.spark
def test_a_session_without_stderr_runs_without_logs(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, launch=launch_without_stderr)
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    rows = ledger_table(tmp_path).scan().to_arrow()
    assert rows["id"].to_pylist() == [1]


def test_an_error_without_stderr_has_its_status() -> None:
    assert run("2>&-", "plan", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).returncode == 1
    assert run("2>&- <&-", "plan", stdout=subprocess.PIPE).returncode == 1
    assert run("2>&- >&-", "plan", stdin=subprocess.DEVNULL).returncode == 1


def test_a_working_directory_that_was_deleted_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["bash", "-c", 'rmdir "$PWD"; exec "$@"', "bash", sys.executable, "-m", "connector", "spec"]
    ended = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False, env=WITH_PACKAGES)
    assert (ended.returncode, ended.stdout) == (1, "")
    check_text("machine_errors", "no working directory", ended.stderr.partition(" error ")[2])
