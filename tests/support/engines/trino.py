"""Trino as a reader: a real server in a process of its own, asked over HTTP."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from support.jars import jars, leave_out
from support.servers.java_25 import java_25
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address, running

START_DEADLINE: Final = 180.0  # seconds, after it answers: it loads its plugins
POLL_SECONDS: Final = 0.1
HEAP: Final = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS: Final = {
    "node.environment": "test",
    "node.id": "reader",
    "node.internal-address": "127.0.0.1",
    "node.bind-ip": "127.0.0.1",
    "coordinator": "true",
    "node-scheduler.include-coordinator": "true",
    "catalog.management": "dynamic",
    "query.max-memory": "200MB",
    "query.max-memory-per-node": "200MB",
    "memory.heap-headroom-per-node": "100MB",
}


@dataclass(frozen=True)
class Trino:
    """A running server without catalogs."""

    uri: str

    def rows(self, query: str) -> list[list[Any]]:
        """The rows of a query. AssertionError with what the server says if it cannot answer."""
        answer = self._ask(f"{self.uri}/v1/statement", query.encode())
        rows: list[list[Any]] = answer.get("data", [])
        while "nextUri" in answer:
            answer = self._ask(answer["nextUri"])
            rows += answer.get("data", [])
        assert "error" not in answer, answer["error"]["message"]
        return rows

    def add_catalog(self, properties: Mapping[str, str]) -> str:
        """The name of a new catalog of Iceberg tables with these properties."""
        name = f"lake_{uuid.uuid4().hex}"
        given = ", ".join(f""""{key}" = '{value}'""" for key, value in properties.items())
        self.rows(f"CREATE CATALOG {name} USING iceberg WITH ({given})")
        return name

    def is_starting(self) -> bool:
        return bool(self._ask(f"{self.uri}/v1/info")["starting"])

    @staticmethod
    def _ask(uri: str, body: bytes | None = None) -> Any:
        with urlopen(Request(uri, body, {"X-Trino-User": "reader"}), timeout=60) as answer:
            return json.load(answer)


def on_s3(s3: S3Server) -> dict[str, str]:
    """The properties of a catalog for a store."""
    return {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": s3.root.access_key_id,
        "s3.aws-secret-key": s3.root.secret_access_key,
    }


def rest(uri: str) -> dict[str, str]:
    """The properties of a REST catalog."""
    return {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": uri}


def hive(uri: str) -> dict[str, str]:
    """The properties of a Hive metastore."""
    return {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": uri}


@contextmanager
def trino_server(directory: Path) -> Iterator[Trino]:
    """A server on a free loopback port. Without its parts, the test is left out."""
    server = jars("trino")
    if not (server / "plugin").exists():
        leave_out("needs Trino: install Maven and run scripts/setup --all-tests")
    address = free_address()
    own = {"http-server.http.port": address.rpartition(":")[2], "discovery.uri": f"http://{address}"}
    config = directory / "config.properties"
    settings = {**SETTINGS, **own, "plugin.dir": str(server / "plugin")}
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [str(java_25()), *HEAP, f"-Duser.dir={directory}", f"-Dconfig={config}", "-cp", f"{server}/lib/*"]
    trino = Trino(f"http://{address}")
    log = directory / "server.log"
    with running([*command, "io.trino.server.TrinoServer"], {}, f"{trino.uri}/v1/info", log):
        deadline = time.monotonic() + START_DEADLINE
        while trino.is_starting():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(POLL_SECONDS)
        yield trino
