"""Rows that were staged for a table that is gone are given up once their binding has been backfilled."""

import logging
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from connector.host.errors import MissingTableError, UserError
from connector.host.refresh import Lease
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Outcome, Superseded
from connector.model.binding import PLAIN, Binding
from connector.model.properties import Properties
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Owner, TableIdentifier
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.recovery import Recovered, recover
from connector.storage.file_io import files_of
from support.bindings import PATH
from support.rows.staged_rows import WRITER, chain_of, staged
from support.tables.local_tables import foreign_table, record_property

BACKFILLED: Final = replace(WRITER, state_key="shop%2Forders.v1")
LIMIT: Final = Limit(commits=10, size=1 << 20)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH)
    return catalog


@pytest.fixture
def committer(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Committer:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)
    return Committer(partial(commit.try_commits, catalog), LIMIT)


def replace_table(catalog: Catalog, owner: WriterId) -> StagedCommit:
    """Rows are staged, another engine renames their table, and a new one gets its name."""
    waiting = replace(staged(catalog, {"id": 1}), is_recovered=True)
    make_anew(catalog, owner)
    return waiting


def make_anew(catalog: Catalog, owner: WriterId) -> None:
    catalog.rename_table(PATH, ("shop", "away"))
    foreign_table(catalog, PATH)
    record_owner(catalog, owner)


def record_owner(catalog: Catalog, owner: WriterId) -> None:
    record_property(catalog.load_table(PATH), OWNER_PROPERTY, Owner(owner.materialization, owner.state_key).encode())


def bind(writer: WriterId, catalog: Catalog) -> BoundTable:
    table = catalog.load_table(PATH)
    return BoundTable(
        Binding(0, writer.state_key, PATH, (), (), None),
        writer,
        str(table.metadata.table_uuid),
        PLAIN,
        0,
        table.location(),
        Properties(table.properties),
        Lease(Properties()),
    )


def recover_as(writer: WriterId, waiting: StagedCommit, catalog: Catalog, committer: Committer) -> Recovered:
    return recover([waiting], committer, lambda: [bind(writer, catalog)])


def test_rows_of_before_a_backfill_are_given_up(
    catalog: Catalog, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    """Not every runtime gives apply the state, which drops them otherwise."""
    caplog.set_level(logging.WARNING)
    waiting = replace_table(catalog, BACKFILLED)
    assert recover_as(BACKFILLED, waiting, catalog, committer).commits == (waiting,)
    committer.finish(0.0)  # the end of the input is no error
    assert "1 rows that were staged before its backfill are not added" in caplog.text


def test_the_metrics_no_longer_count_them_as_waiting(catalog: Catalog) -> None:
    told: list[Outcome] = []
    committer = Committer(partial(commit.try_commits, catalog), LIMIT, [told.append])
    waiting = replace_table(catalog, BACKFILLED)
    recover_as(BACKFILLED, waiting, catalog, committer)
    assert told[-1] == Superseded((waiting,))


def test_they_are_given_up_beside_tables_that_they_were_not_staged_for(catalog: Catalog, committer: Committer) -> None:
    waiting = replace_table(catalog, BACKFILLED)
    table = bind(BACKFILLED, catalog)
    other = replace(table, binding=replace(table.binding, index=1, path=TableIdentifier("shop", "items")))
    assert recover([waiting], committer, lambda: [table, other]).commits == (waiting,)


def test_rows_that_their_table_has_got_before_it_was_replaced_are_not_given_up(
    catalog: Catalog, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is replaced between the commit of the rows and the binding of the tables."""
    waiting = replace(staged(catalog, {"id": 1}), is_recovered=True)

    def bind_late() -> list[BoundTable]:
        make_anew(catalog, BACKFILLED)
        return [bind(BACKFILLED, catalog)]

    assert recover([waiting], committer, bind_late).commits == (waiting,)
    assert "before its backfill" not in caplog.text


def test_more_rows_than_may_wait_are_given_up_too(catalog: Catalog, committer: Committer) -> None:
    """Otherwise the backfill would not help a task that has stopped at the limit, although its error advises it."""
    waiting = chain_of(replace_table(catalog, BACKFILLED), LIMIT.commits + 1)
    assert recover(waiting, committer, lambda: [bind(BACKFILLED, catalog)]).commits == (*waiting,)


def test_rows_stay_staged_while_another_table_than_that_of_the_backfill_has_the_name(
    catalog: Catalog, committer: Committer
) -> None:
    waiting = replace_table(catalog, WRITER)
    assert recover_as(BACKFILLED, waiting, catalog, committer).commits == ()
    assert committer.find_error(waiting.chain_id)


def test_rows_of_the_table_itself_are_not_given_up(catalog: Catalog) -> None:
    """Their commit decides, when the table can be reached again."""
    waiting = staged(catalog, {"id": 1})
    record_owner(catalog, BACKFILLED)
    assert not bind(BACKFILLED, catalog).has_superseded(waiting)


def test_rows_that_the_bound_table_can_never_get_are_an_error(catalog: Catalog, committer: Committer) -> None:
    waiting = replace_table(catalog, WRITER)
    with pytest.raises(UserError, match="is another table now"):
        recover_as(WRITER, waiting, catalog, committer)


def test_so_are_those_of_an_older_binding_of_the_table(catalog: Catalog, committer: Committer) -> None:
    """A backfill has kept the rows of the table."""
    waiting = replace(staged(catalog, {"id": 1}), is_recovered=True)
    record_owner(catalog, BACKFILLED)
    table = catalog.load_table(PATH)
    for file in files_of(table.io, waiting.files):
        table.io.delete(file.path)
    with pytest.raises(UserError, match=r"1 staged file\(s\) are gone"):
        recover_as(BACKFILLED, waiting, catalog, committer)


def test_the_error_of_a_missing_table_says_which_rows_wait_for_it(catalog: Catalog, committer: Committer) -> None:
    waiting = replace(staged(catalog, {"id": 1}), is_recovered=True)
    catalog.rename_table(PATH, ("shop", "away"))

    def bind_missing() -> list[BoundTable]:
        raise MissingTableError(PATH, WRITER.state_key)

    with pytest.raises(UserError, match=r"table shop\.orders is gone, and the task's state names 1 rows"):
        recover([waiting], committer, bind_missing)
