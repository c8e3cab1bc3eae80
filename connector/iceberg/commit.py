"""The fenced commit: staged files become visible in one catalog commit, once.

The commit is a value that we build and send through `Catalog.commit_table`. PyIceberg's own transactions retry by
replaying property updates over another process's commit, and clean up after conflicts that did land.
"""

import logging
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from sqlalchemy.exc import SQLAlchemyError

from connector import object_store
from connector.errors import CommitUnknownError, RetryableError, UserError
from connector.iceberg import fence
from connector.iceberg.snapshot import SnapshotWriter
from connector.state import StagedCommit

log = logging.getLogger(__name__)

COMMITS_AT_ONCE: Final = 8  # tables; each waits for its catalog most of the time
RETRY_FOR: Final = 120.0  # seconds
FIRST_PAUSE: Final = 0.1  # seconds, doubled up to LONGEST_PAUSE, each drawn between half of it and all
LONGEST_PAUSE: Final = 10.0

REFUSED: Final = (CommitFailedException, ValueError)  # ValueError: the metadata moved under PyIceberg's own checks
UNKNOWN: Final = (RESTError, OSError, SQLAlchemyError, BotoCoreError, ClientError)
HOPELESS: Final = (BadRequestError, ForbiddenError, UnauthorizedError)


@dataclass(frozen=True)
class Landed:
    """A lineage's chain of staged commits that its table holds."""

    staged: tuple[StagedCommit, ...]
    attempts: int  # 0: the table held them already
    seconds: float


def finish(
    catalog: Catalog, staged: Sequence[StagedCommit], key_range: str | None, *, is_recovery: bool
) -> list[Landed]:
    """Make every staged commit part of its table, whatever of it has landed before: any number of times, with the same
    outcome. Tables are committed side by side. `key_range` is this process's own; see `fence.advanced`.

    Raises the first table's error, after the others have been finished.
    """
    by_table = groupby(sorted(staged, key=lambda commit: commit.path), key=lambda commit: commit.path)
    tables = [list(commits) for _, commits in by_table]
    with ThreadPoolExecutor(COMMITS_AT_ONCE, thread_name_prefix="commit") as pool:
        futures = [pool.submit(_finish_table, catalog, commits, key_range, is_recovery) for commits in tables]
    return [landed for future in futures for landed in future.result()]


def _finish_table(
    catalog: Catalog, staged: Sequence[StagedCommit], key_range: str | None, is_recovery: bool
) -> list[Landed]:
    by_lineage = groupby(sorted(staged, key=_lineage_order), key=lambda commit: commit.lineage)
    return [_finish_chain(catalog, fence.chain(list(commits)), key_range, is_recovery) for _, commits in by_lineage]


def _lineage_order(commit: StagedCommit) -> tuple[str, str]:
    return commit.lineage.state_key, commit.lineage.key_range


def _finish_chain(catalog: Catalog, chain: Sequence[StagedCommit], key_range: str | None, is_recovery: bool) -> Landed:
    began = time.monotonic()
    snapshots = SnapshotWriter()
    name = ".".join(chain[0].path)
    last: Exception | None = None
    for attempt in _attempts():
        try:
            # The fence is read from the very metadata whose main the commit asserts; every fence change moves main.
            table = _load(catalog, chain[-1])
            value = fence.recorded(table.properties, chain[0].lineage)
            rest = fence.unlanded(chain, value, is_recovery=is_recovery)
            if not rest:
                return Landed(tuple(chain), attempt, time.monotonic() - began)
            _commit(catalog, table, rest, snapshots, fence.advanced(table.properties, chain[-1], key_range))
            return Landed(tuple(chain), attempt + 1, time.monotonic() - began)
        except HOPELESS as error:
            raise UserError(f"table {name}: the catalog refuses the commit: {error}. Nothing was added.") from error
        except (*REFUSED, *UNKNOWN, RetryableError) as error:
            log.warning("table %s: commit attempt %d: %s: %s", name, attempt + 1, type(error).__name__, error)
            last = error
    seconds = time.monotonic() - began
    if isinstance(last, RetryableError):
        raise last
    if isinstance(last, REFUSED):
        raise RetryableError(
            f"table {name}: other writers were faster for {seconds:.0f} s ({last}). Its files stay staged in the "
            "task's state; reduce the other writers' commits."
        ) from last
    raise CommitUnknownError(
        f"table {name}: the catalog gave no answer for {seconds:.0f} s ({type(last).__name__}: {last}). Its files stay "
        "staged in the task's state, and the next session finishes them: check the catalog."
    ) from last


def _attempts() -> Iterator[int]:
    """Counts attempts, with growing pauses between them, until RETRY_FOR is over."""
    deadline = time.monotonic() + RETRY_FOR
    pause, attempt = FIRST_PAUSE, 0
    while True:
        yield attempt
        if time.monotonic() + pause > deadline:
            return
        time.sleep(pause * random.uniform(0.5, 1))
        pause, attempt = min(2 * pause, LONGEST_PAUSE), attempt + 1


def _load(catalog: Catalog, staged: StagedCommit) -> Table:
    try:
        table = catalog.load_table(staged.path)
    except NoSuchTableError:
        raise UserError(_replaced(staged, "is gone")) from None
    if str(table.metadata.table_uuid) != staged.table_uuid:
        raise UserError(_replaced(staged, "was dropped and created again"))
    return table


def _replaced(staged: StagedCommit, what: str) -> str:
    return (
        f"table {'.'.join(staged.path)} {what} while {staged.rows} rows were staged for it (its uuid was "
        f"{staged.table_uuid}). They were added nowhere. Bring the table back, or backfill the binding, which begins "
        "with a new table."
    )


def _commit(
    catalog: Catalog,
    table: Table,
    staged: Sequence[StagedCommit],
    snapshots: SnapshotWriter,
    properties: dict[str, str],
) -> None:
    """One attempt: the files' snapshot and the fence's value, both or neither."""
    with object_store.using(table.location()):
        snapshot = snapshots.append(table, staged)
    catalog.commit_table(
        table,
        (
            AssertTableUUID(uuid=uuid.UUID(staged[0].table_uuid)),
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=snapshot.parent_snapshot_id),
        ),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name=MAIN_BRANCH,
                type=SnapshotRefType.BRANCH,
                snapshot_id=snapshot.snapshot_id,
                max_ref_age_ms=None,
                max_snapshot_age_ms=None,
                min_snapshots_to_keep=None,
            ),
            SetPropertiesUpdate(updates=properties),
        ),
    )
