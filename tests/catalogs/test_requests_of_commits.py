"""A commit asks a catalog and an object store no more than it needs to know."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.iceberg.catalogs.opening import open_catalog
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Committed
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.bindings import PATH as UPDATED
from support.plans import meeting
from support.rows.staged_files import stage
from support.rows.updated_rows import make_table, stage_updates, values_of
from support.servers.endpoint_configs import on_s3, rest
from support.servers.fault_proxy import GENUINE, Fault, FaultProxy, Request, fault_proxy
from support.servers.rest_catalog import RestCatalogOnS3
from support.tables.local_tables import foreign_table
from support.tables.outcomes import try_commits

pytestmark = pytest.mark.catalog

PATH: Final = TableIdentifier("requests_of_commits", "orders")
WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)


@pytest.fixture
def store(rest_on_s3: RestCatalogOnS3) -> Iterator[FaultProxy]:
    with fault_proxy(rest_on_s3.s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def catalog(rest_on_s3: RestCatalogOnS3, store: FaultProxy, rest_proxy: FaultProxy) -> Iterator[Catalog]:
    s3 = replace(rest_on_s3.s3, endpoint=store.uri)
    endpoint, _ = parse(on_s3(s3, rest_on_s3.bucket, PATH[0], rest(rest_proxy.uri)), [])
    with open_catalog(endpoint) as opened:
        foreign_table(opened, PATH)
        commit.commit_all_or_raise(opened, [stage(opened, PATH, WRITER, 0)])
        yield opened
        opened.drop_table(PATH)


def kind(request: Request) -> tuple[str, str]:
    name = PurePosixPath(request.path.partition("?")[0]).name
    kinds = {"snap-": "manifest list", "-m0.": "manifest", "-deletes.": "delete file"}
    return request.method, next((what for part, what in kinds.items() if part in name), name)


def wait_for_others(number: int) -> Callable[[Request], Fault]:
    """No request is taken on before so many files are written at the same time."""
    together = meeting(number)

    def wait(request: Request) -> Fault:
        if request.method == "PUT":
            together.wait()
        return GENUINE

    return wait


def test_a_session_reads_the_manifest_list_that_it_finds_and_none_of_its_own(
    catalog: Catalog, store: FaultProxy, rest_proxy: FaultProxy
) -> None:
    writers = SnapshotWriters()
    for number, expected in enumerate(([("GET", "manifest list")], [], []), start=1):
        staged = stage(catalog, PATH, WRITER, number)
        store.seen.clear()
        rest_proxy.seen.clear()
        try_commits(catalog, [staged], writers=writers)
        *read, _, _ = kinds = [kind(request) for request in store.seen]
        assert read == expected
        assert {*kinds[len(read) :]} == {("PUT", "manifest"), ("PUT", "manifest list")}
        assert [kind(request) for request in rest_proxy.seen] == [("GET", "orders"), ("POST", "orders")]


def test_a_manifest_and_its_list_are_sent_at_the_same_time(catalog: Catalog, store: FaultProxy) -> None:
    staged = stage(catalog, PATH, WRITER, 1)
    store.seen.clear()
    store.choose = wait_for_others(2)
    commit.commit_all_or_raise(catalog, [staged])
    assert [request.method for request in store.seen].count("PUT") == 2


def test_an_update_sends_its_delete_file_with_the_manifests_and_reads_nothing_that_its_process_has_written(
    catalog: Catalog, store: FaultProxy
) -> None:
    writers = SnapshotWriters()
    make_table(catalog)
    for values in (dict.fromkeys(range(10), "a"), {1: "b", 20: "b"}):
        try_commits(catalog, [stage_updates(catalog, values)], writers=writers)
    staged = stage_updates(catalog, {2: "c"})
    store.seen.clear()
    store.choose = wait_for_others(5)
    [committed] = try_commits(catalog, [staged], writers=writers)
    assert isinstance(committed, Committed)
    assert Counter(map(kind, store.seen)) == {
        ("PUT", "delete file"): 1,
        ("PUT", "manifest"): 3,
        ("PUT", "manifest list"): 1,
    }
    assert values_of(catalog) == {**dict.fromkeys(range(10), "a"), 1: "b", 2: "c", 20: "b"}
    catalog.drop_table(UPDATED)


def test_connections_stay_open_from_one_commit_to_the_next(
    catalog: Catalog, store: FaultProxy, rest_proxy: FaultProxy
) -> None:
    staged = stage(catalog, PATH, WRITER, 1)
    store.choose = wait_for_others(2)
    commit.commit_all_or_raise(catalog, [staged])
    store.choose = lambda _: GENUINE
    staged = stage(catalog, PATH, WRITER, 2)
    before = len(store.clients), len(rest_proxy.clients)
    for number in range(3, 7):
        commit.commit_all_or_raise(catalog, [staged])
        staged = stage(catalog, PATH, WRITER, number)
    assert (len(store.clients), len(rest_proxy.clients)) == before
