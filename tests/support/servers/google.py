"""Google Cloud Storage as fake-gcs-server plays it, behind a gate that demands tokens as Google does."""

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.request import Request, urlopen

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.auth.transport.requests import Request as Transport
from google.oauth2.service_account import Credentials
from pyiceberg.io import GCS_SERVICE_HOST, GCS_TOKEN, GCS_TOKEN_EXPIRES_AT_MS

from support.jars import go_program
from support.repository import REPOSITORY
from support.servers.server_process import free_address, running

Json: TypeAlias = Any

ANYTHING: Final = ("GET", "POST", "PUT", "DELETE")


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def service_account(key: rsa.RSAPrivateKey, token_uri: str) -> str:
    """A key as Google's console writes it."""
    return json.dumps(
        {
            "type": "service_account",
            "client_email": "flow@lake.iam.gserviceaccount.com",
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "token_uri": token_uri,
        }
    )


@dataclass(frozen=True)
class GoogleStore:
    """A running store: every request needs a token."""

    uri: str
    token_server: str
    key: rsa.RSAPrivateKey = field(default_factory=new_key, repr=False)

    def service_account(
        self, *methods: str, lifetime: int = 3600, token_server: str = "", key: rsa.RSAPrivateKey | None = None
    ) -> str:
        """A key whose tokens live this long, and allow these methods."""
        server = token_server or self.token_server
        return service_account(key or self.key, f"{server}/{'+'.join(methods or ANYTHING)}/{lifetime}")

    def new_bucket(self) -> str:
        name = f"bucket-{secrets.token_hex(4)}"
        self.call("/storage/v1/b?project=lake", json.dumps({"name": name}).encode())
        return name

    def objects(self, bucket: str) -> list[str]:
        return [found["name"] for found in self.call(f"/storage/v1/b/{bucket}/o").get("items", ())]

    def call(self, path: str, body: bytes | None = None) -> Json:
        headers = {"Authorization": f"Bearer {self._signed_in().token}", "Content-Type": "application/json"}
        with urlopen(Request(f"{self.uri}{path}", body, headers)) as response:
            return json.load(response)

    def file_properties(self) -> dict[str, str]:
        """By which PyIceberg reads and writes files here."""
        credentials = self._signed_in()
        ends = str(int(credentials.expiry.timestamp() * 1000))
        return {GCS_SERVICE_HOST: self.uri, GCS_TOKEN: credentials.token, GCS_TOKEN_EXPIRES_AT_MS: ends}

    def _signed_in(self) -> Any:
        credentials: Any = Credentials.from_service_account_info(json.loads(self.service_account()), scopes=["any"])
        credentials.refresh(Transport())
        return credentials


def fake_gcs_server() -> Path:
    return go_program("fake-gcs-server", "a stand-in for Google Cloud Storage")


@contextmanager
def google_store(program: Path, directory: Path) -> Iterator[GoogleStore]:
    upstream, gate, token_server = free_address(), free_address(), free_address()
    store = GoogleStore(f"http://{gate}", f"http://{token_server}")
    public_key = directory / "public.pem"
    public_key.write_bytes(store.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    host, port = upstream.split(":")
    command = [
        str(program),
        "-scheme",
        "http",
        "-host",
        host,
        "-port",
        port,
        "-filesystem-root",
        str(directory / "data"),
    ]
    command += [
        "-external-url",
        store.uri,
        "-public-host",
        gate,
    ]  # where clients are told to send the rest of an upload
    # In a process of its own: PyArrow does not let another thread of its process answer while it reads.
    ports = (gate.rpartition(":")[2], token_server.rpartition(":")[2])
    gate_command = [sys.executable, "-m", "support.servers.google_gate", *ports, f"http://{upstream}", str(public_key)]
    environment = {"PYTHONPATH": f"{REPOSITORY}/tests"}
    with (
        running(command, {}, f"http://{upstream}/storage/v1/b", directory / "server.log"),
        running(gate_command, environment, store.token_server, directory / "gate.log"),
    ):
        yield store
