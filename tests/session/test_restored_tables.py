"""A session does not continue on a table that was restored from an older copy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from connector.host.errors import ConnectorError, OlderTableError, RetryableError, UserError
from connector.host.refresh import Lease
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.commits import retry_commits
from connector.iceberg.fences import fence
from connector.model.binding import PLAIN, Binding
from connector.model.properties import Properties
from connector.model.state import FinishedCommit, StagedCommit, WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Generation, Owner, TableIdentifier
from connector.session.recovery import bind_newest, check_finished
from support.snapshots import check_text

PATH: Final = TableIdentifier("shop", "users")
TABLE, FIRST, SECOND, OTHER = (f"00000000-0000-0000-0000-00000000000{digit}" for digit in range(1, 5))
WHOLE, LEFT, RIGHT = "00000000-ffffffff", "00000000-7fffffff", "80000000-ffffffff"
BEFORE, WRITER = WriterId("acme/task", "users.v0", WHOLE), WriterId("acme/task", "users.v1", WHOLE)


def value(ordinal: int) -> str:
    return f"{ordinal:08x}{'b' * 24}"


def finished(ordinal: int, writer: WriterId = WRITER, table_uuid: str = FIRST) -> FinishedCommit:
    return FinishedCommit(writer, table_uuid, value(ordinal))


GENERATION: Final = Generation(FIRST, (TABLE,), "acme/task")


def table(
    ordinal: int,
    owner: WriterId = WRITER,
    generation: Generation | None = GENERATION,
    *,
    has_older_rows: bool = False,
) -> BoundTable:
    """A table that has so many transactions. Without a generation, it is as it was before its backfill."""
    properties = {OWNER_PROPERTY: Owner(owner.materialization, owner.state_key, has_older_rows).encode()}
    if ordinal:
        properties[fence.property_name(owner)] = value(ordinal)
    if generation:
        properties |= generation.encode()
    bound = Binding(0, WRITER.state_key, PATH, (), (), None)
    uuid = generation.uuid if generation else TABLE
    return BoundTable(bound, WRITER, uuid, PLAIN, 0, "file:///users", Properties(properties), Lease(Properties()))


RESTORED: Final = table(9, BEFORE, None)


def test_a_table_that_has_what_the_state_says_goes_on() -> None:
    for commits in ([], [finished(3)], [finished(2)], [finished(9, BEFORE, TABLE), finished(3)]):
        check_finished([table(3)], commits, [])


@pytest.mark.parametrize("key_range", [WHOLE, LEFT])
def test_a_table_that_lacks_transactions_is_refused(key_range: str) -> None:
    lost = finished(4, replace(WRITER, key_range=key_range))
    with pytest.raises(OlderTableError, match=r"table shop\.users lacks the last"):
        check_finished([table(3)], [lost], [])


def test_of_other_keys_the_session_knows_nothing() -> None:
    right = table(3)
    right = replace(right, writer=replace(WRITER, key_range=RIGHT))
    check_finished([right], [finished(9, replace(WRITER, key_range=LEFT))], [])


def test_a_writer_with_staged_commits_is_compared_with_these() -> None:
    staged = StagedCommit(WRITER, value(3), value(4), PATH, FIRST, 0, 0, ())
    check_finished([table(3)], [finished(2)], [staged])
    with pytest.raises(OlderTableError, match=r"table shop\.users lacks the last 1"):
        check_finished([table(2)], [finished(2)], [staged])


def test_a_table_of_before_its_backfill_is_refused() -> None:
    with pytest.raises(OlderTableError) as error:
        check_finished([RESTORED], [finished(9, BEFORE, TABLE), finished(3)], [])
    check_text("session_errors", "a table that was restored from before its backfill", str(error.value))


def test_the_table_of_a_binding_that_was_removed_is_not_called_older() -> None:
    """It was renamed to the name of this binding's table."""
    other = table(9, WriterId("acme/task", "returns.v0", WHOLE), None)
    with pytest.raises(UserError) as error:
        check_finished([other], [finished(3)], [])
    check_text("session_errors", "the table of a binding that was removed", str(error.value))


def test_a_table_of_before_its_backfill_is_refused_if_its_first_rows_are_still_staged() -> None:
    staged = StagedCommit(WRITER, "", value(1), PATH, FIRST, 0, 0, ())
    with pytest.raises(OlderTableError, match="is older than the backfill"):
        check_finished([RESTORED], [finished(9, BEFORE, TABLE)], [staged])
    of_rejected_rows = replace(staged, path=TableIdentifier("shop", "users_rejected"))
    check_finished([RESTORED], [finished(9, BEFORE, TABLE)], [of_rejected_rows])


def test_a_table_of_before_its_backfill_is_refused_also_if_an_earlier_one_has_kept_its_rows() -> None:
    kept = table(9, BEFORE, None, has_older_rows=True)
    with pytest.raises(OlderTableError, match="is older than the backfill"):
        check_finished([kept], [finished(9, BEFORE, TABLE), finished(3)], [])


@pytest.mark.parametrize("commits", [[], [finished(9, BEFORE, TABLE)]], ids=["no state", "a state of before"])
def test_a_table_of_before_its_backfill_is_refused_before_its_first_rows_come(commits: list[FinishedCommit]) -> None:
    """What is staged for it could not be added."""
    with pytest.raises(OlderTableError, match="is older than the backfill"):
        check_finished([RESTORED], commits, [])
    ninth, tenth = replace(RESTORED.writer, state_key="users.v9"), replace(RESTORED.writer, state_key="users.v10")
    older = replace(table(9, ninth, None), writer=tenth)
    with pytest.raises(OlderTableError, match="is older than the backfill"):
        check_finished([older], [], [])


@pytest.mark.parametrize("state_key", ["users.v2", "users.v10", "returns.v0", "users"])
def test_a_table_is_of_before_a_backfill_only_if_its_owner_is_an_earlier_state_key_of_the_binding(
    state_key: str,
) -> None:
    check_finished([table(9, replace(WRITER, state_key=state_key), None)], [], [])


def test_a_table_of_rejected_rows_may_have_an_earlier_owner_if_its_binding_has_stored_rows() -> None:
    """An image that recorded no new owner has taken it over, and no row was rejected since."""
    rejected = replace(RESTORED, binding=replace(RESTORED.binding, path=TableIdentifier("shop", "users_rejected")))
    check_finished([table(3), rejected], [finished(3)], [])


def test_a_table_whose_rows_a_backfill_has_kept_goes_on() -> None:
    owner = Owner(WRITER.materialization, WRITER.state_key, has_older_rows=True)
    taken = replace(RESTORED, properties=Properties({**RESTORED.properties, OWNER_PROPERTY: owner.encode()}))
    check_finished([taken], [finished(9, BEFORE, TABLE)], [])
    kept = replace(RESTORED, properties=Properties({**RESTORED.properties, fence.property_name(WRITER): value(3)}))
    check_finished([kept], [finished(3, WRITER, TABLE), finished(3, WRITER, OTHER)], [])
    staged = StagedCommit(WRITER, value(3), value(4), PATH, TABLE, 0, 0, ())
    for commits in ([finished(3, WRITER, TABLE), finished(3, WRITER, OTHER)], [finished(3, WRITER, OTHER)]):
        check_finished([kept], commits, [staged])


def test_what_another_shard_has_staged_for_the_table_itself_is_of_no_later_table() -> None:
    right = replace(RESTORED, writer=replace(WRITER, key_range=RIGHT))
    of_left = StagedCommit(replace(WRITER, key_range=LEFT), "", value(1), PATH, TABLE, 0, 0, ())
    check_finished([right], [finished(9, BEFORE, TABLE)], [of_left])


def test_a_table_of_before_its_backfill_is_refused_if_it_only_has_rows_of_another_shard_since() -> None:
    right = replace(RESTORED, writer=replace(WRITER, key_range=RIGHT))
    of_left, of_right = (finished(1, replace(WRITER, key_range=key_range), TABLE) for key_range in (LEFT, RIGHT))
    with pytest.raises(OlderTableError, match="is older than the backfill"):
        check_finished([right], [finished(9, BEFORE, TABLE), finished(3), of_left], [])
    has = Properties({**right.properties, fence.property_name(right.writer): value(1)})
    check_finished([replace(right, properties=has)], [finished(9, BEFORE, TABLE), finished(3), of_right], [])


def test_commits_to_a_former_generation_and_to_the_table_of_rejected_rows_are_known() -> None:
    former = table(3, BEFORE, Generation(SECOND, (TABLE, FIRST), "acme/task"))
    check_finished(
        [former, table(2, WRITER, Generation(OTHER, (), "acme/task"))], [finished(1), finished(2, WRITER, OTHER)], []
    )


def test_a_table_that_was_made_anew_goes_on() -> None:
    for owner in (WRITER, WriterId("acme/other", "users.v0", WHOLE)):
        check_finished([table(0, owner, None)], [finished(3)], [])
    check_finished([table(0, WRITER, None, has_older_rows=True)], [finished(3)], [])


# Catalogs that answer with an older table for a moment


def bind_in_turn(*answers: BoundTable | ConnectorError) -> Callable[[], list[BoundTable]]:
    """Each attempt gets the next one of these answers. The state says that the table has three transactions."""
    left = iter(answers)

    def bind() -> list[BoundTable]:
        answer = next(left)
        if isinstance(answer, ConnectorError):
            raise answer
        check_finished([answer], [finished(9, BEFORE, TABLE), finished(3)], [])
        return [answer]

    return bind


@pytest.mark.parametrize("older", [table(2), RESTORED], ids=["of-before-a-commit", "of-before-a-backfill"])
def test_tables_are_bound_again_if_the_catalog_has_answered_with_an_older_one(
    older: BoundTable, caplog: pytest.LogCaptureFixture
) -> None:
    assert bind_newest(bind_in_turn(older, older, table(3))) == [table(3)]
    assert "attempt 1 to open the tables: table shop.users" in caplog.text


def test_a_table_that_stays_older_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_commits, "RETRY_FOR", 0.0)
    with pytest.raises(OlderTableError, match="lacks the last 1"):
        bind_newest(bind_in_turn(table(2), table(2)))


@pytest.mark.parametrize("error", [UserError("dropped"), RetryableError("no answer")], ids=["dropped", "no-answer"])
def test_another_error_ends_the_attempts(error: ConnectorError) -> None:
    with pytest.raises(type(error), match=str(error)):
        bind_newest(bind_in_turn(table(2), error))
