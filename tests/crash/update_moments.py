"""What happens in the scenarios of the table with updates: the rows that a transaction has found, and deletes, change
before it is committed."""

from collections.abc import Callable

from crash import foreign
from crash.balances import slot_of
from crash.ledger import BALANCES, PromiseBrokenError, entry
from crash.moments import one_table_refusing
from crash.shards import Event
from crash.task import HALVES, Task
from support.sessions.processes import wait_until


def found_rows_change(change: Callable[[Task, range], None]) -> Callable[[Task], None]:
    """Between Load and Store, between the log's commit and the table's, and before a successor commits. `change` gets
    the documents of the transaction."""

    def moment(task: Task) -> None:
        task.run_to(Event.FLUSHED, 2)
        change(task, task.documents)
        task.run_to(Event.RECORDED)
        task.check([BALANCES], complete=True)
        _commit_updates(task, change)
        task.run_to(Event.RECORDED)
        task.check([BALANCES], complete=True)
        _commit_updates(task, change, kill=True)
        task.run_to(Event.OPENED)
        task.check([BALANCES], complete=True)
        task.noted()

    return moment


def _commit_updates(task: Task, change: Callable[[Task, range], None], *, kill: bool = False) -> None:
    """The log commits a transaction that replaces rows."""
    task.run_to(Event.FLUSHED)
    documents = task.documents
    task.run_to(Event.COMMITTED)
    assert any(commit.located for commit in task.staged)
    if kill:
        task.kill()
    change(task, documents)


def compacted(task: Task, _: range) -> None:
    foreign.rewrite(task.tables.table(BALANCES))


def deleted(task: Task, documents: range) -> None:
    """Some rows of the keys that the transaction stores. Their neighbours get other positions."""
    foreign.delete(task.tables.table(BALANCES), [slot_of(entry(number)) for number in documents[::2]])


def expired(task: Task, _: range) -> None:
    """The snapshot in which the rows were found; the rows are in other files now."""
    foreign.rewrite(task.tables.table(BALANCES))
    task.tables.append(BALANCES)
    foreign.expire_all_but_the_newest(task.tables.table(BALANCES))


def updates_wait(task: Task) -> None:
    """The table refuses commits while its keys are stored again and again, and its files are compacted: in a session
    that then commits what waits together, and before a successor does."""
    task.run_to(Event.RECORDED)
    with one_table_refusing(task, BALANCES):
        foreign.rewrite(task.tables.table(BALANCES))
        task.run_to(Event.RECORDED, 2)
        snapshots = len(task.tables.table(BALANCES).snapshots())
        assert len([commit for commit in task.staged if commit.path[-1] == BALANCES]) == 4
    if not wait_until(task.is_complete):
        task.check(complete=True)
    # An attempt may have been under way when the last transaction was staged.
    if len(task.tables.table(BALANCES).snapshots()) > snapshots + 2:
        raise PromiseBrokenError(f"{BALANCES}: what has waited has not become visible together")
    task.noted()
    with one_table_refusing(task, BALANCES):
        task.kill()
        foreign.rewrite(task.tables.table(BALANCES))


def two_ranges_update(task: Task) -> None:
    """One table, with conflicts, and with files that have rows of both."""
    task.run_to(Event.RECORDED)
    task.end()
    task.ranges = HALVES
    for _ in range(2):
        task.run_to(Event.COMMITTED)
        with task.meeting(BALANCES):
            task.run_to(Event.RECORDED)
        foreign.rewrite(task.tables.table(BALANCES))
    task.run_to(Event.COMMITTED)
    task.kill()
    with task.meeting(BALANCES):
        task.run_to(Event.OPENED)


def two_ranges_meet(task: Task) -> None:
    """In one table, whose files have rows of both."""
    task.run_to(Event.RECORDED, 2)
    task.end()
    task.ranges = HALVES
    for _ in range(2):
        task.run_to(Event.COMMITTED)
        with task.meeting(BALANCES):
            task.run_to(Event.RECORDED)


def columns_converted(task: Task) -> None:
    """Other columns than the key's, while rows that are to be replaced are staged: by an apply without the state, and
    by one that commits them first."""
    for column, tells_state in ("balance", False), ("sequence", True):
        task.run_to(Event.COMMITTED, 2)
        assert any(commit.located for commit in task.staged)
        task.kill()
        task.runtime.tells_apply_state = tells_state
        task.convert(BALANCES, column)
        task.run_to(Event.OPENED)
        task.check(complete=True)
