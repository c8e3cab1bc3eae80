"""Snapshots of tables in a REST catalog expire: the server applies the removal to what it has by then."""

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from connector.config.catalog import RestCatalog
from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.catalogs.rest import open_rest
from connector.iceberg.commits import commit
from connector.iceberg.maintenance.expire_snapshots import expire_snapshots
from connector.iceberg.metadata.retention import MAX_AGE
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.stored_files import files_under
from protocol.flow import WHOLE_RANGE
from support.engines.snapshot_refs import point, tag
from support.rows.staged_files import stage
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import GENUINE, fault_proxy, is_commit
from support.servers.rest_catalog import RestCatalogOnS3, RestCatalogServer
from support.tables.local_tables import foreign_table, ids_of

pytestmark = pytest.mark.catalog

WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)
NOTHING_OLD: Final = {MAX_AGE: "0", "commit.manifest.min-count-to-merge": "3"}


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


def commit_ids(catalog: Catalog, path: TableIdentifier, *ids: int) -> int:
    """A transaction; its snapshot's id."""
    commit.commit_all_or_raise(catalog, [stage(catalog, path, WRITER, *ids)])
    snapshot = catalog.load_table(path).current_snapshot()
    assert snapshot
    return snapshot.snapshot_id


def referred_to(table: Table) -> set[str]:
    """The current snapshot's files."""
    snapshot = table.current_snapshot()
    assert snapshot
    manifests = snapshot.manifests(table.io)
    data = [entry.data_file.file_path for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    return {snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests), *data}


def test_a_bucket_has_only_what_is_referred_to(rest_on_s3: RestCatalogOnS3, path: TableIdentifier) -> None:
    endpoint, _ = parse(on_s3(rest_on_s3.s3, rest_on_s3.bucket, path[0], rest(rest_on_s3.uri)), [])
    with open_catalog(endpoint) as catalog:
        foreign_table(catalog, path, properties=NOTHING_OLD)
        for number in range(5):
            commit_ids(catalog, path, number)
        catalog.load_table(path).delete("id = 1")
        assert expire_snapshots(catalog, path) > 0
        table = catalog.load_table(path)
        assert len(table.snapshots()) == 1
        found = {location for location in files_under(table.io, table.location()) if not location.endswith(".json")}
        assert found == referred_to(table)
        assert ids_of(catalog, path) == [0, 2, 3, 4]


@pytest.fixture
def catalog(rest_catalog: RestCatalogServer) -> Iterator[Catalog]:
    with open_rest(RestCatalog(rest_catalog.uri, str(rest_catalog.warehouse)), {}) as opened:
        yield opened


def test_a_server_removes_an_old_tag_with_its_snapshot(catalog: Catalog, path: TableIdentifier) -> None:
    foreign_table(catalog, path, properties=NOTHING_OLD)
    first, newest = (commit_ids(catalog, path, number) for number in range(2))
    tag(catalog, path, "release", first, max_ref_age_ms=1)
    assert expire_snapshots(catalog, path) > 0
    table = catalog.load_table(path)
    assert (list(table.refs()), [each.snapshot_id for each in table.snapshots()]) == ([MAIN_BRANCH], [newest])

    tag(catalog, path, "release", newest, max_ref_age_ms=1)
    assert expire_snapshots(catalog, path) == 0
    assert list(catalog.load_table(path).refs()) == [MAIN_BRANCH]


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "audit"])
def test_a_branch_that_is_set_back_in_that_moment_is_not_lost(
    catalog: Catalog, rest_catalog: RestCatalogServer, path: TableIdentifier, branch: str
) -> None:
    foreign_table(catalog, path, properties=NOTHING_OLD)
    first, _, newest = (commit_ids(catalog, path, number) for number in range(3))
    point(catalog, path, branch, newest)
    with fault_proxy(rest_catalog.uri) as proxy, open_rest(RestCatalog(proxy.uri, "warehouse"), {}) as slow:
        proxy.inject(is_commit, GENUINE, before=partial(point, catalog, path, branch, first))
        assert expire_snapshots(slow, path) == 0
    assert catalog.load_table(path).refs()[branch].snapshot_id == first
    assert sorted(catalog.load_table(path).scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == [0]
