"""The whole connector behind a REST catalog's proxy that does something wrong to every second request."""

import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import GENUINE, STATUSES, Answer, Fault, Request, fault_proxy, is_commit, is_load
from support.servers.rest_catalog import RestCatalogOnS3
from support.sessions.runtime import LEDGER, Runtime
from support.tables.local_tables import ids_of, list_changes

pytestmark = [pytest.mark.spark, pytest.mark.catalog]

SEED: Final = 4
TRANSACTIONS: Final = 5  # in each of two sessions
ANSWERS: Final = (Answer.NONE, Answer.TRUNCATED, Answer.SHORTENED, *STATUSES)
# Silence is left out: the shipped time limit is a minute.
FAULTS: Final = [Fault(forwarded, answer) for forwarded in (0, 1, 2) for answer in ANSWERS] + [Fault(2, Answer.GENUINE)]


class Chance:
    """Draws what becomes of a request."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of_commits(self, request: Request) -> Fault:
        return self._draw() if is_commit(request) else GENUINE

    def of_commits_and_loads(self, request: Request) -> Fault:
        return self._draw() if is_commit(request) or is_load(request) else GENUINE

    def _draw(self) -> Fault:
        return self._random.choice([GENUINE] * len(FAULTS) + FAULTS)


def test_every_row_lands_once_behind_a_proxy_that_fails_every_second_request(
    rest_on_s3: RestCatalogOnS3, tmp_path: Path
) -> None:
    ledger = replace(LEDGER, table=f"ledger_{uuid.uuid4().hex}")
    chance = Chance(SEED)
    with fault_proxy(rest_on_s3.uri) as proxy:
        config = on_s3(rest_on_s3.s3, rest_on_s3.bucket, "shop", rest(proxy.uri))
        runtime = Runtime(tmp_path, [ledger], config)
        with runtime.open(publish=True) as session:
            proxy.choose = chance.of_commits_and_loads
            for number in range(TRANSACTIONS):
                session.transaction({"id": 2 * number}, {"id": 2 * number + 1})
            session.stage_and_die({"id": 2 * TRANSACTIONS})
        proxy.choose = chance.of_commits  # a look that fails at open ends the process, and the runtime starts another
        with runtime.open() as session:
            proxy.choose = chance.of_commits_and_loads
            for number in range(TRANSACTIONS, 2 * TRANSACTIONS):
                session.transaction({"id": 2 * number + 1}, {"id": 2 * number + 2})
            assert session.finish().status == 0
    with open_catalog(parse(on_s3(rest_on_s3.s3, rest_on_s3.bucket, "shop", rest(rest_on_s3.uri)), [])[0]) as catalog:
        path = ("shop", ledger.table)
        assert ids_of(catalog, path) == list(range(4 * TRANSACTIONS + 1))
        assert len(list_changes(catalog.load_table(path))) == 2 * TRANSACTIONS + 1
    assert len(proxy.fired) > TRANSACTIONS
    assert any(fault.forwarded for fault in proxy.fired)
