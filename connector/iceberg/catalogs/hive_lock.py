"""Hive's lock of a table, which each engine takes before it changes an Iceberg table.

Some metastores never release the lock of a process that has died. Our locks have our agent's name. If one of them
blocks a commit for long, it is released. That is safe: the lock only keeps other engines away. For our own changes the
metastore compares the metadata with the expected one.
"""

import logging
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from hive_metastore.ttypes import (
    CheckLockRequest,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    ShowLocksRequest,
    UnlockRequest,
)
from pyiceberg.exceptions import CommitFailedException

from connector.iceberg.catalog_messages import TableLockError, first_line
from connector.iceberg.catalogs.metastore import Connections, MetastoreError
from connector.model.table_identifier import TableIdentifier

log = logging.getLogger(__name__)

AGENT: Final = "materialize-iceberg"
PATIENCE: Final = 10.0  # seconds: a change takes a fraction of a second
POLL_SECONDS: Final = 0.1


@contextmanager
def hold_lock(connections: Connections, client: Any, path: TableIdentifier) -> Iterator[None]:
    """Hold the lock while a table is changed. Raises TableLockError if another process holds it for too long."""
    lock = client.lock(make_request(path))
    try:
        if lock.state != LockState.ACQUIRED:
            _wait(client, lock.lockid, path)
        yield
    finally:
        # Through a new connection: the one of the change may be broken. A lock does not belong to a connection.
        try:
            with suppress(NoSuchLockException), connections as another:
                another.unlock(UnlockRequest(lockid=lock.lockid))
        except MetastoreError as error:
            log.warning(
                "table %s: lock %d was not released in Hive (%s). The next commit of the connector to this table "
                "releases it, or the metastore after hive.txn.timeout. Other engines have to wait for that.",
                path,
                lock.lockid,
                first_line(str(error)),
            )


def make_request(path: TableIdentifier) -> LockRequest:
    """Return the request for an exclusive lock of a table."""
    database, table = path
    component = LockComponent(
        level=LockLevel.TABLE,
        type=LockType.EXCLUSIVE,
        dbname=database,
        tablename=table,
        operationType=DataOperationType.NO_TXN,
    )
    return LockRequest(component=[component], user=AGENT, hostname=socket.gethostname(), agentInfo=AGENT)


def _wait(client: Any, lock_id: int, path: TableIdentifier) -> None:
    first = {lock.lockid for lock in _ahead(client, lock_id, path)}
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if _is_ours(client, lock_id):
            return
        time.sleep(POLL_SECONDS)
    for lock in _ahead(client, lock_id, path):
        if lock.agentInfo == AGENT and lock.lockid in first:
            log.warning(
                "table %s: releasing lock %d, which a process on %s left behind",
                path,
                lock.lockid,
                lock.hostname,
            )
            with suppress(NoSuchLockException):
                client.unlock(UnlockRequest(lockid=lock.lockid))
    if not _is_ours(client, lock_id):
        raise TableLockError(_describe_holders(_ahead(client, lock_id, path)))


def _is_ours(client: Any, lock_id: int) -> bool:
    try:
        return bool(client.check_lock(CheckLockRequest(lockid=lock_id)).state == LockState.ACQUIRED)
    except NoSuchLockException as error:
        raise CommitFailedException("the lock of the table was taken away") from error


def _ahead(client: Any, lock_id: int, path: TableIdentifier) -> list[Any]:
    """Return the locks before this one: the lock that is held, and those that have waited for longer."""
    database, table = path
    standing = client.show_locks(ShowLocksRequest(dbname=database, tablename=table)).locks
    return [lock for lock in standing if lock.lockid < lock_id]


def _describe_holders(locks: Sequence[Any]) -> str:
    holders = [
        f"lock {lock.lockid} of {lock.user} on {lock.hostname} ({lock.agentInfo or 'an unknown engine'}, since "
        f"{datetime.fromtimestamp((lock.acquiredat or lock.lastheartbeat) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        for lock in locks
    ]
    numbers = ", ".join(str(lock.lockid) for lock in locks)
    return (
        f"the table is locked in Hive: {', '.join(holders)}. Wait for this process, or end it. If it does not run any "
        "more, the metastore releases the lock after hive.txn.timeout, unless its housekeeping is off. To release it "
        f"yourself, run in the metastore's database: DELETE FROM HIVE_LOCKS WHERE HL_LOCK_EXT_ID IN ({numbers})."
    )
