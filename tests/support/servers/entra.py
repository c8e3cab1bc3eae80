"""Microsoft's sign-in, as Azure's blob storage knows it: a token server over TLS that lets one application in, with its
secret or with a token of the cluster that runs it (workload identity)."""

import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs
from uuid import uuid4

from support.servers.certificate import Certificate
from support.servers.server_thread import QuietHandler, in_thread

Json: TypeAlias = Any

LIFETIME: Final = 3600  # seconds, of a token
SCOPE: Final = "https://storage.azure.com/.default"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass
class Entra:
    """Issues tokens to one application."""

    uri: str
    tenant: str = field(default_factory=lambda: str(uuid4()))
    client: str = field(default_factory=lambda: str(uuid4()))
    secret: str = field(default_factory=lambda: f"planted-{secrets.token_hex(16)}", repr=False)
    cluster_token: str = field(default_factory=lambda: f"planted-{secrets.token_hex(16)}", repr=False)
    issued: list[str] = field(default_factory=list, repr=False)

    def answer(self, path: str, form: Mapping[str, str]) -> tuple[HTTPStatus, Json]:
        if path != f"/{self.tenant}/oauth2/v2.0/token":
            return _refused("invalid_request", "AADSTS90002: Tenant not found.")
        if (form.get("grant_type"), form.get("scope")) != ("client_credentials", SCOPE):
            return _refused("invalid_scope", "AADSTS70011: The provided value for the scope is not valid.")
        if form.get("client_id") != self.client:
            return _refused("unauthorized_client", "AADSTS700016: Application was not found in the directory.")
        if form.get("client_assertion_type") == ASSERTION and form.get("client_assertion") != self.cluster_token:
            return _refused("invalid_client", "AADSTS70021: No matching federated identity record found.")
        if form.get("client_assertion_type") != ASSERTION and form.get("client_secret") != self.secret:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.")
        self.issued.append(self._token())
        return HTTPStatus.OK, {"token_type": "Bearer", "expires_in": LIFETIME, "access_token": self.issued[-1]}

    def _token(self) -> str:
        """A JWT, whose signature azurite does not verify."""
        now = int(time.time())
        claims = {
            "aud": "https://storage.azure.com",
            "iss": f"https://sts.windows.net/{self.tenant}/",
            "iat": now,
            "nbf": now - 60,
            "exp": now + LIFETIME,
            "oid": self.client,
            "jti": secrets.token_hex(16),
        }
        return ".".join((*map(_encoded, ({"alg": "RS256", "typ": "JWT"}, claims)), secrets.token_urlsafe(32)))


def _refused(error: str, description: str) -> tuple[HTTPStatus, Json]:
    return HTTPStatus.BAD_REQUEST, {"error": error, "error_description": description}


def _encoded(part: Json) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@contextmanager
def entra(certificate: Certificate) -> Iterator[Entra]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            sent = parse_qs(self.read_body().decode())
            status, answer = running.answer(self.path, {name: values[0] for name, values in sent.items()})
            self.respond(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = certificate.served(server.socket)
    running = Entra(f"https://127.0.0.1:{server.server_port}")
    with in_thread(server):
        yield running
