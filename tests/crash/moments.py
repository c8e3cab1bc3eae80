"""What happens in each scenario: the moment, the fault, and what is seen right then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crash import foreign
from crash.boundaries import (
    CLOCK_IS_AHEAD,
    KILL_AFTER_COMMIT,
    KILL_BEFORE_COMMIT,
    KILL_WHILE_STORING,
    killed_when_only,
)
from crash.catalog_faults import LOST_ANSWERS, overtaken, refused
from crash.faults import ALWAYS
from crash.lakes import Kind
from crash.ledger import LEDGER, POSTINGS, REJECTED, TABLES, PromiseBrokenError
from crash.shards import Event
from crash.task import HALVES, WHOLE, Task
from support.sessions.processes import wait_until


def undisturbed(task: Task) -> None:
    task.run_to(Event.RECORDED, 2)
    task.noted()


def killed_at(event: Event, times: int) -> Callable[[Task], None]:
    def kill(task: Task) -> None:
        task.run_to(event, times)
        task.kill()

    return kill


def killed_in_mid_store(task: Task) -> None:
    task.run_to(Event.FLUSHED, 2)
    task.faults.arm(KILL_WHILE_STORING)
    task.run_to(Event.HALF_STORED)
    task.dies(KILL_WHILE_STORING)


def killed_while_applying(task: Task) -> None:
    """Twice in the session that staged the transaction, each time followed by once in the recovery."""
    for moment in KILL_BEFORE_COMMIT, KILL_AFTER_COMMIT:
        task.run_to(Event.COMMITTED)
        for fault in moment, KILL_AFTER_COMMIT:
            task.faults.arm(fault)
            task.dies(fault)


def killed_between(*tables: str, rejected: str) -> Callable[[Task], None]:
    """When one of a table and its rejected rows has its share of a transaction and the other has not: each of them
    once, in this order."""

    def kill(task: Task) -> None:
        for landed in tables:
            task.run_to_commit_for(rejected)
            task.faults.arm(killed_when_only(landed))
            task.dies(killed_when_only(landed))
            task.check([landed], complete=True)

    return kill


def answers_lost(task: Task) -> None:
    for fault in LOST_ANSWERS:
        task.run_to(Event.COMMITTED)
        task.faults.arm(fault)
        task.run_to(Event.RECORDED)
        assert not task.faults.is_armed(fault)
        task.check(complete=True)
        task.noted()
    if task.lake.kind is Kind.GLUE:
        # Its client repeats each update, and Glue refuses the later ones. This is no conflict with another writer.
        assert "Glue detected concurrent update" not in task.log


def frozen_before_acknowledge(task: Task) -> None:
    task.run_to(Event.COMMITTED, 2)
    with task.frozen() as zombie:
        task.run_to(Event.RECORDED, 2)
        task.wakes_and_is_refused(zombie)


def frozen_before_start_commit(task: Task) -> None:
    task.run_to(Event.FLUSHED, 2)
    with task.frozen() as zombie:
        task.store_and_start_commit(zombie)
        task.run_to(Event.RECORDED, 2)
        task.wakes_and_is_refused(zombie, "startedCommit")


def opened_twice(task: Task) -> None:
    task.run_to(Event.RECORDED, 2)
    with task.another_instance() as other:
        task.run_to(Event.RECORDED)
        task.store_and_start_commit(other)
        task.is_refused(other, "startedCommit")


def others_write(task: Task) -> None:
    task.run_to(Event.COMMITTED)
    task.tables.append(LEDGER)
    task.run_to(Event.COMMITTED)
    foreign.rewrite(task.tables.table(LEDGER))
    task.run_to(Event.COMMITTED)
    task.faults.arm(overtaken(LEDGER))
    task.run_to(Event.ACKNOWLEDGED)
    assert not task.faults.is_armed(overtaken(LEDGER))
    task.tables.others[LEDGER] += foreign.OVERTAKING
    task.noted()


def snapshots_expired(task: Task) -> None:
    task.run_to(Event.COMMITTED)
    task.run_to(Event.ACKNOWLEDGED)
    task.kill()
    task.tables.append(LEDGER)
    foreign.expire_all_but_the_newest(task.tables.table(LEDGER))


def table_replaced(task: Task) -> None:
    task.run_to(Event.COMMITTED)
    task.kill()
    with task.tables.replaced(LEDGER):
        task.fails("is another table now")
        task.check()
        task.noted()


def staged_files_removed(task: Task) -> None:
    """One table's, of a transaction that the log has committed, while the task is stopped."""
    task.run_to(Event.COMMITTED, 2)
    task.kill()
    locations = [location for staged in task.staged if staged.path[-1] == LEDGER for location in staged.locations]
    assert locations
    with foreign.orphans_removed(task.tables.table(LEDGER), locations):
        for _ in range(2):
            task.fails(f"{len(locations)} staged file(s) are gone: ")
            task.check([other for other in TABLES if other != LEDGER], complete=True)
            task.noted()


def split_during_store(task: Task) -> None:
    task.run_to(Event.FLUSHED, 2)
    with task.frozen() as parent:
        task.store_and_start_commit(parent)
        task.ranges = HALVES
        task.run_to(Event.COMMITTED)
        with task.meeting():
            task.run_to(Event.RECORDED)
        task.wakes_and_is_refused(parent, "startedCommit")


def split_before_apply(task: Task) -> None:
    killed_at(Event.COMMITTED, 2)(task)
    task.ranges = HALVES
    with task.meeting():
        task.run_to(Event.RECORDED)


def join_after_split(task: Task) -> None:
    task.run_to(Event.RECORDED)
    task.end()
    task.ranges = HALVES
    task.run_to(Event.COMMITTED)
    with task.meeting():
        task.run_to(Event.RECORDED)
    task.run_to(Event.COMMITTED)
    task.kill()
    task.ranges = WHOLE


def one_table_fails(task: Task) -> None:
    """A binding's, that recovers in the session, and that of its rejected rows, that recovers after a crash."""
    with one_table_refusing(task, POSTINGS):
        pass
    task.catches_up()
    with one_table_refusing(task, REJECTED):
        task.kill()


@contextmanager
def one_table_refusing(task: Task, table: str) -> Iterator[None]:
    """The table refuses commits; the others have all of their rows."""
    task.run_to_commit_for(table)
    task.faults.arm(refused(table), times=ALWAYS)
    task.run_to(Event.RECORDED, 2)
    task.check([other for other in TABLES if other != table], complete=True)
    yield
    task.faults.disarm(refused(table))


def source_falls_quiet(task: Task) -> None:
    """A table refuses a transaction, and takes commits again when no further transaction comes."""
    with one_table_refusing(task, LEDGER):
        assert LEDGER in task.waiting_tables
    if not wait_until(task.is_complete):
        raise PromiseBrokenError("rows still wait, although their table takes commits again")
    task.noted()


def clocks_disagree(task: Task) -> None:
    """A process whose clock is ahead commits to every table, and dies; its successor's clock is right."""
    task.run_to(Event.COMMITTED)
    task.faults.arm(CLOCK_IS_AHEAD, times=ALWAYS)
    task.run_to(Event.RECORDED)
    task.faults.disarm(CLOCK_IS_AHEAD)
    task.kill()
