"""The command that expires snapshots: beside a task, after lost answers, and what it says if it cannot."""

from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServiceUnavailableError,
)

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, SignInError, UserError
from connector.host.interruption import NEVER
from connector.iceberg.commits import retry_commits
from connector.iceberg.maintenance.expire_snapshots import ExpiredSnapshots, expire_all_snapshots
from support.bindings import PATH
from support.rows.staged_files import land
from support.snapshots import check_text
from support.tables.expiring_tables import NOTHING_OLD, left, referred_to
from support.tables.local_tables import foreign_table, table_of
from support.tables.planted_faults import Send, do_first, plant, plant_always, refuse


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    foreign_table(catalog, PATH, properties=NOTHING_OLD)
    return catalog


def expire_by_hand(catalog: Catalog) -> ExpiredSnapshots:
    return expire_all_snapshots(catalog, PATH, NEVER)


def test_a_command_expires_beside_a_task_that_commits(catalog: Catalog) -> None:
    """The first attempt is refused, because the main branch has moved."""
    for number in range(3):
        land(catalog, number)

    plant(catalog, [do_first(lambda: land(catalog, 3))])
    assert expire_by_hand(catalog).count == 3
    assert len(table_of(catalog).snapshots()) == 1


@pytest.mark.parametrize("lands", ["before the table is loaded", "after it is loaded"])
def test_a_command_deletes_the_files_of_snapshots_that_an_earlier_attempt_has_removed(
    catalog: Catalog, lands: str
) -> None:
    """The answer of the first attempt is lost, and the table does not show yet what became of it."""
    for number in range(3):
        land(catalog, number)

    def lost(send: Send) -> Any:
        def load_once(load: Send) -> Any:
            table = load()
            if lands == "after it is loaded":
                send()
                return table
            raise ServiceUnavailableError("503")

        if lands == "before the table is loaded":
            send()
        plant(catalog, [load_once], "load_table")
        raise CommitStateUnknownException("500")

    plant(catalog, [lost])
    expired = expire_by_hand(catalog)
    assert expired.count == 2
    assert {Path(location).name for location in expired.locations} == left(catalog) - referred_to(catalog) != set()


@pytest.mark.parametrize(
    ("name", "error", "kind"),
    [
        ("expire: another writer", CommitFailedException("branch main has changed"), RetryableError),
        ("expire: no answer", ServiceUnavailableError("try later"), CommitUnknownError),
        ("expire: forbidden", ForbiddenError("not allowed"), UserError),
        ("expire: bad request", BadRequestError("no such field"), UserError),
        ("expire: expired token", AuthorizationExpiredError("token has expired"), SignInError),
    ],
)
def test_a_command_that_cannot_expire_says_why(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, kind: type[ConnectorError]
) -> None:
    monkeypatch.setattr(retry_commits, "RETRY_FOR", 0.0)
    for number in range(3):
        land(catalog, number)
    plant(catalog, [refuse(error)])
    with pytest.raises(kind) as raised:
        expire_by_hand(catalog)
    check_text("maintenance_errors", name, str(raised.value))
    assert len(table_of(catalog).snapshots()) == 3


def test_a_command_says_that_the_table_is_gone(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is refused, and the second one does not find the table."""
    monkeypatch.setattr(retry_commits, "RETRY_FOR", 1.5 * retry_commits.FIRST_PAUSE)
    for number in range(3):
        land(catalog, number)
    plant(catalog, [do_first(lambda: catalog.drop_table(PATH))])
    with pytest.raises(UserError) as raised:
        expire_by_hand(catalog)
    check_text("maintenance_errors", "expire: the table is gone", str(raised.value))


@pytest.mark.parametrize(
    ("name", "error", "kind"),
    [
        (
            "expire: another writer after no answer",
            CommitFailedException("branch main has changed"),
            CommitUnknownError,
        ),
        ("expire: forbidden after no answer", ForbiddenError("not allowed"), UserError),
    ],
)
def test_a_command_whose_first_attempt_got_no_answer_does_not_say_that_nothing_was_changed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, kind: type[ConnectorError]
) -> None:
    monkeypatch.setattr(retry_commits, "RETRY_FOR", 0.01)
    for number in range(3):
        land(catalog, number)

    faults = chain([refuse(CommitStateUnknownException("504"))], repeat(refuse(error)))
    plant_always(catalog, lambda send: next(faults)(send))
    with pytest.raises(kind) as raised:
        expire_by_hand(catalog)
    check_text("maintenance_errors", name, str(raised.value))
