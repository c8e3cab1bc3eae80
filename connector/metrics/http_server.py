"""Serves metrics by HTTP. A scrape runs in a thread of its own and never holds up the session."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from connector.config.metrics_options import ListenAddress
from connector.host.errors import UserError

log = logging.getLogger(__name__)

PATHS: Final = ("/", "/metrics")
CLIENT_TIMEOUT: Final = 10.0  # seconds: a client that sends nothing must not keep its thread


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # the process does not wait for scrapes when it ends

    def __init__(self, address: ListenAddress, registry: CollectorRegistry | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.registry = registry
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def handle_error(self, *_: object) -> None:
        """Log the traceback. Most often the scraper has gone away, which is no problem."""
        log.debug("a scrape was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_TIMEOUT

    def do_GET(self) -> None:
        if self.server.registry is None or self.path.partition("?")[0] not in PATHS:
            self.send_error(404)
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        body = encode(self.server.registry)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""


@contextmanager
def serve_metrics(address: ListenAddress, registry: CollectorRegistry) -> Iterator[None]:
    """Serve the metrics until the block ends. Raises UserError if the address cannot be listened at."""
    server = _listen(address, registry)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        # This wakes the thread. Otherwise `shutdown` would wait for up to half a second, and the process ends now.
        with suppress(OSError):
            server.socket.shutdown(socket.SHUT_RDWR)
        server.shutdown()
        server.server_close()


def try_to_listen(address: ListenAddress) -> None:
    """Listen and stop again. Raises UserError if the address cannot be listened at."""
    _listen(address, None).server_close()


def _listen(address: ListenAddress, registry: CollectorRegistry | None) -> _Server:
    try:
        return _Server(address, registry)
    except OSError as error:
        raise UserError(
            f"/advanced/metrics/listen: the connector cannot listen at {address} ({error.strerror or error}). If "
            "another process uses the port, perhaps another task of this machine, choose another one. The host must be "
            "an address of this machine."
        ) from error
