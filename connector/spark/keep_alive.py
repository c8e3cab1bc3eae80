"""Notices when the machine at the other end of a connection vanishes without a word."""

import os
import socket
from multiprocessing.connection import Connection
from typing import Any, Final

# Three probes after half a minute of silence; Spark itself gives a lost executor two minutes.
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # milliseconds that sent data may be unacknowledged
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


def keep_alive(connection: "Connection[Any, Any]") -> None:
    """Make reading from the connection end within about a minute when the other machine is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        if same.family != socket.AF_UNIX:
            for option in _OPTIONS:
                same.setsockopt(*option)
