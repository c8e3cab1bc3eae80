"""scripts/servers keeps the tests' servers running for a person, until it is told to end them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import kept_server
import local_servers
from connector.checks.commit_probe import try_false_commits
from connector.checks.endpoint import look_up_namespace, open_endpoint, try_storage
from connector.config.settings import parse
from support.repository import REPOSITORY
from support.servers.glue_server import moto_python
from support.servers.s3_server import versitygw
from support.sessions.processes import marked, new_mark, wait_until

pytestmark = pytest.mark.catalog

Json: TypeAlias = Any


class Servers:
    """The script, with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mark = new_mark()

    def __call__(self, *arguments: str) -> str:
        command = [sys.executable, "scripts/local_servers.py", "--directory", str(self.directory), *arguments]
        environment = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests", **self._mark}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True, timeout=240
        )
        return done.stdout

    def pids(self, words: str = "") -> list[int]:
        """Of all that it has started and that runs, if it has these words in its command line."""
        return [pid for pid, command in marked(self._mark).items() if words in command]

    def config(self, name: str) -> Json:
        return json.loads((self.directory / name / "config.json").read_text())


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path / "servers")
    yield running
    running("down")
    assert running.pids() == []


def test_each_server_of_the_command_can_be_started() -> None:
    assert tuple(kept_server.SERVERS) == local_servers.SERVERS


def test_servers_are_started_once_and_run_until_they_are_ended(servers: Servers) -> None:
    versitygw()
    started = servers("up", "s3")
    assert f"s3        {servers.config('s3')['s3_endpoint']}\n" in started
    assert servers("up", "s3") == servers("status") == started
    assert (servers.directory / "s3" / "config.json").stat().st_mode & 0o077 == 0, "it has keys"
    assert servers("down") == servers("down") == "No servers are running.\n"
    assert "No servers are running" in servers("status")
    assert (servers.directory / "s3" / "server.log").exists()


def test_another_server_joins_those_that_run_and_one_that_has_died_begins_anew(servers: Servers) -> None:
    versitygw()
    moto_python()
    servers("up", "s3")
    s3 = servers.config("s3")
    assert len(servers("up", "s3", "glue").splitlines()) == 3
    assert servers.config("s3") == s3
    glue = servers.config("glue")
    [server] = servers.pids("versitygw --port")
    os.kill(server, signal.SIGKILL)
    assert wait_until(lambda: server not in servers.pids())
    assert f"{s3['s3_endpoint']} has died" in servers("status")
    assert "has died" not in servers("up", "s3", "glue")
    assert servers.config("s3")["pid"] != s3["pid"]
    assert servers.config("glue") == glue
    assert s3["pid"] not in servers.pids()


def test_a_rest_catalog_and_its_s3_server_are_one_endpoint(servers: Servers) -> None:
    versitygw()
    servers("up", "rest-s3")
    config = {name: value for name, value in servers.config("rest-s3").items() if name != "pid"}
    endpoint, _ = parse({"namespace": "shop", **config}, [])
    opened = open_endpoint(endpoint)
    with closing(opened.catalog) as catalog:
        catalog.create_namespace("shop")
        assert try_false_commits(look_up_namespace(opened, "shop")) > 0
        assert try_storage(endpoint, opened) == f"s3://{endpoint.bucket}"


@pytest.mark.slow  # half a minute for what other tests start one by one
def test_all_of_them_run_side_by_side(servers: Servers) -> None:
    started = servers("up")
    assert servers("up") == servers("status") == started
    assert [line.split()[0] for line in started.splitlines()[:-1]] == [*local_servers.SERVERS]
    assert "has died" not in started
