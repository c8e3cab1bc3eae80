"""A time limit for the whole answer of an HTTP server. The limit of a connection starts again with each byte, so a
server that sends single bytes would be waited for without limit."""

import time
from functools import partial
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any

from urllib3 import HTTPConnectionPool


def limit_answers(pool: HTTPConnectionPool, seconds: float) -> None:
    """Let reading an answer fail when it is not whole after so many seconds, with the same error as when nothing
    comes. This is for the connections that the pool opens from now on."""
    pool.ConnectionCls = partial(_make_connection, type(pool).ConnectionCls, seconds)  # type: ignore[assignment]


def _make_connection(kind: Any, seconds: float, **settings: Any) -> Any:
    connection = kind(**settings)
    connection.response_class = partial(_begin_answer, seconds)
    return connection


def _begin_answer(seconds: float, connected: socket, *arguments: Any, **options: Any) -> HTTPResponse:
    answer = HTTPResponse(connected, *arguments, **options)
    answer.fp = BufferedReader(_LimitedReader(answer.fp.detach(), connected, seconds))
    return answer


class _LimitedReader(RawIOBase):
    """Reads from a connection for so many seconds at most."""

    def __init__(self, unlimited: RawIOBase, connected: socket, seconds: float) -> None:
        super().__init__()
        self._unlimited, self._connected = unlimited, connected
        self._ends = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        pause = self._connected.gettimeout()
        if pause is None or left < pause:
            self._connected.settimeout(left)
        return self._unlimited.readinto(buffer)

    def close(self) -> None:
        self._unlimited.close()
        super().close()
