"""The connector, with faults at its boundaries and, where the environment names one, with a planted defect."""

from typing import Final

from connector import __main__ as command
from connector.iceberg import session_views
from connector.iceberg.commits import commit, retry_commits
from connector.session import backlog
from connector.storage import store_properties
from crash import boundaries, compacting, defects, storage
from crash.faults import IMPATIENT, Faults, swap

# Seconds, where the connector itself is more patient.
RETRY_FOR: Final = 4.0
PAUSE: Final = 0.2
S3_TIME_LIMIT: Final = "2"

if __name__ == "__main__":
    if Faults.of_this_process().strikes(IMPATIENT):
        swap(store_properties, "S3_TIME_LIMITS", dict.fromkeys(store_properties.S3_TIME_LIMITS, S3_TIME_LIMIT))
    defects.plant()
    swap(commit, "RETRY_FOR", RETRY_FOR)
    swap(retry_commits, "RETRY_FOR", RETRY_FOR)  # of Open, and of maintenance
    swap(session_views, "RETRY_FOR", RETRY_FOR)
    swap(backlog, "FIRST_PAUSE", PAUSE)
    boundaries.guard_catalog()
    boundaries.guard_commits()
    boundaries.guard_backfills()
    boundaries.guard_clock()
    storage.guard()
    boundaries.guard_stores()
    compacting.guard_compaction()
    command.run()
