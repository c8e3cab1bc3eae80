"""Time limits on requests to a REST catalog or a webhook: for a connection, each piece of an answer, and all of it.

The timeout of `requests` starts again with each byte. So a server that sends single bytes would be waited for without
limit.

Connections stay open. One that is idle for minutes may be closed without notice, such as by a NAT gateway or a restart
of the server. So a read that fails for this reason is sent again.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from requests import ConnectionError, PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidURL, ReadTimeout
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import LocationValueError, ProtocolError


class TimeLimits(NamedTuple):
    """Seconds to wait for a connection, for each piece of an answer, and for the whole of a request.

    Without `reads_content`, an answer ends with its headers.
    """

    connect: float
    read: float
    whole: float = 300
    reads_content: bool = True


TIME_LIMITS: Final = TimeLimits(connect=10, read=60)
READS: Final = frozenset({"GET", "HEAD"})  # a change may have been done, even without an answer


def limit_time(session: Session, limits: TimeLimits) -> Session:
    """Set time limits for all requests of a session, and return it."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, _TimeLimitedAdapter(limits))
    return session


class _Deadline:
    """Shuts a connection down when it passes, so that reading from it ends."""

    def __init__(self) -> None:
        self.has_passed = False
        self._socket: socket.socket | None = None

    def ends(self, connected: socket.socket) -> None:
        """Let the deadline shut this connection down, at once if it has passed."""
        self._socket = connected
        if self.has_passed:
            self.passes()

    def passes(self) -> None:
        """Shut the connection down."""
        self.has_passed = True
        if self._socket:
            with suppress(OSError):  # the server has closed it
                self._socket.shutdown(socket.SHUT_RDWR)


_deadline: ContextVar[_Deadline] = ContextVar("deadline")


@contextmanager
def _deadline_in(seconds: float) -> Iterator[_Deadline]:
    deadline = _Deadline()
    timer = threading.Timer(seconds, deadline.passes)
    timer.daemon = True
    timer.start()
    token = _deadline.set(deadline)
    try:
        yield deadline
    finally:
        _deadline.reset(token)
        timer.cancel()
        timer.join()  # the connection may be used again, and must not be shut down then


class _Connection(HTTPConnection):
    def getresponse(self) -> Any:
        _deadline.get().ends(self.sock)
        return super().getresponse()


class _SecureConnection(HTTPSConnection):
    def getresponse(self) -> Any:
        _deadline.get().ends(self.sock)
        return super().getresponse()


class _TimeLimitedAdapter(HTTPAdapter):
    """Sends each request with time limits, and reads the whole answer before it returns. A read whose connection ends
    without an answer is sent once more."""

    def __init__(self, limits: TimeLimits) -> None:
        super().__init__()
        self._limits = limits

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _SecureConnection if pool.scheme == "https" else _Connection
        return pool

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        try:
            return self._send_once(request, *args, **kwargs)
        except ConnectionError as error:
            if request.method not in READS or not isinstance(error.args[0], ProtocolError):
                raise
            return self._send_once(request, *args, **kwargs)  # by a new connection: in the pool, it is the next one

    def _send_once(
        self, request: PreparedRequest, stream: bool = False, timeout: Any = None, *args: Any, **kwargs: Any
    ) -> Response:
        limits = self._limits
        with _deadline_in(limits.whole) as deadline:
            try:
                response = super().send(request, stream, timeout or (limits.connect, limits.read), *args, **kwargs)
                _ = response.content if limits.reads_content else b""
            except LocationValueError as error:  # `requests` converts only those of addresses that it parses itself
                raise InvalidURL(error) from error
            except RequestException as error:
                if not deadline.has_passed:
                    raise
                raise _late(request, limits) from error
            if deadline.has_passed:  # an answer without a length seems to be whole wherever it ends
                raise _late(request, limits)
            return response


def _late(request: PreparedRequest, limits: TimeLimits) -> ReadTimeout:
    return ReadTimeout(f"the answer was not whole after {limits.whole:.0f} s", request=request)
