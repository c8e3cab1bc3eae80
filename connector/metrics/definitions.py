"""The metrics: names, units, meanings and labels. docs/metrics.md says what moves each, and which alarm uses it.

Names follow OpenMetrics: the unit comes last, and counters get the suffix _total when they are printed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "materialize_iceberg_"
TABLE: Final = ("table",)
ACTION: Final = ("action",)
REASON: Final = ("reason",)

COMMIT_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TRANSACTION_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
ROWS: Final = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
MAINTENANCE_SECONDS: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 1800.0)


class Kind(StrEnum):
    """How the values of a metric behave."""

    COUNTER = "counter"  # only grows, from 0 at the start of the process
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric. All have the label `task` too."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...]
    unit: str
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        ALL.append(self)


ALL: Final[list[Metric]] = []


def _counter(name: str, meaning: str, labels: tuple[str, ...] = TABLE, unit: str = "") -> Metric:
    return Metric(name, Kind.COUNTER, meaning, labels, unit)


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = TABLE, unit: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, meaning, labels, unit)


def _histogram(
    name: str, meaning: str, buckets: tuple[float, ...], labels: tuple[str, ...] = TABLE, unit: str = "seconds"
) -> Metric:
    return Metric(name, Kind.HISTOGRAM, meaning, labels, unit, buckets)


ROWS_RECEIVED: Final = _counter("rows_received", "Rows that arrived from the runtime.")
BYTES_RECEIVED: Final = _counter("received_bytes", "Bytes of the lines of these rows.", unit="bytes")
LOADS: Final = _counter("loads", "Keys whose documents the runtime asked for.")
LOADS_FOUND: Final = _counter("loads_found", "Documents that were found for these keys.")
ROWS_STAGED: Final = _counter("rows_staged", "Rows in durable data files, ready to be committed.")
BYTES_STAGED: Final = _counter("staged_bytes", "Bytes of these data files.", unit="bytes")
ROWS_REJECTED: Final = _counter("rows_rejected", "Rows that went to the table of rejected rows.")
VALUES_NULLED: Final = _counter("values_nulled", "Values that became null because they do not fit their column.")
VALUES_CLAMPED: Final = _counter("values_clamped", "Dates that were clamped to the years 1 to 9999.")
ROWS_COMMITTED: Final = _counter("rows_committed", "Rows that this process has added to tables.")
ROWS_DELETED: Final = _counter("rows_deleted", "Older versions of rows that these commits deleted.")
DATA_FILES: Final = _counter("data_files", "Data files that were committed.")
DATA_BYTES: Final = _counter("data_file_bytes", "Bytes of these data files.", unit="bytes")
DELETE_FILES: Final = _counter("delete_files", "Delete files that were committed.")
DELETE_BYTES: Final = _counter("delete_file_bytes", "Bytes of these delete files.", unit="bytes")
COMMITS: Final = _counter("commits", "Commits that added rows to a table.")
COMMIT_DURATION: Final = _histogram(
    "commit_duration_seconds", "How long these commits took, with all attempts.", COMMIT_SECONDS
)
RETRIES: Final = _counter("commit_retries", "Attempts to commit that failed.")
CONFLICTS: Final = _counter(
    "commit_conflicts", "Attempts to commit that failed because another writer committed first."
)
OUTCOMES_UNKNOWN: Final = _counter("commit_outcomes_unknown", "Attempts to commit whose outcome was unknown.")
COMMITS_FAILED: Final = _counter("commits_failed", "Commits that failed with all attempts. Their rows stay staged.")
COMMITS_FENCED: Final = _counter("commits_fenced", "Commits that failed because another process has taken over.")
COMMIT_FAILING: Final = _gauge("commit_failing", "1 if the last commit of the table failed, 0 otherwise.")
SIGN_IN_REFUSED: Final = _gauge("sign_in_refused", "1 if the sign-in was refused at the last commit, 0 otherwise.")
LAST_COMMIT: Final = _gauge("last_commit_timestamp_seconds", "When the last commit succeeded.", unit="seconds")
OLDEST_WAITING: Final = _gauge(
    "oldest_waiting_row_timestamp_seconds",
    "When the oldest row that is not in the table yet was received. Absent if no row waits.",
    unit="seconds",
)
WAITING_TRANSACTIONS: Final = _gauge("waiting_transactions", "Staged commits that wait for the table.")
WAITING_ROWS: Final = _gauge("waiting_rows", "Rows of these staged commits.")
WAITING_BYTES: Final = _gauge("waiting_bytes", "Bytes of the data files of these staged commits.", unit="bytes")
WAITING_TRANSACTIONS_LIMIT: Final = _gauge(
    "waiting_transactions_limit", "The most staged commits that may wait for a table before the task stops.", ()
)
WAITING_BYTES_LIMIT: Final = _gauge(
    "waiting_limit_bytes", "The most bytes of their data files that may wait for a table.", (), "bytes"
)
WAITING_STATE: Final = _gauge(
    "waiting_state_bytes", "Bytes of the task's state that the commits of tables that refuse them take.", (), "bytes"
)
WAITING_STATE_LIMIT: Final = _gauge(
    "waiting_state_limit_bytes", "The most bytes of the task's state that they may take.", (), "bytes"
)
TABLE_SNAPSHOTS: Final = _gauge("table_snapshots", "Snapshots of the table after the last commit.")
TABLE_DATA_FILES: Final = _gauge("table_data_files", "Data files of the table after the last commit.")
TABLE_DELETE_FILES: Final = _gauge("table_delete_files", "Delete files of the table after the last commit.")
MAINTENANCE_RUNS: Final = _counter("maintenance_runs", "Maintenance tasks that have ended.", ACTION)
MAINTENANCE_FAILURES: Final = _counter("maintenance_failures", "Maintenance tasks that have failed.", ACTION)
MAINTENANCE_DURATION: Final = _histogram(
    "maintenance_duration_seconds", "How long these maintenance tasks took.", MAINTENANCE_SECONDS, ACTION
)
MAINTENANCE_FILES: Final = _counter(
    "maintenance_files", "Files that maintenance has deleted or rewritten.", (*TABLE, *ACTION)
)
MAINTENANCE_BYTES: Final = _counter(
    "maintenance_file_bytes", "Bytes of the files that maintenance has rewritten.", (*TABLE, *ACTION), "bytes"
)
COMPACTION_DEBT: Final = _gauge(
    "compaction_debt_bytes", "Bytes of data files that are still to be compacted.", unit="bytes"
)
COMPACTION_COMMITS: Final = _counter(
    "compaction_checked_commits", "Commits after which compaction has looked at the table's files."
)
TRANSACTIONS: Final = _counter("transactions", "Transactions that were acknowledged.", ())
TRANSACTION_ROWS: Final = _histogram("transaction_rows", "Rows of a staged transaction, of all tables.", ROWS, (), "")
LOADS_DURATION: Final = _histogram(
    "loads_duration_seconds", "From the first Load of a transaction to its last answer.", TRANSACTION_SECONDS, ()
)
SEARCH_DURATION: Final = _histogram(
    "search_duration_seconds", "From the flush of a transaction with Loads to its last answer.", TRANSACTION_SECONDS, ()
)
STAGING_DURATION: Final = _histogram(
    "staging_duration_seconds",
    "From the first row of a transaction until all of its rows were durable.",
    TRANSACTION_SECONDS,
    (),
)
HELD: Final = _counter("held_seconds", "Time for which acknowledgements were held back.", (), "seconds")
HELD_UNTIL: Final = _gauge(
    "held_until_timestamp_seconds",
    "When the acknowledgement that is held back will be sent at the latest, or when the last one was sent.",
    (),
    "seconds",
)
LAST_RECEIPT: Final = _gauge("last_receipt_timestamp_seconds", "When the last row arrived.", (), "seconds")
SPOOL: Final = _gauge("spool_bytes", "Bytes of rows on the local disk, not in a data file yet.", (), "bytes")
SPOOL_LIMIT: Final = _gauge("spool_limit_bytes", "The most bytes that the spool takes.", (), "bytes")
SPOOL_FULL: Final = _counter(
    "spool_full_seconds", "Time for which input was not read because the spool was full.", (), "seconds"
)
NOTIFICATIONS: Final = _counter("notifications", "Messages that the webhook has accepted.")
NOTIFICATION_FAILURES: Final = _counter("notification_failures", "Attempts to post a message that failed.")
OLDEST_NOTIFICATION: Final = _gauge(
    "oldest_waiting_notification_timestamp_seconds",
    "When the oldest commit was made about which the webhook has accepted no message yet. Absent if no message waits.",
    unit="seconds",
)
REFRESHES: Final = _counter("credential_refreshes", "Credentials that were fetched or refreshed.", ())
REFRESH_FAILURES: Final = _counter("credential_refresh_failures", "Attempts to fetch credentials that failed.", REASON)
MEMORY: Final = _gauge("memory_bytes", "Memory of the session's processes and temporary files.", ("process",), "bytes")
MEMORY_LIMIT: Final = _gauge(
    "memory_limit_bytes", "The memory limit of the container. Absent without one.", (), "bytes"
)
SESSION_START: Final = _gauge("session_start_timestamp_seconds", "When the session began to open.", (), "seconds")
BUILD: Final = _gauge("build_info", "1, with the versions as labels.", ("version", "python", "spark", "pyiceberg"))
