"""Facts for metrics: each module tells what happened once for a transaction, a block or an event, never for a row.

Any thread may report one. Without metrics, facts are dropped. To make one costs nothing that can be measured. A module
that would have to read or to count for it first looks whether `report` is `drop`.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec


class Fact(msgspec.Struct, frozen=True):
    """What happened, in numbers."""


class OpenedSession(Fact, frozen=True):
    """A session has opened, with these tables. Their metrics begin with 0."""

    tables: tuple[str, ...]  # all of them, also those of rejected rows
    max_transactions: int  # that may wait for one table before the task stops
    max_size: int  # bytes of data files that may


class ReceivedRows(Fact, frozen=True):
    """Rows of the open transaction have arrived. `since` is when its first row came, in seconds since the epoch."""

    table: str
    rows: int
    size: int  # bytes of the lines
    since: float


class AnsweredLoads(Fact, frozen=True):
    """The runtime asked for the documents of keys, and got those that were found."""

    table: str
    asked: int
    found: int


class LoadedTransaction(Fact, frozen=True):
    """All Loads of a transaction are answered."""

    seconds: float  # since its first Load
    search_seconds: float  # since its flush


class TreatedValues(Fact, frozen=True):
    """Values that do not fit their column were clamped, or became null, or rows were rejected because of them."""

    table: str
    treatment: str
    count: int


class StagedRows(Fact, frozen=True):
    """A staged commit waits for its table. `commit_id` is its fence value."""

    table: str
    commit_id: str
    rows: int
    size: int  # bytes of the data files
    is_recovered: bool = False  # an earlier session has staged it


class WaitingState(Fact, frozen=True):
    """How much of the connector state the commits of all tables that refuse them take."""

    size: int  # bytes
    limit: int  # bytes: beyond it, the task stops


class EndedTransaction(Fact, frozen=True):
    """The open transaction has ended: all of its rows are staged, or were rejected."""

    rows: int
    seconds: float  # since its first row


class CommittedRows(Fact, frozen=True):
    """One commit has added the rows of staged commits to a table."""

    table: str
    rows: int
    files: int
    size: int  # bytes of the data files
    deleted_rows: int
    delete_files: int
    delete_size: int  # bytes of the delete files
    seconds: float


class EndedCommits(Fact, frozen=True):
    """Staged commits wait no more: their table has them, or a backfill has made them void."""

    table: str
    commit_ids: tuple[str, ...]


class AttemptFailure(StrEnum):
    """Why an attempt to commit has failed, before the next one."""

    CONFLICT = "conflict"  # another writer committed first
    UNKNOWN = "unknown"  # no usable answer: the commit may be done
    REFUSED = "refused"


class FailedAttempt(Fact, frozen=True):
    """An attempt to commit has failed."""

    table: str
    reason: AttemptFailure


class CommitFailure(StrEnum):
    """Why a table does not get its staged commits."""

    FENCED = "fenced"
    SIGN_IN = "sign_in"
    OTHER = "other"


class FailedCommit(Fact, frozen=True):
    """All attempts of a commit have failed: its rows stay staged."""

    table: str
    reason: CommitFailure


class TableState(Fact, frozen=True):
    """What a table consists of after a commit. Maintenance keeps these numbers small."""

    table: str
    snapshots: int
    data_files: int
    delete_files: int


class HeldTransaction(Fact, frozen=True):
    """The acknowledgement of a transaction is held back. Until it is sent, no further row can arrive."""

    until: float  # when it will be sent at the latest, in seconds since the epoch


class AcknowledgedTransaction(Fact, frozen=True):
    """A transaction was acknowledged, after it was held back for the upload interval."""

    held: float  # seconds
    has_rows: bool


class SpoolSize(Fact, frozen=True):
    """How much of the spool is used."""

    size: int  # bytes
    limit: int  # bytes


class FullSpool(Fact, frozen=True):
    """The spool was full: stdin was not read for this time."""

    seconds: float


# The actions of maintenance that have files to count.
EXPIRE_SNAPSHOTS: Final = "expire_snapshots"
COMPACT_DATA_FILES: Final = "compact_data_files"
REMOVE_ORPHAN_FILES: Final = "remove_orphan_files"


class MaintenanceRun(Fact, frozen=True):
    """A maintenance task of a table has ended."""

    table: str
    action: str
    seconds: float
    has_failed: bool


class MaintainedFiles(Fact, frozen=True):
    """Maintenance has deleted or rewritten files of a table."""

    table: str
    action: str
    files: int
    size: int = 0  # bytes; 0 if nobody knows them


class CompactionDebt(Fact, frozen=True):
    """How much of a table is still to be compacted, after its files were looked at."""

    table: str
    size: int  # bytes of data files
    commits: int  # since its files were looked at before


class Delivery(Fact, frozen=True):
    """A message about a table was posted to the webhook."""

    table: str
    has_failed: bool


class WaitingNotifications(Fact, frozen=True):
    """How long messages about a table wait for the webhook. `since` is the time of the commit that the oldest one is
    about, in seconds since the epoch, or None if no message waits."""

    table: str
    since: float | None


class RefreshFailure(StrEnum):
    """Why credentials could not be fetched."""

    REFUSED = "refused"  # the server does not accept what signs in
    NO_ANSWER = "no_answer"  # or none that can be used


class RefreshedCredentials(Fact, frozen=True):
    """Credentials were fetched, or the attempt has failed."""

    failure: RefreshFailure | None = None


drop: Final[Callable[[Fact], None]] = deque[Fact](maxlen=0).append
# Tells the metrics what happened. A session that publishes metrics sets it.
report: Callable[[Fact], None] = drop
