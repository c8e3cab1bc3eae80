"""Azure's blob storage as Azurite plays it, which verifies every signature."""

import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import digest
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from pyarrow.fs import AzureFileSystem, FileSelector
from pyiceberg.io import (
    ADLS_ACCOUNT_KEY,
    ADLS_ACCOUNT_NAME,
    ADLS_BLOB_STORAGE_AUTHORITY,
    ADLS_BLOB_STORAGE_SCHEME,
    ADLS_DFS_STORAGE_AUTHORITY,
    ADLS_DFS_STORAGE_SCHEME,
    PY_IO_IMPL,
)

from connector.storage.file_access import STORE_FILE_IO
from support.jars import leave_out
from support.repository import REPOSITORY
from support.servers.certificate import Certificate
from support.servers.server_process import free_address, running
from support.servers.server_thread import QuietHandler, in_thread

ACCOUNT: Final = "lake"
VERSION: Final = "2021-06-08"


@dataclass(frozen=True)
class AzureStore:
    """A running store."""

    address: str
    key: str = field(repr=False)
    scheme: str = "http"

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.address}"

    def new_container(self) -> str:
        name = f"container-{secrets.token_hex(4)}"
        self.file_system().create_dir(name)
        return name

    def files(self, container: str) -> list[str]:
        found = self.file_system().get_file_info(FileSelector(container, recursive=True))
        return [file.path.removeprefix(f"{container}/") for file in found if file.is_file]

    def file_system(self) -> AzureFileSystem:
        return AzureFileSystem(
            ACCOUNT,
            account_key=self.key,
            blob_storage_authority=self.address,
            dfs_storage_authority=self.address,
            blob_storage_scheme=self.scheme,
            dfs_storage_scheme=self.scheme,
        )

    def file_properties(self) -> dict[str, str]:
        """By which PyIceberg reads files here, with a FileIO that knows where a container's name ends."""
        return {
            PY_IO_IMPL: STORE_FILE_IO,
            ADLS_ACCOUNT_NAME: ACCOUNT,
            ADLS_ACCOUNT_KEY: self.key,
            ADLS_BLOB_STORAGE_AUTHORITY: self.address,
            ADLS_BLOB_STORAGE_SCHEME: self.scheme,
            ADLS_DFS_STORAGE_AUTHORITY: self.address,
            ADLS_DFS_STORAGE_SCHEME: self.scheme,
        }

    def polars_properties(self) -> dict[str, str]:
        """What polars' own reader wants besides."""
        endpoint = f"{self.uri}/{ACCOUNT}"
        return {"account_name": ACCOUNT, "account_key": self.key, "endpoint": endpoint, "allow_http": "true"}

    def sas_token(self, permissions: str = "racwdl", lasts: timedelta = timedelta(hours=1)) -> str:
        """An account SAS, as Azure's documentation has it."""
        ends = (datetime.now(UTC) + lasts).strftime("%Y-%m-%dT%H:%M:%SZ")
        to_sign = "\n".join((ACCOUNT, permissions, "b", "sco", "", ends, "", "", VERSION, "", ""))
        signature = b64encode(digest(b64decode(self.key), to_sign.encode(), sha256)).decode()
        return urlencode({"sv": VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": ends, "sig": signature})


@contextmanager
def hosts_of(azure: AzureStore) -> Iterator[tuple[str, set[str]]]:
    """A proxy for which every host is one of the store's account, and the hosts that it was asked for."""
    hosts: set[str] = set()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"  # so that a client which asks before it sends a body is not left waiting

        def do_GET(self) -> None:
            hosts.add(self.headers["Host"])  # PyArrow sends a proxy the path only
            upstream = HTTPConnection(azure.address)
            headers = {**self.headers, "Host": azure.address}
            upstream.request(self.command, f"/{ACCOUNT}{self.path}", self.read_body(), headers)
            answer = upstream.getresponse()
            body = answer.read()
            kept = {name: value for name, value in answer.getheaders() if name.lower() != "transfer-encoding"}
            self.respond(answer.status, body, kept)
            upstream.close()

        do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_thread(http):
        yield f"http://127.0.0.1:{http.server_port}", hosts


def azurite() -> Path:
    """The server's program; without it, the test is left out (in CI it fails)."""
    program = REPOSITORY / ".cache" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        leave_out("needs a stand-in for Azure's blob storage: install Node.js with npm and run scripts/setup --tests")
    return program


@contextmanager
def azure_store(program: Path, directory: Path, certificate: Certificate | None = None) -> Iterator[AzureStore]:
    """With a certificate it speaks TLS, and takes tokens too."""
    store = AzureStore(free_address(), b64encode(os.urandom(32)).decode(), "https" if certificate else "http")
    host, port = store.address.split(":")
    command = [str(program), "--blobHost", host, "--blobPort", port, "--location", str(directory)]
    # PyArrow speaks newer versions of the protocol than it knows.
    command += ["--disableProductStyleUrl", "--disableTelemetry", "--skipApiVersionCheck"]
    if certificate:
        command += ["--cert", str(certificate.certificate), "--key", str(certificate.key), "--oauth", "basic"]
    with running(command, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{store.key}"}, store.uri, directory / "server.log"):
        yield store
