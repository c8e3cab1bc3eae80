"""`scripts/servers`: the tests' servers, kept by a process in the background, for a person who tries configs."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from support.azure import ACCOUNT, azure_store, azurite
from support.endpoint_configs import aws_keys, glue, rest
from support.glue_server import glue_server, moto_python
from support.google import fake_gcs_server, google_store
from support.hive import hive_metastore
from support.jars import jars
from support.postgres import postgres_programs, postgres_server
from support.rest_catalog import rest_catalog_server
from support.s3_server import versitygw, versitygw_server

Json: TypeAlias = Any  # of an endpoint config: what a server is used with

DEADLINE: Final = 300.0  # seconds, for all of them to start
POLL_SECONDS: Final = 0.1


def start_s3(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(versitygw_server(versitygw(), directory))
    place = {"bucket": server.new_bucket(), "region": server.region, "s3_endpoint": server.endpoint}
    return {**place, "credentials": aws_keys(server, server.root.secret_access_key)}


def start_google(stack: ExitStack, directory: Path) -> Json:
    store = stack.enter_context(google_store(fake_gcs_server(), directory))
    place = {"storage_type": "Google Cloud Storage", "bucket": store.new_bucket(), "endpoint": store.uri}
    return {"storage": {**place, "service_account_json": store.service_account()}}


def start_azure(stack: ExitStack, directory: Path) -> Json:
    store = stack.enter_context(azure_store(azurite(), directory))
    place = {"storage_type": "Azure", "account": ACCOUNT, "container": store.new_container(), "endpoint": store.uri}
    return {"storage": {**place, "account_key": store.key}}


def start_rest(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(rest_catalog_server(jars("rest-catalog"), directory))
    storage = {"storage_type": "Local Files", "directory": str(server.warehouse)}
    return {"catalog": rest(server.uri), "storage": storage}


def start_glue(stack: ExitStack, directory: Path) -> Json:
    uri = stack.enter_context(glue_server(moto_python(), directory))
    return {"catalog": glue(), "environment": {"AWS_ENDPOINT_URL_GLUE": uri}}


def start_hive(stack: ExitStack, directory: Path) -> Json:
    metastore = stack.enter_context(hive_metastore(directory))
    storage = {"storage_type": "Local Files", "directory": str(metastore.warehouse)}
    return {"catalog": {"catalog_type": "Hive Metastore", "uri": metastore.uri}, "storage": storage}


def start_postgres(stack: ExitStack, directory: Path) -> Json:
    server = stack.enter_context(postgres_server(postgres_programs(), directory))
    return {"catalog": {"catalog_type": "SQL", "uri": server.new_database(), "password": server.password}}


SERVERS: Final[dict[str, Callable[[ExitStack, Path], Json]]] = {
    "s3": start_s3,
    "google": start_google,
    "azure": start_azure,
    "rest": start_rest,
    "glue": start_glue,
    "hive": start_hive,
    "postgres": start_postgres,
}


def keep(directory: Path, names: Sequence[str]) -> None:
    """Start the servers, say so in a file, and end them on SIGTERM."""
    with ExitStack() as stack:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        started = {}
        for name in names:
            (directory / name).mkdir()
            try:
                started[name] = SERVERS[name](stack, directory / name)
            except pytest.skip.Exception as reason:
                started[name] = {"left out": str(reason)}
        partial = directory / "partial.json"
        partial.touch(mode=0o600)  # the sign-ins are in it
        partial.write_text(json.dumps({"pid": os.getpid(), "servers": started}, indent=2))
        partial.rename(directory / "servers.json")
        while True:
            signal.pause()


def up(directory: Path, names: Sequence[str]) -> None:
    if not is_running(directory):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = [sys.executable, __file__, "--directory", str(directory), "keep", *names]
        with (directory / "keeper.log").open("wb") as log:
            keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + DEADLINE
        while not (directory / "servers.json").exists():
            if keeper.poll() is not None or time.monotonic() > deadline:
                keeper.terminate()
                sys.exit(f"The servers did not start:\n{(directory / 'keeper.log').read_text()}")
            time.sleep(POLL_SECONDS)
    status(directory, names)


def status(directory: Path, _: Sequence[str]) -> None:
    if not is_running(directory):
        print("No servers are running: scripts/servers up starts them.")
        return
    for name, config in recorded(directory)["servers"].items():
        print(f"{name:<9} {config['left out'] if 'left out' in config else shown(config)}")
    print(f"What configs need to use them, sign-ins included, is in {directory / 'servers.json'}; logs are beside it.")


def shown(config: Json) -> str:
    """Where the server is."""
    places = (config, config.get("storage", {}), config.get("catalog", {}), config.get("environment", {}))
    names = ("uri", "endpoint", "s3_endpoint", "AWS_ENDPOINT_URL_GLUE")
    return str(next(place[name] for name in names for place in places if name in place))


def down(directory: Path, _: Sequence[str]) -> None:
    if is_running(directory):
        keeper = recorded(directory)["pid"]
        os.kill(keeper, signal.SIGTERM)
        while is_running(directory):
            time.sleep(POLL_SECONDS)
    (directory / "servers.json").unlink(missing_ok=True)
    print("No servers are running.")


def recorded(directory: Path) -> Json:
    return json.loads((directory / "servers.json").read_text())


def is_running(directory: Path) -> bool:
    """Whether there is a keeper, and not another process that has got its number."""
    with suppress(OSError):
        return b"keep" in Path(f"/proc/{recorded(directory)['pid']}/cmdline").read_bytes().split(b"\0")
    return False


COMMANDS: Final = {"up": up, "status": status, "down": down, "keep": keep}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/servers")
    parser.add_argument("--directory", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("command", choices=("up", "status", "down", "keep"), metavar="up|status|down")
    parser.add_argument("names", nargs="*", choices=[*SERVERS, []], metavar="name", help=", ".join(SERVERS))
    given = parser.parse_args()
    COMMANDS[given.command](given.directory.absolute(), given.names or list(SERVERS))


if __name__ == "__main__":
    main()
