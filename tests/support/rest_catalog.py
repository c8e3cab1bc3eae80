"""Apache Iceberg's own REST catalog server in a JVM of its own, over a JDBC catalog in SQLite and a local warehouse."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from connector.spark import jvm

START_DEADLINE: Final = 60.0  # seconds


@dataclass(frozen=True)
class RestCatalogServer:
    """A running server, and the directory that its tables are in."""

    uri: str
    warehouse: Path


@contextmanager
def rest_catalog_server(jars: Path, directory: Path) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(f"http://127.0.0.1:{_free_port()}", directory / "warehouse")
    server.warehouse.mkdir(parents=True)
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [jvm.java(), "-Xmx512m", "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"],
            env={**os.environ, **_settings(server, directory)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_it_answers(server, process, directory / "server.log")
        yield server
    finally:
        process.kill()
        process.wait()


def _settings(server: RestCatalogServer, directory: Path) -> dict[str, str]:
    # CATALOG_X__Y_Z is the catalog's property x-y.z.
    return {
        "CATALOG_REST_PORT": server.uri.rpartition(":")[2],
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{server.warehouse}",
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_it_answers(server: RestCatalogServer, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{server.uri}/v1/config", timeout=5):
                return
        except (URLError, ConnectionError):
            try:
                status = process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the REST catalog server ended with status {status}:\n{log.read_text()}") from None
    raise AssertionError(f"the REST catalog server did not answer within {START_DEADLINE:.0f} s:\n{log.read_text()}")
