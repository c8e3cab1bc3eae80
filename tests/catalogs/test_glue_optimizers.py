"""A table that AWS Glue maintains by itself is left to Glue, and files that Glue would delete too early are told."""

import logging
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog

from connector.cli.texts.health_texts import describe_health, encode_health
from connector.cli.texts.maintain_texts import describe_maintenance, encode_maintenance
from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.commits import commit
from connector.iceberg.maintenance.action_outcomes import MaintainedTable, MaintainedTables, Managed
from connector.iceberg.maintenance.actions import Action
from connector.iceberg.maintenance.compact_table import TableCompactor
from connector.iceberg.maintenance.perform_actions import Budget, Maintainer, OrphanChoice, TableInTurn
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.maintenance.table_health import TableHealth, read_health
from connector.iceberg.table_status import list_files
from connector.model.state import WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import stage
from support.servers.endpoint_configs import glue, on_s3
from support.servers.fault_proxy import Fault, FaultProxy, Request, always
from support.servers.s3_server import S3Server
from support.tables.compacting import EAGER, compact_here
from support.tables.local_tables import ID_ONLY, ids_of

pytestmark = [pytest.mark.catalog, pytest.mark.usefixtures("no_pauses")]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
ROLE: Final = "arn:aws:iam::123456789012:role/optimizer"


def asks_for_optimizer(request: Request) -> bool:
    return request.target == "AWSGlue.GetTableOptimizer"


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


@pytest.fixture
def endpoint(s3_server: S3Server, bucket: str, path: TableIdentifier) -> EndpointConfig:
    return parse(on_s3(s3_server, bucket, path[0], glue()), [])[0]


@pytest.fixture
def catalog(
    glue_proxy: FaultProxy, endpoint: EndpointConfig, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """With a table of three small files."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_proxy.uri)
    with open_catalog(endpoint) as opened:
        opened.create_namespace(path[0])
        opened.create_table(path, ID_ONLY, location=table_location(endpoint, path), properties=EAGER)
        staged = [stage(opened, path, WRITER, 1)]
        for number in (2, 3):
            staged.append(stage(opened, path, WRITER, number, prev=staged[-1].next))
        commit.commit_all_or_raise(opened, staged)
        yield opened


def optimize(glue_client: Any, path: TableIdentifier, kind: str, *, enabled: bool = True, **settings: Any) -> None:
    account = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]["CatalogId"]
    configuration = {"roleArn": ROLE, "enabled": enabled, **settings}
    place = {"CatalogId": account, "DatabaseName": path[0], "TableName": path[1]}
    glue_client.create_table_optimizer(**place, Type=kind, TableOptimizerConfiguration=configuration)


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def health_of(catalog: Catalog, path: TableIdentifier) -> TableHealth:
    table = catalog.load_table(path)
    return read_health(table, list_files(table))


def test_a_table_that_glue_compacts_is_left_to_it(
    catalog: Catalog, glue_client: Any, path: TableIdentifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    optimize(glue_client, path, "compaction")
    compactor = TableCompactor(catalog, compact_here, catalog.load_table)
    for _ in range(2):
        assert compactor.compact(path).commits == 0
    told = [message for message in messages(caplog, logging.INFO) if "compacts" in message]
    assert told == [f"table {path}: AWS Glue compacts it, so the connector does not"]
    health = health_of(catalog, path)
    assert "  debt         none: AWS Glue compacts this table, so the connector does not" in describe_health(health)
    assert encode_health(health)["debt"] == {"files": 0, "rows": 0, "bytes": 0, "isManaged": True}


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_maintain_says_that_glue_compacts_a_table(
    catalog: Catalog, glue_client: Any, path: TableIdentifier, *, is_dry_run: bool
) -> None:
    optimize(glue_client, path, "compaction")
    maintainer = Maintainer(
        catalog,
        lambda: TableCompactor(catalog, compact_here, catalog.load_table),
        Budget(None, None),
        OrphanChoice(),
        is_dry_run=is_dry_run,
    )
    owner = Owner(WRITER.materialization, WRITER.state_key)
    outcome = maintainer.perform(Action.COMPACT, TableInTurn(catalog, path, owner, None))
    assert outcome == Managed()
    maintained = MaintainedTables(False, [MaintainedTable(path, [(Action.COMPACT, outcome)])], [])
    assert describe_maintenance(maintained).splitlines()[1] == "  compact    nothing: AWS Glue does it for this table"
    assert '"isManaged": true' in encode_maintenance(maintained)


@pytest.mark.parametrize("kind", [None, "compaction", "retention"])
def test_a_table_that_glue_does_not_compact_is_compacted(
    catalog: Catalog, glue_client: Any, path: TableIdentifier, kind: str | None
) -> None:
    if kind:
        optimize(glue_client, path, kind, enabled=kind != "compaction")
    assert health_of(catalog, path).debt.files == 3
    assert TableCompactor(catalog, compact_here, catalog.load_table).compact(path).files_before == 3
    assert ids_of(catalog, path) == [1, 2, 3]


@pytest.mark.parametrize(("status", "times"), [(HTTPStatus.FORBIDDEN, 1), (HTTPStatus.SERVICE_UNAVAILABLE, 0)])
def test_a_table_is_compacted_if_glue_does_not_say_whether_it_does(
    catalog: Catalog,
    glue_client: Any,
    glue_proxy: FaultProxy,
    path: TableIdentifier,
    caplog: pytest.LogCaptureFixture,
    *,
    status: HTTPStatus,
    times: int,
) -> None:
    """The permission to ask is optional. Without it this is told once, although it is asked twice."""
    caplog.set_level(logging.INFO)
    optimize(glue_client, path, "compaction")
    glue_proxy.choose = always(Fault(0, status), asks_for_optimizer)
    assert TableCompactor(catalog, compact_here, catalog.load_table).compact(path).commits == 1
    told = [message for message in messages(caplog, logging.INFO) if "glue:GetTableOptimizer" in message]
    assert len(told) == times
    assert messages(caplog, logging.WARNING) == []


@pytest.mark.parametrize(("days", "warns"), [(None, True), (29, True), (30, False)])
def test_a_session_warns_if_glue_deletes_files_early(
    catalog: Catalog,
    glue_client: Any,
    path: TableIdentifier,
    caplog: pytest.LogCaptureFixture,
    *,
    days: int,
    warns: bool,
) -> None:
    settings = {} if days is None else {"orphanFileRetentionPeriodInDays": days}
    configuration = {"icebergConfiguration": settings}
    optimize(glue_client, path, "orphan_file_deletion", orphanFileDeletionConfiguration=configuration)
    remove_task_orphans(catalog, path, WRITER, [])
    warned = messages(caplog, logging.WARNING)
    assert [f"older than {days or 3} days" in message for message in warned] == [True] * warns
    line = f"  orphans      AWS Glue deletes orphan files that are older than {days or 3} days"
    assert line in describe_health(health_of(catalog, path))


@pytest.mark.usefixtures("catalog")
def test_the_stand_in_is_as_strict_as_glue(glue_client: Any, path: TableIdentifier) -> None:
    found = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    place = {"CatalogId": found["CatalogId"], "DatabaseName": path[0], "TableName": path[1], "Type": "compaction"}
    for wrong, answer in (
        ({}, "EntityNotFoundException"),
        ({"TableName": "missing"}, "EntityNotFoundException"),
        ({"CatalogId": "210987654321"}, "EntityNotFoundException"),
        ({"Type": "vacuum"}, "InvalidInputException"),
    ):
        with pytest.raises(ClientError, match=answer):
            glue_client.get_table_optimizer(**{**place, **wrong})
