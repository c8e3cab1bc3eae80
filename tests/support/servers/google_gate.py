"""What fake-gcs-server lacks: a gate that demands tokens, and a server that issues them to who signs with the service
account's key. Run with the gate's port, the token server's port, the store's address and the file of the public key.

Which methods a token allows and how many seconds it lives is in the address that it is asked for at: /POST+GET/3600.
"""

import json
import secrets
import sys
import time
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from google.auth import jwt

from support.servers.fault_proxy import GENUINE, Fault, Request, fault_proxy
from support.servers.server_thread import QuietHandler

Json: TypeAlias = Any

AUDIENCE: Final = "https://oauth2.googleapis.com/token"  # whatever the server's address


class Tokens:
    """Those that were issued: until when they hold, and what they allow."""

    def __init__(self, public_key: bytes) -> None:
        self._public_key = public_key
        self._issued: dict[str, tuple[float, list[str]]] = {}

    def issue(self, path: str, form: bytes) -> tuple[HTTPStatus, Json]:
        """RFC 7523."""
        try:
            jwt.decode(parse_qs(form.decode())["assertion"][0], self._public_key, audience=AUDIENCE)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        _, methods, lifetime = path.split("/")
        token = f"planted-token-{secrets.token_hex(16)}"
        self._issued[token] = (time.time() + int(lifetime), methods.split("+"))
        return HTTPStatus.OK, {"access_token": token, "expires_in": int(lifetime)}

    def judge(self, request: Request) -> Fault:
        ends, methods = self._issued.get(request.authorization.removeprefix("Bearer "), (0.0, []))
        if ends < time.time():
            return Fault(0, HTTPStatus.UNAUTHORIZED)
        return GENUINE if request.method in methods else Fault(0, HTTPStatus.FORBIDDEN)


def main(gate_port: str, token_port: str, store: str, public_key: str) -> None:
    tokens = Tokens(Path(public_key).read_bytes())

    class TokenServer(QuietHandler):
        def do_POST(self) -> None:
            status, answer = tokens.issue(self.path, self.read_body())
            self.respond(status, json.dumps(answer).encode())

    with fault_proxy(store, int(gate_port)) as gate:
        gate.choose = tokens.judge
        ThreadingHTTPServer(("127.0.0.1", int(token_port)), TokenServer).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
