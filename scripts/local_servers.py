"""`scripts/servers`: starts the tests' servers, each in a background process, so that a person can try configs."""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

Json: TypeAlias = Any

SERVERS: Final = ("s3", "google", "azure", "rest", "rest-s3", "glue", "hive", "postgres")
KEEPER: Final = Path(__file__).with_name("kept_server.py")
DEADLINE: Final = 300.0  # seconds, for all of them to start
POLL_SECONDS: Final = 0.1
CONNECT_SECONDS: Final = 5.0


def up(directory: Path, names: Sequence[str]) -> None:
    """Start the servers that do not run. A server that has died is started again, empty."""
    keepers = {name: start_keeper(directory, name) for name in names if not is_running(directory, name)}
    deadline = time.monotonic() + DEADLINE
    while waited_for := [name for name in keepers if not locate_record(directory, name).exists()]:
        for name in waited_for:
            is_over = keepers[name].poll() is not None or time.monotonic() > deadline
            if is_over and not locate_record(directory, name).exists():
                keepers[name].terminate()
                sys.exit(f"The server {name} did not start:\n{locate_log(directory, name).read_text()}")
        time.sleep(POLL_SECONDS)
    status(directory, names)


def start_keeper(directory: Path, name: str) -> "subprocess.Popen[bytes]":
    """Start a process that runs the server, after removing what an earlier one has left."""
    stop_server(directory, name)
    shutil.rmtree(directory / name, ignore_errors=True)
    (directory / name).mkdir(parents=True)
    command = [sys.executable, str(KEEPER), str(directory), name]
    with locate_log(directory, name).open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def status(directory: Path, names: Sequence[str]) -> None:
    recorded = {name: config for name in names if (config := read_record(directory, name))}
    for name, config in recorded.items():
        print(f"{name:<9} {config.get('left out') or describe_server(directory, name, config)}")
    if recorded:
        print(
            f"{directory}/<name>/config.json has the settings that a config needs to use a server, with credentials. "
            "The log is next to it."
        )
    else:
        print("No servers are running: scripts/servers up starts them.")


def describe_server(directory: Path, name: str, config: Json) -> str:
    is_dead = "" if is_running(directory, name) else " has died: scripts/servers up starts it again, empty"
    return f"{find_address(config)}{is_dead}"


def find_address(config: Json) -> str:
    places = (config, config.get("storage", {}), config.get("catalog", {}), config.get("environment", {}))
    names = ("uri", "endpoint", "s3_endpoint", "AWS_ENDPOINT_URL_GLUE")
    return str(next(place[name] for name in names for place in places if name in place))


def down(directory: Path, names: Sequence[str]) -> None:
    for name in names:
        stop_server(directory, name)
    if not any(read_record(directory, name) for name in SERVERS):
        print("No servers are running.")


def stop_server(directory: Path, name: str) -> None:
    if (recorded := read_record(directory, name)) and is_kept(recorded):
        os.kill(recorded["pid"], signal.SIGTERM)
        while is_kept(recorded):
            time.sleep(POLL_SECONDS)
    locate_record(directory, name).unlink(missing_ok=True)


def locate_record(directory: Path, name: str) -> Path:
    return directory / name / "config.json"


def locate_log(directory: Path, name: str) -> Path:
    return directory / name / "keeper.log"


def read_record(directory: Path, name: str) -> Json:
    with suppress(FileNotFoundError):
        return json.loads(locate_record(directory, name).read_text())


def is_running(directory: Path, name: str) -> bool:
    recorded = read_record(directory, name)
    return bool(recorded) and is_kept(recorded) and accepts_connections(recorded)


def is_kept(recorded: Json) -> bool:
    """Return whether the server's process still runs, and its id is not another process's by now."""
    with suppress(OSError):
        return bytes(KEEPER) in Path(f"/proc/{recorded['pid']}/cmdline").read_bytes().split(b"\0")
    return False


def accepts_connections(config: Json) -> bool:
    place = urlsplit(find_address(config))
    with suppress(OSError), socket.create_connection((place.hostname, place.port), timeout=CONNECT_SECONDS):
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/servers")
    parser.add_argument("--directory", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("command", choices=("up", "status", "down"))
    parser.add_argument("names", nargs="*", choices=[*SERVERS, []], metavar="name", help=", ".join(SERVERS))
    given = parser.parse_args()
    directory, names = given.directory.absolute(), given.names or list(SERVERS)
    match given.command:
        case "up":
            up(directory, names)
        case "status":
            status(directory, names)
        case "down":
            down(directory, names)


if __name__ == "__main__":
    main()
