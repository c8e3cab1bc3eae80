"""The commands behave as people expect of a command line: help, versions, suggestions, JSON, and signs of life."""

import json
import os
import platform
import pty
import re
import select
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from connector import VERSION
from connector.config.catalog import LOCAL
from connector.iceberg.maintenance.actions import Action
from support.repository import REPOSITORY
from support.sessions.processes import heeded_signals
from support.snapshots import check_text

COMMANDS: Final = (
    ["spec"],
    ["check"],
    ["plan"],
    ["inspect"],
    ["fence", "show"],
    ["fence", "reset"],
    ["maintain"],
    ["demo"],
)
SILENCE: Final = 30  # seconds
EXPENSIVE: Final = {"pyiceberg", "pyspark", "pyarrow", "jsonschema", "boto3", "yaml", "referencing", "email", "click"}


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "connector", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=os.environ | environment, stdin=subprocess.DEVNULL
    )


@cache
def read_help(*command: str) -> "subprocess.CompletedProcess[str]":
    return run(*command, "--help")


def test_help_has_what_a_person_needs_to_begin() -> None:
    said = run("--help").stdout
    for part in (
        "examples:",
        "materialize-iceberg check --config config.yaml",
        "materialize-iceberg demo\n",
        "exit status:",
        "environment:",
    ):
        assert part in said
    for name in ("LOG_FORMAT", "LOG_LEVEL", "FLOW_RUNTIME_CODEC", "JAVA_HOME", "TMPDIR"):
        assert name in said
    assert "documentation: https://docs.estuary.dev/concepts/materialization/" in said


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_has_help_and_takes_json(command: list[str]) -> None:
    said = read_help(*command)
    assert said.returncode == 0
    assert "--json" in said.stdout


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        (["chek"], "check"),
        (["inspct"], "inspect"),
        (["fence", "rest"], "reset"),
        (["Plan"], "plan"),
        (["dmo"], "demo"),
        (["mainten"], "maintain"),
        (["maintain", "orphan"], "orphans"),
    ],
    ids=str,
)
def test_a_wrong_command_is_answered_with_the_one_that_was_meant(wrong: list[str], meant: str) -> None:
    said = run(*wrong)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.strip().endswith(f". Did you mean {meant}?")


def test_a_word_that_is_like_no_command_gets_no_suggestion() -> None:
    said = run("xylophone")
    assert said.returncode == 2
    assert "Did you mean" not in said.stderr


def test_a_config_and_a_specification_cannot_both_be_given() -> None:
    said = run("check", "--config", "a.yaml", "--flow", "b.yaml")
    assert said.returncode == 2
    assert "not allowed with argument --config" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--json"], "--json needs a command, or --version"),
        (["check", "--config", "a.yaml", "--task", "acme/lake"], "--task needs --flow"),
        (["inspect", "--config", "-", "--state", "-"], "only one of the files can be -"),
        (["plan", "--flow", "-", "--state", "-"], "only one of the files can be -"),
        (["demo", "-", "--key", "id", "--config", "-"], "only one of the files can be -"),
        (["demo", "--config", "a.yaml", "--into", "lake"], "not allowed with argument --config"),
        (["plan", "--task", "acme/lake"], "--task needs --flow"),
        (["plan", "--state", "state.json"], "--state of `plan` needs --flow"),
        (["demo", "orders.jsonl"], "--key is missing"),
        (["demo", "--key", "id"], "--key needs a file of documents"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_arguments_that_do_not_go_together_are_wrong(arguments: list[str], problem: str) -> None:
    said = run(*arguments)
    assert (said.returncode, said.stdout) == (2, "")
    assert problem in said.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["inspect", "--table", "orders"], "--table orders: give the namespace and the table"),
        (["maintain", "all", "--table", "shop."], "--table shop.: give the namespace and the table"),
        (["fence", "show", "--table", ".orders"], "--table .orders: give the namespace and the table"),
        (["inspect", "--state", "state.json"], "--state needs --materialization"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_arguments_that_need_the_config_have_the_same_status(
    arguments: list[str], problem: str, tmp_path: Path
) -> None:
    config = {"namespace": "shop", "catalog": {"catalog_type": LOCAL, "warehouse": str(tmp_path)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = run(*arguments, "--config", str(tmp_path / "config.json"))
    assert (said.returncode, said.stdout) == (2, "")
    assert problem in said.stderr


def test_a_stdout_of_another_encoding_takes_what_it_can_and_the_rest_escaped(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("namespace: 1")
    said = run("check", "--config", str(tmp_path / "config.yaml"), PYTHONIOENCODING="latin-1")
    assert (said.returncode, said.stderr) == (1, "")
    assert said.stdout.startswith(r"\u2717 config")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_page_of_commands_has_each_command_with_its_arguments(command: list[str]) -> None:
    page = (REPOSITORY / "docs" / "commands.md").read_text()
    title = re.compile(rf".*\b{' '.join(command)}\b")
    (section,) = (each for each in page.split("\n## ") if title.match(each))
    general = page[: page.index("\n## spec")]
    arguments = re.findall(r"^  (--[a-z-]+)", read_help(*command).stdout, re.MULTILINE)
    assert "--json" in arguments
    for argument in arguments:
        assert argument in section or argument in general, argument


def test_the_page_of_commands_and_the_help_describe_each_action_of_maintain() -> None:
    page = (REPOSITORY / "docs" / "commands.md").read_text()
    section = page.partition("\n## maintain\n")[2].partition("\n## ")[0]
    description = " ".join(read_help("maintain").stdout.split())
    for action in Action:
        # In the table of the arguments, and in that of the JSON.
        assert section.count(f"\n| `{action}` | ") == 2, action
        assert f". {action} " in description, action


@pytest.mark.parametrize(("arguments", "is_parsed"), [(["spec"], False), (["spec", "--json"], True)])
def test_spec_loads_nothing_that_the_commands_need(arguments: list[str], is_parsed: bool) -> None:
    program = (
        f"import sys; sys.argv[1:] = {arguments}; from connector.command_line import main; main(); "
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    # The first modules are loaded by Python itself: an editable installation has a hook.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not EXPENSIVE & ({*ran.stderr.split()} - {*bare.stdout.split()})
    assert ("connector.cli.arguments" in ran.stderr.split(), "argparse" in ran.stderr.split()) == (is_parsed, is_parsed)


def test_a_spec_request_loads_neither_a_parser_of_arguments_nor_the_state() -> None:
    program = "import sys; from connector.command_line import main; main(); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input='{"spec":{}}\n',
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert ran.stdout.startswith('{"spec":')
    assert {"connector.cli.arguments", "connector.model.state"}.isdisjoint(ran.stderr.split())


def test_a_file_with_the_name_of_a_standard_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('broken')\n")
    config = tmp_path / "config.yaml"
    config.write_text(f"namespace: shop\ncatalog: {{catalog_type: {LOCAL}, warehouse: {tmp_path}}}\n")
    said = run("inspect", "--config", str(config), PYTHONPATH=os.pathsep.join([str(tmp_path), str(REPOSITORY)]))
    (line,) = said.stderr.splitlines()
    assert (said.returncode, said.stdout) == (1, "")
    check_text("machine_errors", "a file in place of a module", line.partition(" error ")[2], {str(tmp_path): "…"})


# Ctrl-C

INTERRUPTED: Final = """
import os, runpy, signal, sys

class Interruption:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
runpy.run_module("connector", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("imported", ["connector.command_line", "protocol.stdio", "connector.cli.arguments"])
def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word(imported: str) -> None:
    with heeded_signals():
        ended = subprocess.run([sys.executable, "-c", INTERRUPTED, imported], capture_output=True, cwd=REPOSITORY)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


# Versions


def test_the_version_comes_with_the_versions_of_what_the_connector_runs_on() -> None:
    first, *others = run("--version").stdout.splitlines()
    assert first.startswith(f"materialize-iceberg {VERSION} (revision ")
    assert [line.split()[0] for line in others] == ["Python", "PyIceberg", "Spark", "Java"]
    assert others[0] == f"Python {platform.python_version()}"


def test_versions_are_printed_as_json_with_the_revision_of_the_image() -> None:
    said = json.loads(run("--version", "--json", MATERIALIZE_ICEBERG_REVISION="0123abc").stdout)
    assert said.keys() == {"version", "revision", "python", "pyiceberg", "spark", "java"}
    assert (said["version"], said["revision"]) == (VERSION, "0123abc")


def test_a_machine_without_java_still_has_a_version(tmp_path: Path) -> None:
    said = run("--version", "--json", JAVA_HOME=str(tmp_path))
    assert (said.returncode, json.loads(said.stdout)["java"]) == (0, None)
    assert "Java not found" in run("--version", JAVA_HOME=str(tmp_path)).stdout


# Signs of life


def waiting_java(directory: Path) -> Path:
    """A Java that ends when it is told to: with a line on the pipe `go`."""
    (directory / "bin").mkdir()
    os.mkfifo(directory / "go")
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\nread line <{directory}/go\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    return directory


def write_config(directory: Path) -> str:
    file = directory / "config.yaml"
    file.write_text(f"namespace: shop\ncatalog:\n  catalog_type: {LOCAL}\n  warehouse: {directory}/warehouse\n")
    return str(file)


def read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        readable, _, _ = select.select([terminal], [], [], SILENCE)
        assert readable, f"the terminal has shown nothing for {SILENCE} s but {seen!r}"
        seen += os.read(terminal, 1000)


@pytest.mark.long
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_on_a_terminal_a_check_that_takes_long_shows_that_it_works(tmp_path: Path, form: list[str]) -> None:
    home = waiting_java(tmp_path)
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "connector", "check", "--config", write_config(tmp_path), *form],
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=REPOSITORY,
        env=os.environ | {"JAVA_HOME": str(home)},
    )
    try:
        # The step is named while it still runs: Java waits for the line.
        read_until(terminal, b" java 1 s")
        (home / "go").write_text("\n")
        stdout, _ = process.communicate()
    finally:
        process.kill()
        os.close(stderr)
        os.close(terminal)
    assert process.returncode == 0
    assert b"\x1b" not in stdout
    assert b"17.0.1" in stdout


def test_in_a_pipe_a_check_of_a_yaml_config_shows_only_its_steps(tmp_path: Path) -> None:
    said = run("check", "--config", write_config(tmp_path))
    assert (said.returncode, said.stderr) == (0, "")
    assert "\x1b" not in said.stdout
    assert said.stdout.endswith("All checks passed.\n")


# Config files


def test_an_error_of_a_yaml_config_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("namespace: shop\ncatalog\n  catalog_type: Local\n")
    said = run("check", "--config", str(tmp_path / "config.yaml"))
    assert said.returncode == 1
    assert f"✗ config    {tmp_path}/config.yaml is not YAML: line 3" in said.stdout
    assert "JSON" not in said.stdout
