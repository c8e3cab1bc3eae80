"""The connections that an HTTP client keeps open."""

import socket
from typing import Any

from urllib3 import PoolManager


def is_probed(manager: PoolManager) -> bool:
    """Whether the system looks at the client's only idle connection each half minute. So a gateway does not forget it,
    and a server that is gone is noticed."""
    pools: Any = manager.pools
    [connection] = [each for key in pools.keys() for each in pools[key].pool.queue if each]  # noqa: SIM118 - no iterator
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)]
    return [connection.sock.getsockopt(*each) for each in options] == [1, 30]
