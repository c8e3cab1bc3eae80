"""SeaweedFS as a REST catalog: a real server whose tables are in a bucket of its own. The bucket only accepts objects
whose names look as if they belong to a table."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from support.jars import leave_out
from support.repository import REPOSITORY
from support.servers.s3_server import Keys, S3Server
from support.servers.server_process import free_address, running
from support.sessions.processes import wait_until

BUCKET: Final = "lake"


@dataclass(frozen=True)
class SeaweedFs:
    """A running server."""

    uri: str
    s3: S3Server

    @property
    def credential(self) -> str:
        return f"{self.s3.root.access_key_id}:{self.s3.root.secret_access_key}"


def _program() -> Path:
    """The server's program; without it, the test is left out (in CI it fails)."""
    environment = REPOSITORY / ".cache" / "seaweedfs"
    if not (environment / "complete").exists():
        leave_out("needs SeaweedFS: run scripts/setup --all-tests")
    return environment / "bin" / "weed"


@contextmanager
def seaweedfs_server(directory: Path) -> Iterator[SeaweedFs]:
    """A server whose parts listen on free loopback ports."""
    program, keys = _program(), Keys.drawn()
    credentials = [{"accessKey": keys.access_key_id, "secretKey": keys.secret_access_key}]
    user = {"name": "admin", "credentials": credentials, "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
    (directory / "users.json").write_text(json.dumps({"identities": [user]}))
    (directory / "data").mkdir()
    parts = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")
    names = ("s3.port.iceberg", *parts, *(f"{part}.grpc" for part in parts))
    ports = {name: free_address().rpartition(":")[2] for name in names}
    settings = {
        "dir": str(directory / "data"),
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.config": str(directory / "users.json"),
        "tableBucket": BUCKET,
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": "16",
        "volume.max": "20",
        "admin.ui": "false",
        "webdav": "false",
        "s3.port.lance": "0",
        **ports,
    }
    command = [str(program), "mini", *(f"-{name}={value}" for name, value in settings.items())]
    server = SeaweedFs(
        f"http://127.0.0.1:{ports['s3.port.iceberg']}",
        S3Server(program, f"http://127.0.0.1:{ports['s3.port']}", keys),
    )
    temporary = {"TMPDIR": str(directory)}  # for its sockets
    with running(command, temporary, f"{server.uri}/v1/config", directory / "server.log"):
        assert wait_until(lambda: _has_bucket(server))
        yield server


def _has_bucket(server: SeaweedFs) -> bool:
    properties = {
        "uri": server.uri,
        "warehouse": f"s3://{BUCKET}",
        "credential": server.credential,
        "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens",
    }
    try:
        with RestCatalog("rest", **properties) as catalog:
            catalog.list_namespaces()
    except (NoSuchNamespaceError, RESTError):  # until the bucket is made
        return False
    return True
