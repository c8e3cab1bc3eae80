"""Connections that are idle between two commits can still be used."""

from http import HTTPStatus
from typing import Any

import pytest
from requests import Session

from connector.host.http_time_limits import TimeLimits, limit_time
from support.servers.odd_servers import answering
from support.servers.pooled_connections import is_probed


@pytest.mark.parametrize("has_proxy", [False, True])
def test_an_idle_connection_is_probed(has_proxy: bool) -> None:
    with answering(HTTPStatus.OK, "abc", {"Connection": "keep-alive", "Content-Length": "3"}) as server:
        session = limit_time(Session(), TimeLimits(5.0, 5.0))
        proxies = {"http": server.uri} if has_proxy else {}
        assert session.get("http://shop.example/" if has_proxy else server.uri, proxies=proxies).text == "abc"
        adapter: Any = session.get_adapter(server.uri)
        assert is_probed(adapter.proxy_manager[server.uri] if has_proxy else adapter.poolmanager)
