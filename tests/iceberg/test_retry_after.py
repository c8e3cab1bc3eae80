"""A catalog that gets too many requests at once, or that restarts, is asked again later."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError, TooManyRequestsError
from requests import ConnectionError

from connector.config.catalog import RestCatalog
from connector.iceberg.catalogs import retry_after
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.catalogs.retry_after import LONGEST_PAUSE, PAUSES, read_retry_after
from support.plans import meeting
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, always
from support.servers.odd_servers import answering

BUSY = Fault(0, HTTPStatus.TOO_MANY_REQUESTS)
RESTARTING = Fault(0, HTTPStatus.SERVICE_UNAVAILABLE)


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause, which is left out."""
    seconds: list[float] = []
    monkeypatch.setattr(retry_after, "sleep", seconds.append)
    return seconds


@pytest.fixture
def catalog(proxy: FaultProxy) -> Iterator[Catalog]:
    with open_rest(RestCatalog(proxy.uri, "warehouse"), {}) as opened:
        proxy.seen.clear()
        yield opened


@pytest.mark.catalog
@pytest.mark.parametrize("fault", [BUSY, RESTARTING])
def test_a_read_is_repeated_until_the_catalog_has_time(
    catalog: Catalog, proxy: FaultProxy, slept: list[float], fault: Fault
) -> None:
    for _ in range(2):
        proxy.inject(lambda request: request.method == "HEAD", fault)
    assert not catalog.namespace_exists("nothing")
    assert slept == [*PAUSES[:2]]
    assert len(proxy.seen) == 3


@pytest.mark.catalog
def test_a_read_is_not_repeated_without_limit(catalog: Catalog, proxy: FaultProxy) -> None:
    proxy.choose = always(BUSY)
    with pytest.raises(TooManyRequestsError):
        catalog.list_tables("nothing")
    assert len(proxy.seen) == 1 + len(PAUSES)


@pytest.mark.catalog
def test_reads_of_a_catalog_that_is_down_for_long_wait_once(catalog: Catalog, proxy: FaultProxy) -> None:
    proxy.choose = always(RESTARTING)
    for sent in (1 + len(PAUSES), 1):
        proxy.seen.clear()
        with pytest.raises(ServiceUnavailableError):
            catalog.list_namespaces()
        assert len(proxy.seen) == sent
    proxy.choose = lambda _: GENUINE
    catalog.list_namespaces()
    proxy.inject(lambda _: True, RESTARTING)
    catalog.list_namespaces()  # is repeated again


@pytest.mark.catalog
def test_a_change_is_left_to_its_own_attempts(catalog: Catalog, proxy: FaultProxy, slept: list[float]) -> None:
    proxy.choose = always(BUSY)
    with pytest.raises(TooManyRequestsError):
        catalog.create_namespace("something")
    assert slept == []
    assert len(proxy.seen) == 1


@pytest.mark.catalog
def test_a_read_whose_connection_has_ended_meanwhile_is_sent_again_on_a_new_one(
    catalog: Catalog, proxy: FaultProxy
) -> None:
    """Others that were left open have probably ended, too."""
    both = meeting(2)
    proxy.inject(lambda _: True, GENUINE, both.wait)
    proxy.inject(lambda _: True, GENUINE, both.wait)
    with ThreadPoolExecutor(2) as threads:
        assert not any(threads.map(catalog.namespace_exists, ["nothing", "nothing"]))
    proxy.inject(lambda _: True, Fault(0, Answer.NONE))
    before = len(proxy.clients)
    assert not catalog.namespace_exists("nothing")
    assert len(proxy.clients) == before + 1


@pytest.mark.catalog
def test_a_read_whose_connections_end_each_time_is_not_repeated_without_limit(
    catalog: Catalog, proxy: FaultProxy
) -> None:
    proxy.choose = always(Fault(0, Answer.NONE))
    with pytest.raises(ConnectionError):
        catalog.list_namespaces()
    assert len(proxy.seen) == 2


@pytest.mark.catalog
def test_a_change_whose_connection_has_ended_is_not_sent_again(catalog: Catalog, proxy: FaultProxy) -> None:
    """It may have been done."""
    proxy.choose = always(Fault(0, Answer.NONE))
    with pytest.raises(ConnectionError):
        catalog.create_namespace("something")
    assert len(proxy.seen) == 1


@pytest.mark.parametrize(("asked", "waited"), [("3", 3.0), ("86400", LONGEST_PAUSE), ("0", PAUSES[0])])
def test_the_catalog_says_how_long_to_wait(asked: str, waited: float, slept: list[float]) -> None:
    with answering(429, "", {"Retry-After": asked}) as server, pytest.raises(TooManyRequestsError):
        open_rest(RestCatalog(server.uri, ""), {})
    assert slept[0] == waited


def test_the_time_to_wait_may_be_a_date_and_is_limited() -> None:
    now = datetime.now(UTC)
    assert 55 < read_retry_after(format_datetime(now + timedelta(minutes=1), usegmt=True), 100) <= 60
    assert read_retry_after(format_datetime(now + timedelta(days=1), usegmt=True), 100) == 100
    for past_or_none in (format_datetime(now - timedelta(days=1), usegmt=True), "", "soon", "-1"):
        assert read_retry_after(past_or_none, 100) == 0
