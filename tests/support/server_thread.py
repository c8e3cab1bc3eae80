"""A server in a thread of this process, for the tests of one context."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Final

POLL_SECONDS: Final = 0.01  # between looks at whether the server is to end


class QuietHandler(BaseHTTPRequestHandler):
    """Says nothing: pytest's output is for pytest."""

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
