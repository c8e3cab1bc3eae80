"""`scripts/engine stop` ends the repository's own engine and nothing else."""

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


class Checkout:
    """A copy of the scripts, and what was started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / ".cache" / "engine"
        shutil.copytree(REPOSITORY / "scripts", directory / "scripts")
        shutil.copy(REPOSITORY / "Dockerfile", directory)
        self.mark = new_mark()
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        self.started.append(subprocess.Popen(command, cwd=self.directory, env={**os.environ, **self.mark}))
        return self.started[-1]

    def run(self, *command: str) -> int:
        return self.start(*command).wait(timeout=60)

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
