"""The faults, one and one question each, and the defects that they exist to catch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crash import backfill_moments, compaction_moments, moments, notification_moments, storage_moments, update_moments
from crash.lakes import Kind
from crash.ledger import BALANCES, BALANCES_REJECTED, POSTINGS, REJECTED
from crash.moments import killed_at
from crash.shards import Event
from crash.task import Task
from simulation.crash_defects import CRASH_DEFECTS

EVERYWHERE: Final = (Kind.LOCAL, Kind.REST, Kind.GLUE)
IN_A_BUCKET: Final = (Kind.GLUE, Kind.REST)
ON_DISK: Final = (Kind.LOCAL,)
IN_HIVE: Final = (Kind.HIVE,)


@dataclass(frozen=True)
class Scenario:
    """What happens to a task, and what is asked by it."""

    name: str
    fault: Callable[[Task], None]
    question: str
    on: Sequence[Kind] = EVERYWHERE
    without_defects_on: Sequence[Kind] = ()  # where it is held, too, but catches nothing else
    format_version: int = 2  # of all tables


@dataclass(frozen=True)
class Planted:
    """A defect, and a part of what is said when its scenario catches it."""

    scenario: str
    defect: str
    caught: str
    on: Sequence[Kind] = ()  # where it is only there


SCENARIOS: Final = (
    Scenario("baseline", moments.undisturbed, "is the harness wired right?"),
    Scenario("crash-at-flush", killed_at(Event.FLUSHED, 2), "lost or doubled?"),
    Scenario("crash-mid-store", moments.killed_in_mid_store, "is half-done work ever visible?"),
    Scenario("crash-before-commit", killed_at(Event.STARTED_COMMIT, 3), "does an uncommitted transaction ever show?"),
    Scenario("crash-after-commit", killed_at(Event.COMMITTED, 2), "is it applied by the successor?"),
    Scenario(
        "crash-while-applying",
        moments.killed_while_applying,
        "is each table's share applied once?",
        without_defects_on=IN_HIVE,
    ),
    Scenario(
        "crash-between-table-and-rejected-rows",
        moments.killed_between(POSTINGS, REJECTED, rejected=REJECTED),
        "is each table's share applied once?",
    ),
    Scenario(
        "crash-between-updated-table-and-rejected-rows",
        moments.killed_between(BALANCES_REJECTED, BALANCES, rejected=BALANCES_REJECTED),
        "is a version shown that a rejected one has replaced?",
    ),
    Scenario("acknowledged-state-lost", killed_at(Event.ACKNOWLEDGED, 2), "is the replay a no-op?"),
    Scenario("commit-response-lost", moments.answers_lost, "once? files kept?", without_defects_on=IN_HIVE),
    Scenario("zombie-at-acknowledge", moments.frozen_before_acknowledge, "refused by the table?"),
    Scenario("zombie-at-start-commit", moments.frozen_before_start_commit, "refused or harmless?"),
    Scenario("two-instances", moments.opened_twice, "does one win and the other stop?", without_defects_on=IN_HIVE),
    Scenario("foreign-writer", moments.others_write, "does it go on, exact?"),
    Scenario("snapshots-expired", moments.snapshots_expired, "does a replay still see the fence?"),
    Scenario("table-replaced", moments.table_replaced, "a clear error, nothing appended silently?"),
    Scenario(
        "staged-files-removed", moments.staged_files_removed, "a clear error, readable, and exact once they are back?"
    ),
    Scenario("split-during-store", moments.split_during_store, "once, and nothing lost?"),
    Scenario("split-after-commit-before-apply", moments.split_before_apply, "once, and nothing lost?"),
    Scenario("join-after-split", moments.join_after_split, "once, and nothing lost?"),
    Scenario("one-table-fails", moments.one_table_fails, "others current, and it exact once it recovers?"),
    Scenario("source-falls-quiet", moments.source_falls_quiet, "does what waits land without a transaction?"),
    Scenario("clock-ahead", moments.clocks_disagree, "does what follows it stay readable to Java?"),
    Scenario(
        "found-rows-compacted", update_moments.found_rows_change(update_moments.compacted), "one row for each key?"
    ),
    Scenario("found-rows-deleted", update_moments.found_rows_change(update_moments.deleted), "one row for each key?"),
    Scenario("found-snapshot-expired", update_moments.found_rows_change(update_moments.expired), "found again?"),
    Scenario("updates-wait", update_moments.updates_wait, "do Loads see what waits, and does it land at once?"),
    Scenario("two-ranges-update", update_moments.two_ranges_update, "one row for each key?"),
    Scenario(
        "crash-after-commit-in-version-3",
        killed_at(Event.COMMITTED, 3),
        "does a vector have all deleted rows?",
        (Kind.LOCAL, Kind.REST),
        format_version=3,
    ),
    Scenario(
        "two-ranges-update-in-version-3",
        update_moments.two_ranges_meet,
        "does a data file have one vector?",
        ON_DISK,
        format_version=3,
    ),
    Scenario("columns-converted", update_moments.columns_converted, "one row for each key, with its values?"),
    Scenario("compaction-killed", compaction_moments.compaction_killed, "is the table as before, or compacted?"),
    Scenario(
        "compaction-meets-transactions",
        compaction_moments.compaction_meets_transactions,
        "does a deleted row come back, is an update lost?",
    ),
    Scenario(
        "zombie-compaction", compaction_moments.compaction_outlives_its_session, "does it commit right, or not at all?"
    ),
    Scenario(
        "crash-before-notification",
        notification_moments.killed_before_it_is_told,
        "is the webhook told of each snapshot, in order, and of none before its commit?",
        ON_DISK,
    ),
    Scenario("backfill-killed", backfill_moments.backfill_killed, "old rows or new ones, and the new ones once?"),
    Scenario("zombie-of-before-a-backfill", backfill_moments.outlived_by_its_processes, "refused by the table?"),
    Scenario("storage-outage", storage_moments.storage_fails, "retried, then a clear error; nothing lost?"),
    Scenario("storage-slow", storage_moments.storage_is_slow, "is it waited for?", IN_A_BUCKET),
    Scenario("storage-refuses", storage_moments.storage_refuses, "retried, then a clear error?", IN_A_BUCKET),
    Scenario("storage-hangs", storage_moments.storage_hangs, "retried, then a clear error?", IN_A_BUCKET),
    Scenario("upload-fails-half-way", storage_moments.upload_fails_half_way, "a clear error?", IN_A_BUCKET),
    Scenario("disk-full", storage_moments.disk_full, "a clear error; nothing lost?", ON_DISK),
    Scenario("catalog-disk-full", storage_moments.catalog_disk_full, "exact once there is room?", ON_DISK),
)

# Each step of a backfill is also tried in the simulation, and one by one in tests/iceberg/test_backfill.py. Format
# version 3 is tried in the simulation, too, and in tests/iceberg/test_vectors_of_updates.py. So are compactions, whose
# worker has the lowest priority: beside three other test processes it may wait for minutes.
WITHOUT_CI: Final = frozenset(  # nor with a defect
    {
        "backfill-killed",
        "compaction-killed",
        "compaction-meets-transactions",
        "crash-after-commit-in-version-3",
        "crash-before-notification",  # tests/notifications plants its defects, and CI kills a process in tests/process
        "crash-at-flush",  # its defect is caught without a crash, and CI kills containers at each step in tests/image
        "crash-while-applying",  # CI kills an apply at each of its requests in tests/process
        "source-falls-quiet",  # tests/process/test_waiting_rows.py shows the same in one session
        "storage-hangs",
        "two-ranges-update-in-version-3",
        "zombie-compaction",
        "zombie-of-before-a-backfill",
    }
)

# CI plants these in the simulation: most under the same name, others as a similar defect with the name given here.
# --all also plants them here.
SIMULATED: Final[Mapping[str, str]] = {
    **{name: name for name in CRASH_DEFECTS},
    "finishes_one_table_of_a_binding": "rejected_rows_are_not_recovered",
    "forgets_recovery": "nothing_is_recovered",
    "forgets_what_waits": "the_backlog_forgets_what_failed",
    "loads_from_before_the_last_commit": "loads_are_answered_from_before_the_last_commit",
    "loads_without_what_waits": "loads_do_not_see_what_waits",
    "reads_the_fence_late": "the_fence_is_read_when_rows_are_staged",
    "takes_files_for_old": "nothing_is_new_after_a_snapshot_that_has_expired",
    "trusts_old_positions": "rows_that_have_moved_are_not_searched_again",
}

PLANTED: Final = (
    Planted("baseline", "advances_without_files", "lost"),
    Planted("baseline", "acknowledges_early", "lost|answers with an older table"),
    Planted("crash-at-flush", "acknowledges_early", "lost|answers with an older table"),
    Planted("crash-mid-store", "shows_while_storing", "but shown"),
    Planted("crash-before-commit", "shows_at_start_commit", "but shown"),
    Planted("crash-after-commit", "forgets_recovery", "lost|Loads returned"),
    Planted("crash-between-table-and-rejected-rows", "finishes_one_table_of_a_binding", "lost|follows|Loads returned"),
    # The replay doubles rows, or it misses a located file, which the first session has already deleted as committed.
    Planted("acknowledged-state-lost", "ignores_the_fence", "doubled|are gone: .*-located"),
    Planted("crash-while-applying", "ignores_the_fence", "doubled"),
    Planted("commit-response-lost", "ignores_the_fence", "doubled|lost|Loads returned"),
    Planted("commit-response-lost", "cleans_up_when_in_doubt", "unreadable"),
    Planted("zombie-at-acknowledge", "ignores_the_fence", "doubled"),
    Planted("zombie-at-start-commit", "reads_the_fence_late", "doubled"),
    Planted("two-instances", "derives_the_fence_from_the_checkpoint", "not refused"),
    Planted("foreign-writer", "keeps_the_fence_in_the_newest_summary", "lacks the last"),
    Planted("foreign-writer", "drops_what_others_appended", "lost"),
    Planted("snapshots-expired", "keeps_the_fence_in_summaries", "doubled"),
    Planted("table-replaced", "checks_no_uuid", "but shown"),
    Planted("staged-files-removed", "commits_without_looking", "unreadable"),
    Planted("split-during-store", "looks_at_its_own_range_only", "doubled"),
    Planted("split-after-commit-before-apply", "finishes_its_own_range_only", "lost|Loads returned"),
    Planted("join-after-split", "finishes_the_first_child_only", "lost|Loads returned"),
    Planted("one-table-fails", "forgets_what_waits", "lost|lacks the last"),
    Planted("source-falls-quiet", "retries_only_with_a_transaction", "still wait"),
    Planted("baseline", "loses_deletes", "doubled|Loads returned"),
    Planted("baseline", "loads_from_before_the_last_commit", "Loads returned"),
    Planted("baseline", "deletes_in_another_partition", "doubled|lost|Loads returned|has deletes of", ON_DISK),
    Planted("crash-between-updated-table-and-rejected-rows", "deletes_again", "lost|Loads returned"),
    Planted("found-rows-compacted", "trusts_old_positions", "doubled"),
    Planted("found-rows-deleted", "trusts_old_positions", "doubled"),
    Planted("found-snapshot-expired", "takes_files_for_old", "doubled"),
    Planted("updates-wait", "loads_without_what_waits", "Loads returned"),
    Planted("updates-wait", "loads_what_others_have_moved", "Loads returned"),
    Planted("two-ranges-update", "drops_deletes_of_others", "doubled"),
    Planted("crash-after-commit-in-version-3", "forgets_older_positions", "doubled|lost|Loads returned"),
    Planted("two-ranges-update-in-version-3", "keeps_replaced_vectors", "two vectors|unreadable"),
    Planted("columns-converted", "trusts_old_positions", "doubled"),
    Planted("compaction-killed", "keeps_only_what_it_has_read", "lost|Loads returned|follows"),
    Planted("compaction-meets-transactions", "carries_no_deletes_over", "doubled|Loads returned"),
    Planted("zombie-compaction", "takes_young_files_for_orphans", "unreadable|cannot be|is gone"),
    Planted("crash-before-notification", "tells_nothing_of_before", "told"),
    Planted("crash-before-notification", "tells_before_the_commit", "told before it was committed"),
    Planted("crash-before-notification", "tells_the_newest_first", "told"),
    Planted("backfill-killed", "adds_what_was_staged_before", "but shown|doubled"),
    Planted("backfill-killed", "records_the_owner_before_the_backfill", "but shown|doubled"),
    Planted("backfill-killed", "removes_the_rows_before_it_adds_others", "every row of before"),
    Planted("zombie-of-before-a-backfill", "adds_what_was_staged_before", "but shown|doubled|not refused"),
    Planted("storage-outage", "swallows_upload_errors", "lost"),
    # Java's server takes a snapshot that is older than its parent, and writes metadata that everybody can read.
    Planted("clock-ahead", "dates_by_its_own_clock", "older than its parent|unreadable|lost", (Kind.LOCAL, Kind.GLUE)),
    Planted("storage-slow", "waits_as_long_as_the_library", "cannot be reached"),
    # The next session's own check finds that the table lacks what the state says.
    Planted("storage-refuses", "forgets_what_waits", "lost|lacks the last"),
    Planted("storage-hangs", "swallows_upload_errors", "lost"),
    Planted("upload-fails-half-way", "swallows_upload_errors", "lost"),
    Planted("catalog-disk-full", "forgets_what_waits", "lost"),
    Planted("foreign-writer", "reuses_manifests", "sequence number"),
    Planted("foreign-writer", "forgets_the_version", "lost", (Kind.GLUE,)),
    Planted("baseline", "misplaces_row_groups", "Spark reads 0"),
    Planted("disk-full", "swallows_a_full_disk", "lost|Each loaded document must be stored once"),
)

# CI leaves these to the simulation, which is seen to find all that they exist to catch, but for a lost answer, a
# process that was replaced, and a split and a join.
_LEFT_TO_THE_SIMULATION: Final = (
    {scenario.name for scenario in SCENARIOS}
    - {planted.scenario for planted in PLANTED if planted.defect not in SIMULATED}
    - {"commit-response-lost", "zombie-at-acknowledge", "join-after-split"}
)
# Without a defect, these run with --all. CI shows what they ask in the test that is named.
_SHOWN_ELSEWHERE: Final = {
    "crash-between-updated-table-and-rejected-rows",  # a crash in the simulation, the versions in test_quarantine.py
    "snapshots-expired",  # other engines expire snapshots in the simulation
    "storage-outage",  # upload-fails-half-way, and tests/catalogs/test_stores_in_mid_run.py
    "updates-wait",  # the simulation, and tests/iceberg/test_many_updates.py
    "two-instances",  # zombie-at-acknowledge: there the first process stalls, and the second one takes over
}
# It runs each of the others on one catalog: on a server where that makes a difference. --all runs all on all.
_ON_REST: Final = {"commit-response-lost", "zombie-at-acknowledge"}
_ON_GLUE: Final = {"foreign-writer", "storage-slow", "upload-fails-half-way"}
IN_CI: Final[Mapping[Kind, Collection[str]]] = {
    Kind.LOCAL: {each.name for each in SCENARIOS}
    - WITHOUT_CI
    - _LEFT_TO_THE_SIMULATION
    - _SHOWN_ELSEWHERE
    - _ON_REST
    - _ON_GLUE,
    Kind.REST: _ON_REST,
    Kind.HIVE: (),
    Kind.GLUE: _ON_GLUE,
}
# Caught at the end of long scenarios, or planted in tests/notifications, too: these take their turns with --all.
CAUGHT_LATE: Final = frozenset(
    {
        "deletes_again",
        "derives_the_fence_from_the_checkpoint",
        "forgets_the_version",
        "keeps_the_fence_in_summaries",
        "tells_before_the_commit",  # tests/notifications plants it, too, and the next one
        "tells_the_newest_first",
        "waits_as_long_as_the_library",
    }
)
# Spark takes most of the time. The tables of the others are like these.
READ_BY_SPARK_IN_CI: Final = {"baseline"}
