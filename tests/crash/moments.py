"""What happens in each scenario: the moment, the fault, and what is seen right then."""

from collections.abc import Callable
from typing import Final

from crash import foreign
from crash.boundaries import (
    KILL_AFTER_COMMIT,
    KILL_BEFORE_COMMIT,
    KILL_WHILE_STORING,
    LOST_ANSWERS,
    overtaken,
    refused,
)
from crash.faults import ALWAYS
from crash.ledger import TABLES
from crash.shards import Event
from crash.storage import UPLOAD_FAILS
from crash.task import HALVES, WHOLE, Task

LEDGER: Final = "ledger"
POSTINGS: Final = "postings"


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


def answers_lost(task: Task) -> None:
    for fault in LOST_ANSWERS:
        task.run_to(Event.COMMITTED)
        task.faults.arm(fault)
        task.run_to(Event.RECORDED)
        assert task.faults.fired(fault)
        task.check(complete=True)
        task.noted()


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
    foreign.compact(task.tables.table(LEDGER))
    task.run_to(Event.COMMITTED)
    task.faults.arm(overtaken(LEDGER))
    task.run_to(Event.ACKNOWLEDGED)
    assert task.faults.fired(overtaken(LEDGER))
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
        task.fails("was dropped and created again")
        task.check()
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
    """It recovers once in the session, and once after a crash."""
    others = [table for table in TABLES if table != POSTINGS]
    for ends in task.catches_up, task.kill:
        task.run_to(Event.COMMITTED)
        task.faults.arm(refused(POSTINGS), times=ALWAYS)
        task.run_to(Event.RECORDED, 2)
        task.check(others, complete=True)
        task.faults.disarm(refused(POSTINGS))
        ends()


def storage_fails(task: Task) -> None:
    task.run_to(Event.COMMITTED)
    task.faults.arm(UPLOAD_FAILS, times=2)  # of manifests
    task.run_to(Event.FLUSHED)
    task.check(complete=True)
    task.faults.arm(UPLOAD_FAILS, times=ALWAYS)  # of data files
    task.fails("500, try again")
    task.faults.disarm(UPLOAD_FAILS)
    task.noted()


def disk_full(task: Task) -> None:
    """A limit on the size of a file: writing ends as it does on a full disk, in the middle of a piece."""
    task.run_to(Event.FLUSHED, 2)
    task.memo = "x" * (128 << 10)
    task.limit_file_size(1 << 20)
    task.fails("disk")
    task.noted()
    task.memo = ""
