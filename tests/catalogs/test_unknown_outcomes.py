"""Commits through a REST catalog whose answers are lost, late or wrong: on the wire, with a real server behind it."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from connector.config.catalog import RestCatalog
from connector.host.errors import CommitUnknownError, FencedError, UserError
from connector.host.http_time_limits import TimeLimits
from connector.iceberg.catalogs.rest import TIME_LIMITS, open_rest
from connector.iceberg.catalogs.rest_errors import translate_errors
from connector.iceberg.commits import commit
from connector.iceberg.fences import fence
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import stage, stage_chain
from support.servers.fault_proxy import GENUINE, STATUSES, Answer, Fault, FaultProxy, always, is_commit, is_load
from support.servers.rest_catalog import RestCatalogServer
from support.snapshots import check_text
from support.tables.local_tables import ids_of

pytestmark = [pytest.mark.catalog, pytest.mark.usefixtures("no_pauses")]

KEY_RANGE: Final = WHOLE_RANGE.key_range
WRITER: Final = WriterId("acme/warehouse", "orders.v1", KEY_RANGE)
NOT_LANDED: Final = {f"{status:d}": Fault(0, status) for status in STATUSES} | {
    "dropped": Fault(0, Answer.NONE),
    "silent": Fault(0, Answer.SILENCE),
    "501": Fault(0, HTTPStatus.NOT_IMPLEMENTED),
    "redirected": Fault(0, Answer.REDIRECT),
}
LANDED: Final = {f"{status:d} for what landed": Fault(1, status) for status in STATUSES} | {
    "answer dropped": Fault(1, Answer.NONE),
    "answer withheld": Fault(1, Answer.SILENCE),
    "answer truncated": Fault(1, Answer.TRUNCATED),
    "answer shortened": Fault(1, Answer.SHORTENED),
    "conflict with itself": Fault(2, Answer.GENUINE),
}
FAULTS: Final = NOT_LANDED | LANDED
IMPATIENT: Final = TimeLimits(connect=10, read=0.5)  # where the proxy is silent on purpose


@pytest.fixture
def catalog(rest_catalog: RestCatalogServer) -> Iterator[Catalog]:
    """The server without the proxy."""
    with open_rest(RestCatalog(rest_catalog.uri, str(rest_catalog.warehouse)), {}) as opened:
        yield opened


def finish(proxy: FaultProxy, staged: Sequence[StagedCommit], limits: TimeLimits = TIME_LIMITS) -> None:
    with open_rest(RestCatalog(proxy.uri, "warehouse"), {}, limits) as catalog:
        commit.commit_all_or_raise(catalog, staged)


def limits_for(fault: Fault) -> TimeLimits:
    return IMPATIENT if fault.answer is Answer.SILENCE else TIME_LIMITS


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_chain_lands_once_and_stays_readable(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier, fault: Fault
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    proxy.inject(is_commit, fault)
    proxy.inject(is_load, fault)
    finish(proxy, chain, limits_for(fault))
    assert proxy.fired == [fault, fault]
    finish(proxy, [replace(staged, is_recovered=True) for staged in chain])
    table = catalog.load_table(path)
    assert ids_of(catalog, path) == [1, 2, 3]
    assert len(table.snapshots()) == 1
    assert fence.read_value(table.properties, WRITER) == chain[-1].next


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_process_that_is_replaced_between_its_look_and_its_commit_is_refused(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier, fault: Fault
) -> None:
    stale, successor = stage(catalog, path, WRITER, 1), stage(catalog, path, WRITER, 2)
    proxy.inject(is_commit, fault, before=lambda: commit.commit_all_or_raise(catalog, [successor]))
    proxy.inject(is_load, fault)
    with pytest.raises(FencedError):
        finish(proxy, [stale], limits_for(fault))
    assert proxy.fired == [fault, fault]
    assert ids_of(catalog, path) == [2]


def test_a_conflict_with_another_writer_and_a_lost_answer_are_met_in_one_commit(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    foreign = stage(catalog, path, WriterId("acme/other", "orders.v1", KEY_RANGE), 100)
    proxy.inject(is_commit, GENUINE, before=lambda: commit.commit_all_or_raise(catalog, [foreign]))
    for name in ("503", "dropped", "answer dropped"):
        proxy.inject(is_commit, FAULTS[name])
    finish(proxy, stage_chain(catalog, path, WRITER))
    assert ids_of(catalog, path) == [1, 2, 3, 100]
    assert len(catalog.load_table(path).snapshots()) == 2


def test_a_table_that_is_dropped_between_the_look_and_the_commit_is_missed_by_name(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier
) -> None:
    staged = stage(catalog, path, WRITER, 1)
    proxy.inject(is_commit, GENUINE, before=lambda: catalog.drop_table(path))
    with pytest.raises(UserError, match="orders is gone"):
        finish(proxy, [staged])


def test_a_change_that_is_redirected_names_the_other_address(
    rest_catalog: RestCatalogServer, proxy: FaultProxy
) -> None:
    proxy.inject(lambda request: request.method == "POST", FAULTS["redirected"])
    with (
        pytest.raises(UserError) as raised,
        translate_errors(proxy.uri),
        open_rest(RestCatalog(proxy.uri, "warehouse"), {}) as catalog,
    ):
        catalog.create_namespace(f"shop_{uuid.uuid4().hex}")
    placeholders = {proxy.uri: "URI", rest_catalog.uri: "ANOTHER_URI"}
    check_text("catalog_errors", "REST: redirected", str(raised.value), placeholders)


@pytest.mark.parametrize("name", ["silent", "answer withheld"])
def test_a_commit_that_took_all_the_time_there_is_for_retries_is_looked_for_once_more(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", IMPATIENT.read / 2)
    proxy.inject(is_commit, FAULTS[name])
    finish(proxy, stage_chain(catalog, path, WRITER), IMPATIENT)
    assert ids_of(catalog, path) == [1, 2, 3]
    assert len(catalog.load_table(path).snapshots()) == 1


@pytest.mark.parametrize("status", [*STATUSES, HTTPStatus.OK], ids=str)
def test_a_catalog_that_never_takes_a_commit_is_an_error_that_keeps_the_files(
    catalog: Catalog, proxy: FaultProxy, path: TableIdentifier, monkeypatch: pytest.MonkeyPatch, status: HTTPStatus
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 1.0)  # more than a loaded machine needs before its first attempt
    chain = stage_chain(catalog, path, WRITER)
    proxy.choose = always(Fault(0, status), is_commit)
    with pytest.raises(CommitUnknownError, match=r"orders.*stay staged"):
        finish(proxy, chain)
    assert len(proxy.fired) > 1
    proxy.choose = lambda _: GENUINE
    finish(proxy, chain)
    assert ids_of(catalog, path) == [1, 2, 3]
