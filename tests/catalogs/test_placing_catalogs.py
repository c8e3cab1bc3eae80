"""A REST catalog that places tables itself, whatever location it is asked for: all goes by where a table is."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

import duckdb
import pytest

from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import files_under
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE, Json
from support.engines.readers import duckdb_rows
from support.rows.staged_files import leave_behind
from support.servers.catalog_gateway import Sent, serving
from support.servers.endpoint_configs import on_s3, rest
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.server_process import free_address
from support.sessions.runtime import LEDGER, Runtime

pytestmark = [pytest.mark.catalog, pytest.mark.spark]


COLLECTION: Final = replace(LEDGER, table="placed_by_its_catalog")


class Headstrong:
    """Passes everything on but where tables are to be."""

    def __init__(self) -> None:
        self.ignored: list[str] = []

    def answer(self, sent: Sent) -> tuple[HTTPStatus, Json] | Sent:
        if sent.method != "POST" or not sent.path.endswith("/tables"):
            return sent
        asked = json.loads(sent.body)
        self.ignored.append(asked.pop("location"))
        return replace(sent, body=json.dumps(asked).encode())

    def amended(self, _: Sent, answer: Json) -> Json:
        return answer


@pytest.fixture
def catalog(rest_on_s3: RestCatalogOnS3) -> Iterator[tuple[str, Headstrong]]:
    address, gateway = free_address(), Headstrong()
    with serving(gateway, address, rest_on_s3.uri):
        yield f"http://{address}", gateway


def test_a_session_goes_by_where_its_table_is_and_cleans_up_there(
    catalog: tuple[str, Headstrong],
    rest_on_s3: RestCatalogOnS3,
    tmp_path: Path,
    duckdb_on_s3: duckdb.DuckDBPyConnection,
) -> None:
    uri, gateway = catalog
    asked_for = rest_on_s3.s3.new_bucket()
    config: Mapping[str, Json] = on_s3(rest_on_s3.s3, asked_for, NAMESPACE, rest(uri))
    with Runtime(tmp_path, [COLLECTION], config).start(publish=True) as session:
        session.opened()
        session.acknowledge()
        session.transaction({"id": 1, "note": "placed"})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    assert {location.startswith(f"s3://{asked_for}/") for location in gateway.ignored} == {True}
    path = TableIdentifier(NAMESPACE, COLLECTION.table)
    with rest_on_s3.client() as reader:
        table = reader.load_table(path)
        assert table.location().startswith(f"s3://{rest_on_s3.bucket}/")
        assert [row["id"] for row in duckdb_rows(duckdb_on_s3, table.metadata_location, "id")] == [1]
        assert list(files_under(table.io, f"s3://{asked_for}/")) == []
        orphan = leave_behind(table, writer())
        assert remove_task_orphans(reader, path, writer(), []) == 1
        assert orphan not in files_under(table.io, table.location())


def writer() -> WriterId:
    state_key = COLLECTION.open_binding()["stateKey"]
    return WriterId("acmeCo/task", state_key, WHOLE_RANGE.key_range)
