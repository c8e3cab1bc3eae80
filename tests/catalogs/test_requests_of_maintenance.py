"""`maintain` asks a catalog no more than it needs to know, and does not wait for one table before the next."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from connector.cli.arguments import parse_arguments
from connector.cli.commands.maintain_command import maintain_tables, read_arguments
from connector.cli.flow.flow_files import ConfigFile
from connector.cli.waiting import WaitingLine
from connector.iceberg.commits import commit
from connector.iceberg.maintenance.action_outcomes import MaintainedTables, is_finished
from connector.model.state import WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Owner, TableIdentifier
from support.plans import meeting
from support.rows.staged_files import stage
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import GENUINE, Fault, FaultProxy, Request
from support.servers.rest_catalog import RestCatalogOnS3
from support.tables.local_tables import foreign_table

pytestmark = pytest.mark.catalog

NAMESPACE: Final = "requests_of_maintenance"
TABLES: Final = ("customers", "orders")
WRITER: Final = WriterId("acme/lake", "orders.v0", "00000000-ffffffff")
OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)
LOOKS: Final = 3  # at a table that needs nothing: to find it, at its turn, and after its files were listed


@pytest.fixture
def config(tmp_path: Path, rest_on_s3: RestCatalogOnS3, rest_proxy: FaultProxy) -> Iterator[Path]:
    """The config of a task whose tables have one commit each."""
    catalog = rest_on_s3.client()
    for name in TABLES:
        path = TableIdentifier(NAMESPACE, name)
        foreign_table(catalog, path, properties={OWNER_PROPERTY: OWNER.encode()})
        commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, 1)])
    file = tmp_path / "config.json"
    file.write_text(json.dumps(on_s3(rest_on_s3.s3, rest_on_s3.bucket, NAMESPACE, rest(rest_proxy.uri))))
    yield file
    for name in TABLES:
        catalog.drop_table((NAMESPACE, name))


def maintain(config: Path) -> MaintainedTables:
    source = ConfigFile(str(config))
    options = parse_arguments(["maintain", "all", "--config", source.file])
    return maintain_tables(read_arguments(options, source), WaitingLine(None))


def test_a_table_that_needs_nothing_is_loaded_three_times(config: Path, rest_proxy: FaultProxy) -> None:
    done = maintain(config)
    assert [each.path.name for each in done.tables] == [*TABLES]
    assert all(each.outcomes for each in done.tables)
    assert all(is_finished(outcome) for each in done.tables for _, outcome in each.outcomes)
    asked = Counter((each.method, each.path.rpartition("/")[2]) for each in rest_proxy.seen if "/tables/" in each.path)
    assert asked == {("GET", name): LOOKS for name in TABLES}


def test_tables_are_maintained_at_the_same_time(config: Path, rest_proxy: FaultProxy) -> None:
    together, looks = meeting(len(TABLES)), Counter[str]()

    def wait_for_the_others(request: Request) -> Fault:
        if found := re.search(r"/tables/(\w+)", request.path):
            looks[found[1]] += 1
            if looks[found[1]] == LOOKS:
                together.wait()
        return GENUINE

    rest_proxy.choose = wait_for_the_others
    assert maintain(config).errors == []
    assert not together.broken
