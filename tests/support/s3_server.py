"""A real S3 server, versitygw, that checks every signature and keeps its objects in a temporary directory."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3

from support.jars import REPOSITORY, leave_out
from support.server_process import free_address, running

REGION: Final = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A running server and its root's keys."""

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str = REGION

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name=self.region,
        )

    def new_bucket(self) -> str:
        name = f"bucket-{secrets.token_hex(4)}"
        self.client.create_bucket(Bucket=name)
        return name


def versitygw() -> Path:
    """The server's program; without it, the test is left out (in CI it fails)."""
    program = REPOSITORY / ".cache" / "go" / "bin" / "versitygw"
    if not program.exists():
        leave_out("needs an S3 server: install Go and run scripts/setup --tests")
    return program


@contextmanager
def versitygw_server(program: Path, directory: Path) -> Iterator[S3Server]:
    address = free_address()
    server = S3Server(f"http://{address}", secrets.token_hex(8), secrets.token_hex(16))
    # What it knows of objects beside their bytes goes next to them: no file system needs extended attributes.
    data, sidecar, users = directory / "data", directory / "sidecar", directory / "users"
    for path in (data, sidecar, users):
        path.mkdir(parents=True)
    command = [program, "--port", address, "--region", server.region, "--quiet", "--iam-dir", users]
    command += ["posix", "--sidecar", sidecar, data]
    keys = {"ROOT_ACCESS_KEY": server.access_key_id, "ROOT_SECRET_KEY": server.secret_access_key}
    with running(command, keys, server.endpoint, directory / "server.log"):
        yield server
