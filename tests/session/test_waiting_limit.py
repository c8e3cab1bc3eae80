"""The limit of what may wait for a table stops a session that would add to it, and no other session."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError, UnauthorizedError

from connector.config.endpoint_config import EndpointConfig
from connector.host.errors import UserError
from connector.iceberg.bound_table import bind_all
from connector.iceberg.commits import commit
from connector.model.binding import RowSettings
from connector.model.state import DataFile, StagedCommit, StagedTransaction, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.recovery import recover
from connector.session.session_threads import run_threads
from connector.session.transactions import Session
from protocol.flow import WHOLE_RANGE, FieldSelection, Materialization, MaterializationBinding
from support.bindings import MATERIALIZATION
from support.rows.staged_files import stage, stage_chain
from support.rows.staged_rows import chain_of
from support.sessions.processes import DEADLINE
from support.tables.local_tables import foreign_table, ids_of
from support.tables.planted_faults import plant, refuse

ORDERS, ITEMS = TableIdentifier("shop", "orders"), TableIdentifier("shop", "items")
LIMIT: Final = Limit(commits=100, size=1 << 40)
UNUSED: Final[Any] = None


@pytest.fixture
def catalog(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)
    for path in ORDERS, ITEMS:
        foreign_table(catalog, path)
    return catalog


def stage_one(catalog: Catalog, path: TableIdentifier) -> StagedCommit:
    return stage(catalog, path, WriterId(MATERIALIZATION, f"{path[1]}.v1", WHOLE_RANGE.key_range), 1)


def open_session(catalog: Catalog, waiting: Sequence[StagedCommit], *bound: TableIdentifier) -> Session:
    selection = FieldSelection(("id",))
    bindings = [
        MaterializationBinding(resource_path=path, state_key=f"{path[1]}.v1", field_selection=selection)
        for path in bound
    ]
    task = Materialization(name=MATERIALIZATION, bindings=tuple(bindings))
    committer = Committer(partial(commit.try_commits, catalog), LIMIT)
    bind = partial(bind_all, catalog, task, WHOLE_RANGE.key_range, [RowSettings() for _ in bound])
    recovered = recover(waiting, committer, bind)
    return Session(recovered.tables, recovered.commits, committer, UNUSED)


def test_what_waits_for_a_table_without_a_binding_stops_no_session(catalog: Catalog) -> None:
    """No transaction adds to it. Without the binding, the other tables of the task go on."""
    waiting = chain_of(stage_one(catalog, ORDERS), 101)
    catalog.rename_table(ORDERS, ("shop", "away"))
    session = open_session(catalog, waiting, ITEMS)
    added = stage_one(catalog, ITEMS)
    assert session.acknowledge(StagedTransaction((added,))).commits == (added,)
    assert ids_of(catalog, ITEMS) == [1]


@pytest.mark.parametrize("answer", [ForbiddenError("403"), BadRequestError("400"), UnauthorizedError("401")])
def test_a_table_that_refuses_its_first_rows_keeps_no_session_from_opening(catalog: Catalog, answer: Exception) -> None:
    """It waits, as in the session that staged them. It gets all of its rows as soon as it accepts some."""
    first, second = stage_chain(catalog, ORDERS, WriterId(MATERIALIZATION, "orders.v1", WHOLE_RANGE.key_range))
    plant(catalog, [refuse(answer)])
    session = open_session(catalog, [replace(first, is_recovered=True)], ORDERS, ITEMS)
    other = stage_one(catalog, ITEMS)
    assert session.acknowledge(StagedTransaction((second, other))).commits == (other,)
    assert (ids_of(catalog, ORDERS), ids_of(catalog, ITEMS)) == ([], [1])
    session._committer.finish(DEADLINE)
    assert ids_of(catalog, ORDERS) == [1, 2, 3]


@pytest.mark.parametrize("error", [CommitFailedException("not now"), ForbiddenError("not allowed")])
def test_a_session_does_not_open_with_too_much_for_a_bound_table(catalog: Catalog, error: Exception) -> None:
    """A task that is started again and again would add a transaction each time."""
    waiting = chain_of(stage_one(catalog, ORDERS), 101)
    plant(catalog, [refuse(error)])
    with pytest.raises(UserError, match="By now 101 transactions"):
        open_session(catalog, waiting, ORDERS, ITEMS)


def test_a_transaction_that_exceeds_the_limit_stops_its_session(catalog: Catalog) -> None:
    *waiting, last = chain_of(stage_one(catalog, ORDERS), 101)
    plant(catalog, [refuse(CommitFailedException("not now"))])
    session = open_session(catalog, waiting, ORDERS, ITEMS)
    with pytest.raises(UserError, match="By now 101 transactions"):
        session.acknowledge(StagedTransaction((last, stage_one(catalog, ITEMS))))
    assert ids_of(catalog, ITEMS) == [1]


@pytest.mark.parametrize(
    ("key_range", "most"),
    [(WHOLE_RANGE.key_range, 32 << 20), ("80000000-bfffffff", 8 << 20), ("fff00000-ffffffff", 256 << 10)],
)
def test_a_shard_may_take_its_part_of_the_state(catalog: Catalog, key_range: str, most: int) -> None:
    """The runtime sends what all shards have staged in one message."""
    first, second = (
        replace(staged, files=(DataFile("x" * size, 1, 1, (4,), ()),))
        for staged, size in zip(chain_of(stage_one(catalog, ORDERS), 2), (most - 2000, 2000), strict=True)
    )
    catalog.rename_table(ORDERS, ("shop", "away"))
    with run_threads(catalog, MATERIALIZATION, key_range, EndpointConfig(namespace="shop"), UNUSED) as threads:
        threads.committer.commit([first])
        threads.committer.check_limit({first.chain_id})
        threads.committer.commit([second])
        with pytest.raises(UserError, match="of the task's state"):
            threads.committer.check_limit({first.chain_id})
