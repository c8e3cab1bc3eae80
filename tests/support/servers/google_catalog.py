"""A gateway in front of a REST catalog server that wants Google's tokens, as BigLake does, and issues them itself."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from google.auth import jwt

from support.servers.catalog_gateway import Json, Sent, refusal, serving
from support.servers.google import new_key, service_account
from support.servers.google_gate import AUDIENCE
from support.servers.server_process import free_address

PROJECT: Final = "lake-project"
PROJECT_HEADER: Final = "x-goog-user-project"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_PATH: Final = "/token"


@dataclass
class GoogleCatalog:
    """Demands a token that was issued for all of Google Cloud, and the project that pays for the requests."""

    uri: str
    lifetime: float  # seconds, of a token
    key: rsa.RSAPrivateKey = field(default_factory=new_key, repr=False)
    issued: list[str] = field(default_factory=list, repr=False)
    refusals: int = 0
    _ends: dict[str, float] = field(default_factory=dict, repr=False)

    def service_account(self, key: rsa.RSAPrivateKey | None = None) -> str:
        return service_account(key or self.key, f"{self.uri}{TOKEN_PATH}")

    def revoke_tokens(self) -> None:
        self._ends.clear()

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        if sent.path == TOKEN_PATH:
            return self._issue(sent.body.decode())
        headers = {name.lower(): value for name, value in sent.headers.items()}
        if self._ends.get(headers.get("authorization", "").removeprefix("Bearer "), 0) < time.monotonic():
            self.refusals += 1
            return HTTPStatus.UNAUTHORIZED, refusal(HTTPStatus.UNAUTHORIZED, "invalid authentication credentials")
        if headers.get(PROJECT_HEADER) != PROJECT:
            return HTTPStatus.FORBIDDEN, refusal(HTTPStatus.FORBIDDEN, "the API requires a quota project")
        return sent

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer

    def _issue(self, form: str) -> tuple[HTTPStatus, Json]:
        """RFC 7523."""
        public_key = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        try:
            claims: Any = jwt.decode(parse_qs(form)["assertion"][0], public_key, audience=AUDIENCE)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        if claims["scope"] != SCOPE:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_scope", "error_description": claims["scope"]}
        self.issued.append(f"planted-token-{secrets.token_hex(16)}")
        self._ends[self.issued[-1]] = time.monotonic() + self.lifetime
        return HTTPStatus.OK, {"access_token": self.issued[-1], "expires_in": self.lifetime}


@contextmanager
def google_catalog(upstream: str, lifetime: float = 3600) -> Iterator[GoogleCatalog]:
    """A gateway on a free loopback port in front of the server at this address."""
    address = free_address()
    gateway = GoogleCatalog(f"http://{address}", lifetime)
    with serving(gateway, address, upstream):
        yield gateway
