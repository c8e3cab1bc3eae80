"""A table with one row for each key gets the rows of one writer before the next one stages any."""

from collections.abc import Collection, Sequence
from typing import Final

import pytest
from pyiceberg.exceptions import ForbiddenError

from connector.host.errors import ConnectorError, RetryableError
from connector.host.refresh import Lease
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits.commit_errors import explain_refusal
from connector.iceberg.commits.commit_outcomes import Failed, Tell
from connector.model.binding import PLAIN, Binding, Updates
from connector.model.properties import Properties
from connector.model.state import ChainId, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.recovery import Recovered, recover, select_overlapping_commits
from support.snapshots import check_text

PATH: Final = TableIdentifier("shop", "users")
UUID: Final = "00000000-0000-0000-0000-000000000001"
UPDATES: Final = Updates((), 1)
WHOLE, LEFT, RIGHT = "00000000-ffffffff", "00000000-7fffffff", "80000000-ffffffff"
UNAVAILABLE: Final = RetryableError("The catalog is not available.")
FORBIDDEN: Final = explain_refusal(PATH, ForbiddenError("not allowed"))


def writer(key_range: str = WHOLE, state_key: str = "users.v1") -> WriterId:
    return WriterId("acme/task", state_key, key_range)


def recover_as(
    opening: WriterId, pending: WriterId, updates: Updates | None = UPDATES, error: ConnectorError = UNAVAILABLE
) -> Recovered:
    """A session opens as one writer, and the table refuses what another one has staged."""
    commit = StagedCommit(pending, "", "0" * 31 + "1", PATH, UUID, 0, 0, (), is_recovered=True)
    binding = Binding(0, opening.state_key, PATH, (), (), None, updates=updates)
    table = BoundTable(binding, opening, UUID, PLAIN, 0, "file:///users", Properties(), Lease(Properties()))

    def refuse(staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> None:  # noqa: ARG001
        tell(Failed(tuple(staged), error))

    return recover([commit], Committer(refuse, Limit(10, 1000)), lambda: [table])


@pytest.mark.parametrize("pending", [writer(), writer(RIGHT, "users.v0")])
def test_a_session_whose_key_range_has_changed_waits_for_rows_of_the_former_one(pending: WriterId) -> None:
    # A Load would find two rows of a key, and the state does not say which of them is newer.
    opening = writer(LEFT if pending.key_range == WHOLE else RIGHT)
    with pytest.raises(RetryableError, match="the catalog forbids the commit"):
        recover_as(opening, pending, error=FORBIDDEN)
    with pytest.raises(RetryableError) as raised:
        recover_as(opening, pending)
    check_text("session_errors", f"rows of {pending.state_key} {pending.key_range} are pending", str(raised.value))


@pytest.mark.parametrize("error", [UNAVAILABLE, FORBIDDEN])
def test_a_session_of_the_same_writer_goes_on(error: ConnectorError) -> None:
    """A table that the task may not change any more does not keep the other tables from opening."""
    assert recover_as(writer(), writer(), error=error).tables


def test_a_session_of_other_keys_goes_on() -> None:
    assert recover_as(writer(LEFT), writer(RIGHT)).tables


def test_a_session_commits_what_was_staged_for_some_of_its_keys_only() -> None:
    """A recovery closes the fences of a commit. The other shard may be running."""
    whole, left, right = (
        StagedCommit(writer(key_range), "", "0" * 31 + "1", PATH, UUID, 0, 0, ()) for key_range in (WHOLE, LEFT, RIGHT)
    )
    assert select_overlapping_commits([whole, left, right], LEFT) == [whole, left]


def test_a_session_that_only_adds_rows_goes_on() -> None:
    assert recover_as(writer(LEFT), writer(), updates=None).tables
