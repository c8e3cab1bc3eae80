"""Time limits on HTTP requests: for a connection, each piece of an answer, and all of it.

Connections stay open. The system probes one that is idle, so that a NAT gateway does not forget it between two commits.
It may be closed all the same, such as by a restart of the server. So a read that fails for this reason is sent again.
"""

import time
from typing import Any, Final, NamedTuple

from requests import ConnectionError, PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidURL, ReadTimeout
from urllib3 import HTTPConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import LocationValueError, ProtocolError

from connector.host.answer_time_limit import limit_answers
from connector.host.machine import list_keep_alive_options


class TimeLimits(NamedTuple):
    """Seconds to wait for a connection, for each piece of an answer, and for the whole of it.

    Without `reads_content`, an answer ends with its headers.
    """

    connect: float
    read: float
    whole: float = 300
    reads_content: bool = True


_SOCKET_OPTIONS: Final = (*HTTPConnection.default_socket_options, *list_keep_alive_options())
READS: Final = frozenset({"GET", "HEAD"})  # a change may have been done, even without an answer


def limit_time(session: Session, limits: TimeLimits) -> Session:
    """Set time limits for all requests of a session, and return it."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, _TimeLimitedAdapter(limits))
    return session


class _TimeLimitedAdapter(HTTPAdapter):
    """Sends each request with time limits, and reads the whole answer before it returns. A read whose connection ends
    without an answer is sent once more."""

    def __init__(self, limits: TimeLimits) -> None:
        super().__init__()
        self._limits = limits

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, socket_options=_SOCKET_OPTIONS)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> ProxyManager:
        manager: ProxyManager = super().proxy_manager_for(*args, **kwargs, socket_options=_SOCKET_OPTIONS)
        return manager

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> HTTPConnectionPool:
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        limit_answers(pool, self._limits.whole)
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
        limits, began = self._limits, time.monotonic()
        try:
            response = super().send(request, stream, timeout or (limits.connect, limits.read), *args, **kwargs)
            _ = response.content if limits.reads_content else b""
        except LocationValueError as error:  # `requests` converts only those of addresses that it parses itself
            raise InvalidURL(error) from error
        except RequestException as error:
            if time.monotonic() - began < limits.whole:
                raise
            raise ReadTimeout(f"the answer was not whole after {limits.whole:.0f} s", request=request) from error
        return response
