"""scripts/servers keeps the tests' servers running for a person, until it is told to end them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.jars import REPOSITORY
from support.s3_server import versitygw


def servers(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "scripts/local_servers.py", "--directory", str(directory), *arguments]
    environment = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


@pytest.mark.catalog
def test_servers_are_started_once_and_run_until_they_are_ended(tmp_path: Path) -> None:
    versitygw()
    directory = tmp_path / "servers"
    try:
        started = servers(directory, "up", "s3")
        assert servers(directory, "up", "s3") == servers(directory, "status") == started
        record = directory / "servers.json"
        endpoint = json.loads(record.read_text())["servers"]["s3"]["s3_endpoint"]
        assert f"s3        {endpoint}\n" in started
        assert record.stat().st_mode & 0o077 == 0, "it has keys"
    finally:
        assert servers(directory, "down") == "No servers are running.\n"
    assert "No servers are running" in servers(directory, "status")
    assert (directory / "s3" / "server.log").exists()
