"""Tests that are interrupted or killed leave none of their servers running."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY
from support.servers.postgres import postgres_programs
from support.sessions.processes import marked, new_mark, wait_until

pytestmark = pytest.mark.slow  # pytest in pytest

SIGNALS: Final = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
TESTS: Final = """
import sys
import time
from pathlib import Path

import pytest

from support.servers.postgres import postgres_programs, postgres_server
from support.servers.server_process import free_address, running
from support.repository import TESTS


@pytest.fixture(scope="session")
def http(tmp_path_factory):
    host, port = free_address().split(":")
    command = [sys.executable, "-m", "http.server", "--bind", host, port]
    with running(command, {}, f"http://{host}:{port}", tmp_path_factory.mktemp("http") / "server.log"):
        yield


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    with postgres_server(postgres_programs(), tmp_path_factory.mktemp("postgres")):
        yield


def test_http(http):
    Path("begun").touch()
    time.sleep(60)


def test_postgres(postgres):
    Path("begun").touch()
    time.sleep(60)
"""


@pytest.mark.parametrize("number", SIGNALS, ids=[number.name for number in SIGNALS])
@pytest.mark.parametrize("side_by_side", ["0", "1"])
def test_a_server_ends_with_the_tests(tmp_path: Path, number: signal.Signals, side_by_side: str) -> None:
    end_in_the_middle(tmp_path, "test_http", "http.server", number, side_by_side)


@pytest.mark.catalog
@pytest.mark.parametrize("number", SIGNALS, ids=[number.name for number in SIGNALS])
def test_postgres_and_its_processes_end_with_the_tests(tmp_path: Path, number: signal.Signals) -> None:
    postgres_programs()
    end_in_the_middle(tmp_path, "test_postgres", "bin/postgres", number, "0")


def end_in_the_middle(directory: Path, test: str, server: str, number: signal.Signals, side_by_side: str) -> None:
    """Run one of the tests, end pytest while it lasts, and look for what is left."""
    (directory / "test_with_server.py").write_text(TESTS)
    (directory / "pytest.ini").write_text("[pytest]\n")
    mark = new_mark()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", side_by_side, "-k", test]
    environment = {**os.environ, **mark, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests"}
    for inherited in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[inherited]
    with (directory / "log").open("wb") as log:
        run = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        begun = wait_until((directory / "begun").exists)
        assert begun, (directory / "log").read_text()
        assert any(server in command for command in marked(mark).values())
        run.send_signal(number)
        run.wait(60)
        assert wait_until(lambda: not marked(mark)), marked(mark)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
