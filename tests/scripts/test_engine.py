"""`scripts/engine stop` ends the repository's own engine and nothing else, and CI leaves no engine behind.
`scripts/engine start` leaves a running engine alone."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY
from support.sessions.processes import marked, new_mark, wait_until

SLEEP: Final = (sys.executable, "-c", "import time; time.sleep(600)")
WAIT: Final = "until [[ -e {} ]]; do sleep 0.01; done"
HOST: Final = "unix:///run/another.sock"
NEEDED: Final = (
    "bash",
    "cat",
    "cp",
    "dirname",
    "env",
    "grep",
    "mkdir",
    "mktemp",
    "rm",
    "sed",
)  # by the scripts, to start


class Checkout:
    """A copy of the scripts, and what was started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / ".cache" / "engine"
        shutil.copytree(REPOSITORY / "scripts", directory / "scripts")
        shutil.copytree(REPOSITORY / ".ci", directory / ".ci")
        shutil.copy(REPOSITORY / "Dockerfile", directory)
        self.mark = new_mark()
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        self.started.append(subprocess.Popen(command, cwd=self.directory, env={**os.environ, **self.mark}))
        return self.started[-1]

    def run(self, *command: str) -> int:
        return self.start(*command).wait(timeout=60)

    def replace(self, name: str, *lines: str) -> None:
        """Replace one of the scripts."""
        path = self.directory / name
        path.write_text("\n".join(("#!/usr/bin/env bash", "set -euo pipefail", *lines, "")))
        path.chmod(0o755)

    def engine_arguments(self) -> tuple[str, ...]:
        """The arguments that the script gives to an engine, and that it finds the engine by."""
        return "--host", f"unix://{self.state}/docker.sock", f"--data-root={self.state}/data"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    copied = Checkout(tmp_path / "checkout")
    yield copied
    for pid in marked(copied.mark):
        os.kill(pid, signal.SIGKILL)
    for process in copied.started:
        process.wait()


def test_a_process_that_has_the_number_of_an_earlier_engine_is_left_alone(checkout: Checkout) -> None:
    checkout.state.mkdir(parents=True)
    stranger = checkout.start(*SLEEP)
    (checkout.state / "docker.pid").write_text(str(stranger.pid))
    assert checkout.run("scripts/engine", "stop") == 0
    assert stranger.poll() is None


def test_an_engine_is_stopped_although_it_has_not_written_its_number_yet(checkout: Checkout) -> None:
    checkout.state.mkdir(parents=True)
    engine = checkout.start(*SLEEP, *checkout.engine_arguments())
    other = checkout.start(*SLEEP, f"--data-root={checkout.state}/data-of-another")
    assert wait_until(lambda: str(checkout.state) in marked(checkout.mark).get(engine.pid, ""))
    assert checkout.run("scripts/engine", "stop") == 0
    assert engine.wait(timeout=60) != 0
    assert other.poll() is None


def test_an_engine_that_is_being_started_is_stopped_when_it_has_started(checkout: Checkout) -> None:
    checkout.state.mkdir(parents=True)
    engine = shlex.join((*SLEEP, *checkout.engine_arguments()))
    start = f"exec 9>.cache/engine/lock; flock 9; touch locked; {WAIT.format('stop')}; {engine} 9>&- &"
    checkout.start("bash", "-c", start)
    assert wait_until((checkout.directory / "locked").exists)
    stop = checkout.start("bash", "-c", "touch stop; exec scripts/engine stop")
    assert stop.wait(timeout=60) == 0
    assert marked(checkout.mark) == {}


def test_nothing_is_stopped_where_there_was_never_an_engine(checkout: Checkout) -> None:
    assert checkout.run("scripts/engine", "stop") == 0
    assert not checkout.state.exists()


def test_ci_leaves_no_engine_behind_when_a_check_fails_while_the_engine_is_being_started(checkout: Checkout) -> None:
    tools = checkout.directory / "tools"
    tools.mkdir()
    for tool in ("npm", "mvn", "initdb"):
        checkout.replace(f"tools/{tool}")
    engine = shlex.join((*SLEEP, *checkout.engine_arguments()))
    checkout.replace("scripts/image", "touch building; host=$(bash scripts/starting); sleep 600")
    checkout.replace("scripts/starting", "mkdir -p .cache/engine; sleep 1", f"setsid {engine} >/dev/null &")
    checkout.replace("scripts/setup", "[[ $1 == --packages ]] && exit; touch fetching; sleep 600")
    checkout.replace("scripts/check", WAIT.format("building"), WAIT.format("fetching"), "exit 7")
    assert checkout.run("env", f"PATH={tools}:{os.environ['PATH']}", ".ci/run") == 7
    assert wait_until(lambda: marked(checkout.mark) == {})


class OtherEngine:
    """A machine whose docker answers, or does not. Its apt-get writes down what it is told, and installs mmdebstrap."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self.tools = checkout.directory / "tools"
        self.tools.mkdir()
        script = checkout.directory / "scripts" / "engine"
        text = script.read_text()
        assert "client=/usr/bin/docker\n" in text
        script.write_text(text.replace("client=/usr/bin/docker\n", f"client={self.tools}/docker\n"))
        self.let_docker(version="", context=f"echo {HOST}", image="", pull="")
        self.add("id", "echo 0")
        self.add(
            "apt-get",
            f'echo "$*" >>{checkout.directory}/apt-calls',
            f"[[ $* != *mmdebstrap* ]] || cp {self.tools}/id {self.tools}/mmdebstrap",
            "[[ $* != *docker.io* ]]",
        )

    def add(self, name: str, *lines: str) -> None:
        self._checkout.replace(f"tools/{name}", *lines)

    def let_docker(self, **answers: str) -> None:
        """Set what docker does for each of its commands."""
        self.add(
            "docker", 'case "$1" in', *(f"{command}) {does or ':'} ;;" for command, does in answers.items()), "esac"
        )

    def link_flock(self) -> None:
        self._link("flock")

    def start(self) -> "subprocess.CompletedProcess[str]":
        for name in NEEDED:
            self._link(name)
        environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        environment |= {"PATH": str(self.tools), **self._checkout.mark}
        return subprocess.run(
            ["scripts/engine", "start"],
            cwd=self._checkout.directory,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def installations(self) -> list[str]:
        calls = self._checkout.directory / "apt-calls"
        return [call for call in calls.read_text().splitlines() if " install " in f" {call} "] if calls.exists() else []

    def _link(self, name: str) -> None:
        found = shutil.which(name)
        assert found
        (self.tools / name).symlink_to(found)


@pytest.fixture
def other(checkout: Checkout) -> OtherEngine:
    return OtherEngine(checkout)


def test_a_running_engine_is_found_where_there_is_no_flock(other: OtherEngine) -> None:
    found = other.start()
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{HOST}\n", "")
    assert other.installations() == []


def test_no_other_engine_is_installed_while_one_runs_that_cannot_pull(other: OtherEngine) -> None:
    other.link_flock()
    other.let_docker(
        version="",
        context=f"echo {HOST}",
        image="exit 1",
        pull="echo 'Error: the registry cannot be reached' >&2; exit 1",
        **{"import": "cat >/dev/null"},
    )
    found = other.start()
    assert (found.returncode, found.stdout) == (0, f"{HOST}\n"), found.stderr
    assert "the registry cannot be reached" in found.stderr
    assert other.installations() == ["install --yes --no-remove --no-install-recommends mmdebstrap"]


def test_a_base_that_cannot_be_made_is_said_to_be_missing_and_not_the_engine(other: OtherEngine) -> None:
    other.add("id", "echo 1000")
    other.let_docker(version="", context=f"echo {HOST}", image="exit 1", pull="echo 'Error: no such host' >&2; exit 1")
    found = other.start()
    assert found.returncode == 1
    assert "python:3.11-slim-bookworm" in found.stderr
    assert "Error: no such host" in found.stderr
    assert "no container engine is running" not in found.stderr


def test_the_installation_of_an_engine_removes_no_package(other: OtherEngine) -> None:
    other.link_flock()
    other.let_docker(version="exit 1", context=f"echo {HOST}")
    assert other.start().returncode == 1
    assert other.installations() == ["install --yes --no-remove --no-install-recommends docker.io docker-compose"]


def test_the_error_of_a_docker_that_may_not_be_used_is_shown(other: OtherEngine) -> None:
    other.add("id", "echo 1000")
    other.let_docker(version="echo 'permission denied: /var/run/docker.sock' >&2; exit 1", context=f"echo {HOST}")
    found = other.start()
    assert found.returncode == 1
    assert "no container engine is running" in found.stderr
    assert "permission denied: /var/run/docker.sock" in found.stderr
