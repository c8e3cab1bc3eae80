"""What happens in the scenarios of an object store, or a disk, that takes no more."""

from typing import Final

from connector.iceberg.catalogs.local import CATALOG_FILE
from crash.faults import ALWAYS, IMPATIENT
from crash.shards import Event
from crash.storage import DATA_UPLOAD_FAILS, UPLOAD_FAILS
from crash.task import Task
from crash.wire import DATA_UPLOAD_HANGS, PART_FAILS, STORE_FORBIDS, STORE_HANGS, STORE_IS_BUSY, STORE_IS_SLOW
from support.sessions.small_disk import small_disk

DISK_IS_FULL: Final = "database or disk is full"  # as SQLite has it


def storage_fails(task: Task) -> None:
    task.run_to(Event.COMMITTED)
    task.faults.arm(UPLOAD_FAILS, times=8)  # of manifests: a store's client tries five times by itself
    task.run_to(Event.FLUSHED)
    assert not task.faults.is_armed(UPLOAD_FAILS)
    task.check(complete=True)
    # A session also uploads where rows were found. So data files fail alone first, and then everything.
    for fault in DATA_UPLOAD_FAILS, UPLOAD_FAILS:
        task.faults.arm(fault, times=ALWAYS)
        task.fails("INTERNAL_FAILURE")
        task.faults.disarm(fault)
        task.noted()
        task.run_to(Event.FLUSHED)


def storage_is_slow(task: Task) -> None:
    """Slower than the store's client would wait by itself: for manifests, then for data files."""
    task.run_to(Event.COMMITTED)
    task.faults.arm(STORE_IS_SLOW, times=3)
    task.run_to(Event.FLUSHED)
    task.memo_size = (
        1 << 20
    )  # files that take several requests, which are waited for less long than that of a small one
    # A client gives up what it has asked five times. Two tasks, side by side, share nine slow answers: one gets five.
    task.faults.arm(STORE_IS_SLOW, times=9)
    task.run_to(Event.STARTED_COMMIT)
    assert not task.faults.is_armed(STORE_IS_SLOW)
    task.noted()


def storage_refuses(task: Task) -> None:
    """First it is asked too often, then it forbids what it allowed."""
    task.run_to(Event.COMMITTED)
    task.faults.arm(STORE_IS_BUSY, times=8)
    task.run_to(Event.RECORDED)
    task.check(complete=True)
    task.run_to(Event.COMMITTED)
    task.faults.arm(STORE_FORBIDS, times=ALWAYS)
    task.run_to(Event.RECORDED)
    task.fails("the object store forbids this")
    task.faults.disarm(STORE_FORBIDS)
    task.noted()


def storage_hangs(task: Task) -> None:
    task.faults.arm(IMPATIENT, times=ALWAYS)
    task.run_to(Event.COMMITTED)
    task.faults.arm(STORE_HANGS, times=3)
    task.run_to(Event.RECORDED)
    task.check(complete=True)
    for fault in DATA_UPLOAD_HANGS, STORE_HANGS:
        task.run_to(Event.FLUSHED)  # so that data files are written next, and none is read
        task.faults.arm(fault, times=ALWAYS)
        task.fails("the object store cannot be reached")
        task.faults.disarm(fault)
        task.noted()


def upload_fails_half_way(task: Task) -> None:
    """The second part of a data file that is larger than one."""
    task.run_to(Event.FLUSHED, 2)
    task.memo_size = 1 << 20
    task.faults.arm(PART_FAILS, times=ALWAYS)
    task.fails("INTERNAL_FAILURE during UploadPart")
    task.faults.disarm(PART_FAILS)
    task.noted()


def disk_full(task: Task) -> None:
    """A limit on the size of a file: writing ends as it does on a full disk, in the middle of a piece."""
    task.run_to(Event.FLUSHED, 2)
    task.memo_size = 128 << 10
    task.limit_file_size(1 << 20)
    task.fails("File too large")
    task.noted()
    task.memo_size = 0


def catalog_disk_full(task: Task) -> None:
    """The tables' files find room, the catalog's do not: for a session, and for one that opens then."""
    disk = task.resources.enter_context(small_disk(task.runtime.directory / "catalog"))
    warehouse = task.runtime.directory / "warehouse"
    warehouse.mkdir()
    (warehouse / CATALOG_FILE).symlink_to(disk.directory / CATALOG_FILE)
    task.run_to(Event.COMMITTED)
    with disk.filled():
        task.run_to(Event.RECORDED, 2)
        assert DISK_IS_FULL in task.log
        task.kill()
        task.run_to(Event.OPENED)
    task.catches_up()
