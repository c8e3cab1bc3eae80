"""What happens in the scenarios of compaction: it is killed, it meets transactions, and it outlives its session."""

import signal
from collections.abc import Sequence
from typing import Final

from crash.compacting import COMPACTS, KILL_AFTER_COMPACTION, KILL_BEFORE_COMPACTION, held, held_in
from crash.faults import ALWAYS
from crash.ledger import BALANCES, POSTINGS
from crash.shards import Event
from crash.task import Task
from support.sessions.processes import wait_until

MANY: Final = 40  # transactions, during which a compaction of the session comes to its commit


def compaction_killed(task: Task) -> None:
    """When its files are written, and when they are in the table."""
    task.faults.arm(COMPACTS, times=ALWAYS)
    for fault in KILL_BEFORE_COMPACTION, KILL_AFTER_COMPACTION:
        task.run_to(Event.RECORDED, 2)
        task.faults.arm(fault)
        task.dies(fault, within=MANY)


def compaction_meets_transactions(task: Task) -> None:
    """It commits when transactions have replaced one row of a file that it has read, and not all of them."""
    task.run_to(Event.RECORDED)
    task.end()
    task.faults.arm(COMPACTS, times=ALWAYS)
    task.run_to(Event.RECORDED, 2)
    while not _replaces_a_row(task, _hold_compaction(task)):
        held_in(task.faults).unlink()
    lands = _lands(task)
    task.check(complete=True)
    assert lands
    task.noted()


def _hold_compaction(task: Task) -> list[str]:
    """Go on until a compaction is held before its commit, and return its sources."""
    task.faults.arm(held(BALANCES))
    for _ in range(MANY):
        task.run_to(Event.RECORDED)
        if wait_until(lambda: held_in(task.faults).exists()):
            return held_in(task.faults).read_text().splitlines()
    raise AssertionError("no compaction has come to its commit")


def _replaces_a_row(task: Task, sources: Sequence[str]) -> bool:
    """Go on, document by document, until a row of these files is deleted, and the file is still there. Whether that
    happens before all files are gone."""
    before = task.tables.count_deleted(BALANCES, sources)
    task.read_one_by_one()
    for _ in range(MANY):
        task.run_to(Event.RECORDED)
        if task.tables.count_deleted(BALANCES, sources) - before:
            return True
        if not task.tables.has_files(BALANCES, sources):
            return False
    raise AssertionError("no transaction has replaced a row of the compaction")


def _lands(task: Task) -> bool:
    """Let the compaction go on. Whether the table has taken the files that still have rows: a transaction may have
    replaced all rows of another one."""
    before = len(task.log)
    held_in(task.faults).unlink()
    return wait_until(lambda: f".{BALANCES}: compacted" in task.log[before:])


def compaction_outlives_its_session(task: Task) -> None:
    """Its process stalls, and is replaced by one that does not compact. Then it goes on."""
    task.faults.arm(COMPACTS, times=ALWAYS)
    task.run_to(Event.RECORDED, 2)
    task.faults.arm(held(POSTINGS))
    task.run_to(Event.RECORDED)
    assert wait_until(lambda: held_in(task.faults).exists())
    task.faults.disarm(COMPACTS)
    task.run_to(Event.COMMITTED)
    with task.frozen() as zombie:
        task.run_to(Event.RECORDED, 2)
        done = task.log.count(f".{POSTINGS}: compacted")
        held_in(task.faults).unlink()
        zombie.session.connector.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: task.log.count(f".{POSTINGS}: compacted") > done)
        task.is_refused(zombie)
    task.run_to(Event.RECORDED)
    task.check(complete=True)
