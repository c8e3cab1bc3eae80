"""What happens in the scenarios of backfills: apply and the first commit are killed, and processes of before go on."""

from crash.boundaries import KILL_AFTER_BACKFILL, KILL_BEFORE_BACKFILL, KILL_BEFORE_COMMIT, killed_when_only
from crash.ledger import BALANCES
from crash.shards import Event
from crash.task import Task


def backfill_killed(task: Task) -> None:
    """Before the first commit of an apply, after it, and after the second one of another apply. Then before the first
    commit of new rows, and when one table has its new rows and no other has.

    Rows are staged each time: first rows of before, which apply is not told of, and then rows of the first backfill,
    which apply drops.
    """
    task.run_to(Event.RECORDED)
    task.run_to(Event.COMMITTED)
    task.kill()
    task.backfill()
    for fault, after in (KILL_BEFORE_BACKFILL, 0), (KILL_AFTER_BACKFILL, 0), (KILL_AFTER_BACKFILL, 1):
        task.apply_dies(fault, after=after)
    task.publish()
    task.run_to(Event.COMMITTED)
    task.kill()
    task.runtime.tells_apply_state = True
    task.backfill()
    task.publish()
    assert not task.staged
    task.run_to(Event.COMMITTED)
    for fault in KILL_BEFORE_COMMIT, killed_when_only(BALANCES):
        task.faults.arm(fault)
        task.dies(fault)
    task.check([BALANCES], complete=True)


def outlived_by_its_processes(task: Task) -> None:
    """A process of before goes on between the two commits of a backfill, and another one after the second."""
    task.run_to(Event.COMMITTED, 2)
    with task.frozen() as zombie:
        task.backfill()
        task.publish()
        task.wakes_and_is_refused(zombie)
        task.check()
    task.run_to(Event.FLUSHED, 2)
    with task.frozen() as zombie:
        task.store_and_start_commit(zombie)
        task.backfill()
        task.publish()
        task.run_to(Event.RECORDED)
        task.wakes_and_is_refused(zombie, "startedCommit")
        task.check(complete=True)
