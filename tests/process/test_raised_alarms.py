"""A real session that is in trouble raises the right alarm, and no other: its metrics, as they were scraped, are given
to the rules of deploy/prometheus."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from pyiceberg.catalog.rest import RestCatalog

from fixtures.collection import NAMESPACE
from support.repository import REPOSITORY
from support.servers.catalog_gateway import SCOPE, CatalogGateway, catalog_gateway
from support.servers.endpoint_configs import rest
from support.servers.promtool import find_alarms, prometheus_server, promtool
from support.servers.rest_catalog import RestCatalogServer
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.sessions.runtime import LEDGER, Runtime, Session
from support.sessions.scraping import Scraped, scrape
from support.tables.local_tables import refusing_commits

pytestmark = [pytest.mark.spark, pytest.mark.catalog, pytest.mark.slow]

ORDERS: Final = replace(LEDGER, name="acmeCo/alarms", table="alarms")
TABLE: Final = f"{NAMESPACE}.alarms"
BEFORE: Final = 40  # minutes for which the task was well


@dataclass
class Watched:
    """A session whose metrics are scraped."""

    session: Session
    address: str
    gateway: CatalogGateway
    upstream: RestCatalog
    directory: Path

    def scrape(self, minutes: int) -> tuple[Scraped, float, int]:
        return scrape(self.address), time.time(), minutes

    def alarms(self, *scrapes: tuple[Scraped, float, int]) -> set[tuple[str, str]]:
        return find_alarms(scrapes, self.directory)


@pytest.fixture(scope="module")
def watched(rest_catalog: RestCatalogServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    promtool()
    directory, address = tmp_path_factory.mktemp("alarms"), free_address()
    with catalog_gateway(rest_catalog.uri, lifetime=3600) as gateway:
        signing_in = {"credential": gateway.credential, "scope": SCOPE, "oauth2_server_uri": gateway.token_uri}
        config = {
            "namespace": NAMESPACE,
            "upload_interval": "PT0S",
            "catalog": {**rest(gateway.uri), **signing_in},
            "advanced": {"metrics": {"listen": address}},
        }
        runtime = Runtime(directory, [ORDERS], config)
        with runtime.open(publish=True) as session:
            session.transaction({"id": 1})
            yield Watched(session, address, gateway, RestCatalog("rest", uri=rest_catalog.uri), directory)


def test_a_task_that_is_well_raises_no_alarm(watched: Watched) -> None:
    well = watched.scrape(BEFORE)
    watched.session.transaction({"id": 2})
    assert watched.alarms(well, watched.scrape(50)) == set()


def test_a_source_that_stops_raises_one_alarm(watched: Watched) -> None:
    well = watched.scrape(BEFORE)
    watched.session.transaction({"id": 3})
    assert watched.alarms(well, watched.scrape(70)) == {("IcebergSourceSilent", "")}


def test_a_table_that_refuses_commits_raises_one_alarm(watched: Watched) -> None:
    well = watched.scrape(BEFORE)
    with refusing_commits(watched.upstream, TABLE):
        watched.session.transaction({"id": 4})
        refused = watched.scrape(45)
        assert watched.alarms(well, refused) == {("IcebergTableRefusesCommits", TABLE)}
    assert wait_until(lambda: scrape(watched.address).value("waiting_transactions") == 0)
    assert watched.alarms(well, refused, watched.scrape(5)) == set()


def test_prometheus_scrapes_the_session_and_every_panel_of_the_dashboard_can_be_drawn(watched: Watched) -> None:
    dashboard: Any = json.loads((REPOSITORY / "deploy" / "grafana" / "materialize-iceberg.json").read_text())
    with prometheus_server(watched.address, watched.directory) as server:
        assert wait_until(lambda: bool(query(server, 'up{job="materialize-iceberg"} == 1')))
        watched.session.transaction({"id": 5})
        assert wait_until(lambda: bool(query(server, "changes(materialize_iceberg_rows_committed_total[1m]) > 0")))
        drawn = {
            panel["title"]: [query(server, draw(target["expr"])) for target in panel["targets"]]
            for panel in dashboard["panels"]
            if "targets" in panel
        }
        rules = ask(server, "rules", {})["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}
        assert not query(server, 'ALERTS{alertstate="firing"}')
    assert len(drawn) > 20
    # No alarm fires, and no file was deleted or rewritten.
    empty = {title for title, results in drawn.items() if not any(results)}
    assert empty <= {"Alarms that fire", "Files deleted or rewritten", "Bytes rewritten"}


# The last one: the catalog accepts the session no more.
def test_a_token_that_is_revoked_raises_one_alarm(watched: Watched) -> None:
    well = watched.scrape(BEFORE)
    watched.gateway.secret = "another-secret-of-the-catalog"
    watched.gateway.revoke_tokens()
    watched.session.transaction({"id": 6})
    assert watched.alarms(well, watched.scrape(45)) == {("IcebergSignInRefused", "")}


def draw(expression: str) -> str:
    """The expression with the values that Grafana sets, and with the series that are not above 0."""
    expression = expression.removesuffix(" > 0")
    for variable, value in {"$task": ".*", "$table": ".*", "$__rate_interval": "1m", "$__range": "5m"}.items():
        expression = expression.replace(variable, value)
    return expression


def query(server: str, expression: str) -> list[Any]:
    return list(ask(server, "query", {"query": expression})["result"])


def ask(server: str, path: str, parameters: Mapping[str, str]) -> Any:
    with urlopen(f"http://{server}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]
