"""A server in a thread of this process, for the tests of one context."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from types import MappingProxyType
from typing import Final

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
POLL_SECONDS: Final = 0.01  # between looks at whether the server is to end


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing: pytest's output is for pytest."""

    # The body of an answer would wait for the client's confirmation of the headers, which it delays by 40 ms.
    disable_nagle_algorithm = True

    def read_body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def respond(self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Send a whole response, to HEAD without its body: it would be taken for the next response."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def in_thread(server: BaseServer) -> Iterator[None]:
    """Serve while the context lasts. Then the server is closed."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
