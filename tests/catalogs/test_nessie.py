"""On Nessie, a table shows only its newest snapshot. Other branches, tags and earlier commits need more files."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.commits.reset import Decision, plan_reset
from connector.iceberg.maintenance.files_of_dropped_tables import DroppedTables
from connector.iceberg.maintenance.find_orphan_files import OrphanOptions, find_orphan_files
from connector.iceberg.maintenance.remove_staged_files import remove_staged_files_after
from connector.iceberg.maintenance.remove_task_orphans import remove_task_orphans
from connector.iceberg.metadata.retention import GC_ENABLED
from connector.iceberg.perform_changes import add_first_snapshot
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import files_under
from fixtures.collection import NAMESPACE
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import land, leave_behind, stage
from support.servers.endpoint_configs import on_s3, rest
from support.servers.nessie import create_tag, nessie_server
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server
from support.snapshots import check_text
from support.tables.local_tables import ids_of, rewrite_by_another_engine

# 245 MB to install Nessie.
pytestmark = [pytest.mark.catalog, pytest.mark.slow, pytest.mark.xdist_group("nessie")]

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
LATER: Final = datetime.now(UTC) + timedelta(days=1)  # than any file of a test


@pytest.fixture(scope="module")
def server(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogOnS3]:
    with nessie_server(tmp_path_factory.mktemp("nessie"), s3_server) as running:
        yield running


def open_at(server: RestCatalogOnS3, reference: str = "main") -> Catalog:
    """The catalog at a branch or tag."""
    endpoint, _ = parse(on_s3(server.s3, server.bucket, NAMESPACE, rest(f"{server.uri}/{reference}")), [])
    return open_catalog(endpoint)


@pytest.fixture
def catalog(server: RestCatalogOnS3) -> Iterator[Catalog]:
    with open_at(server) as opened:
        yield opened


@pytest.fixture(params=["false", "true"], ids=["Nessie's own property", "a property that allows it"])
def path(request: pytest.FixtureRequest, catalog: Catalog, path: TableIdentifier) -> TableIdentifier:
    """A new table without rows, as apply makes it."""
    add_first_snapshot(catalog.load_table(path))
    assert catalog.load_table(path).properties[GC_ENABLED] == "false"
    if request.param == "true":
        with catalog.load_table(path).transaction() as transaction:
            transaction.set_properties({GC_ENABLED: "true"})
    return path


@pytest.fixture
def tag(server: RestCatalogOnS3, catalog: Catalog, path: TableIdentifier) -> str:
    """A tag at two rows, whose files the branch main has replaced since, and the file of a killed process."""
    leave_behind(catalog.load_table(path), WRITER)
    for number in 1, 2:
        land(catalog, number, path=path, writer=WRITER)
    tag = f"tag_{uuid.uuid4().hex}"
    create_tag(server, tag)
    rewrite_by_another_engine(catalog, path)
    land(catalog, 3, path=path, writer=WRITER)
    return tag


def ids_at(server: RestCatalogOnS3, tag: str, path: TableIdentifier) -> list[int]:
    with open_at(server, tag) as catalog:
        return ids_of(catalog, path)


def list_files(catalog: Catalog, path: TableIdentifier) -> set[str]:
    table = catalog.load_table(path)
    return set(files_under(table.io, table.location()))


def test_a_session_deletes_no_file_of_a_tag(
    server: RestCatalogOnS3, catalog: Catalog, path: TableIdentifier, tag: str
) -> None:
    before = list_files(catalog, path)
    assert remove_task_orphans(catalog, path, WRITER, ()) == 0
    assert list_files(catalog, path) == before
    assert ids_at(server, tag, path) == [1, 2]
    assert ids_of(catalog, path) == [1, 2, 3]


@pytest.mark.usefixtures("tag")
def test_maintain_deletes_no_file_of_a_tag(catalog: Catalog, path: TableIdentifier) -> None:
    found = find_orphan_files(catalog, catalog.load_table(path), OrphanOptions(LATER))
    assert not found.deletable
    assert found.must_stay
    for options in (OrphanOptions(LATER, has_unknown=True), OrphanOptions(LATER, DroppedTables(catalog))):
        with pytest.raises(UserError) as error:
            find_orphan_files(catalog, catalog.load_table(path), options)
        check_text("maintenance_errors", "orphans: a table of Nessie", str(error.value).replace(path.namespace, "shop"))


def test_a_backfill_deletes_no_file_of_a_tag(server: RestCatalogOnS3, catalog: Catalog, path: TableIdentifier) -> None:
    """The answer to the commit is lost with the process, so the state still names it."""
    landed = land(catalog, 1, path=path, writer=WRITER)
    tag = f"tag_{uuid.uuid4().hex}"
    create_tag(server, tag)
    rewrite_by_another_engine(catalog, path)
    with remove_staged_files_after(catalog, path, [landed]):
        pass
    assert ids_at(server, tag, path) == [1]


def test_rows_that_may_be_in_the_table_are_not_added_again(catalog: Catalog, path: TableIdentifier) -> None:
    """Their files were replaced, and only an earlier commit of Nessie knows them."""
    landed = stage(catalog, path, WRITER, 1)
    commit_all_or_raise(catalog, [landed])
    rewrite_by_another_engine(catalog, path)
    land(catalog, 2, path=path, writer=WRITER)
    with pytest.raises(UserError) as error:
        plan_reset(catalog.load_table(path), [replace(landed, is_recovered=True)], Decision.ADD)
    check_text("commit_errors", "fence reset: rows that may be in a table of Nessie", str(error.value))
    [said, _] = plan_reset(catalog.load_table(path), [landed], Decision.SKIP).consequences
    assert said.startswith("1 row(s) of 1 staged transaction(s) may be in the table or not")
