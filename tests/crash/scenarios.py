"""The faults, one and one question each, and the defects that they exist to catch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crash import moments
from crash.moments import killed_at
from crash.shards import Event
from crash.task import Task


@dataclass(frozen=True)
class Scenario:
    """What happens to a task, and what is asked by it."""

    name: str
    fault: Callable[[Task], None]
    question: str


@dataclass(frozen=True)
class Planted:
    """A defect, and a part of what is said when its scenario catches it."""

    scenario: str
    defect: str
    caught: str


SCENARIOS: Final = (
    Scenario("baseline", moments.undisturbed, "is the harness wired right?"),
    Scenario("crash-at-flush", killed_at(Event.FLUSHED, 2), "lost or doubled?"),
    Scenario("crash-mid-store", moments.killed_in_mid_store, "is half-done work ever visible?"),
    Scenario("crash-before-commit", killed_at(Event.STARTED_COMMIT, 3), "does an uncommitted transaction ever show?"),
    Scenario("crash-after-commit", killed_at(Event.COMMITTED, 2), "is it applied by the successor?"),
    Scenario("crash-while-applying", moments.killed_while_applying, "is each table's share applied once?"),
    Scenario("acknowledged-state-lost", killed_at(Event.ACKNOWLEDGED, 2), "is the replay a no-op?"),
    Scenario("commit-response-lost", moments.answers_lost, "once? files kept?"),
    Scenario("zombie-at-acknowledge", moments.frozen_before_acknowledge, "refused by the table?"),
    Scenario("zombie-at-start-commit", moments.frozen_before_start_commit, "refused or harmless?"),
    Scenario("two-instances", moments.opened_twice, "does one win and the other stop?"),
    Scenario("foreign-writer", moments.others_write, "does it go on, exact?"),
    Scenario("snapshots-expired", moments.snapshots_expired, "does a replay still see the fence?"),
    Scenario("table-replaced", moments.table_replaced, "a clear error, nothing appended silently?"),
    Scenario("split-during-store", moments.split_during_store, "once, and nothing lost?"),
    Scenario("split-after-commit-before-apply", moments.split_before_apply, "once, and nothing lost?"),
    Scenario("join-after-split", moments.join_after_split, "once, and nothing lost?"),
    Scenario("one-table-fails", moments.one_table_fails, "others current, and it exact once it recovers?"),
    Scenario("storage-outage", moments.storage_fails, "retried, then a clear error; nothing lost?"),
    Scenario("disk-full", moments.disk_full, "a clear error; nothing lost?"),
)

PLANTED: Final = (
    Planted("baseline", "advances_without_files", "lost"),
    Planted("crash-at-flush", "acknowledges_early", "lost"),
    Planted("crash-mid-store", "shows_while_storing", "but shown"),
    Planted("crash-before-commit", "shows_at_start_commit", "but shown"),
    Planted("crash-after-commit", "forgets_recovery", "lost"),
    Planted("crash-while-applying", "ignores_the_fence", "doubled"),
    Planted("acknowledged-state-lost", "ignores_the_fence", "doubled"),
    Planted("commit-response-lost", "ignores_the_fence", "doubled|lost"),
    Planted("commit-response-lost", "cleans_up_when_in_doubt", "unreadable"),
    Planted("zombie-at-acknowledge", "ignores_the_fence", "doubled"),
    Planted("zombie-at-start-commit", "reads_the_fence_late", "doubled"),
    Planted("two-instances", "derives_the_fence_from_the_checkpoint", "not refused"),
    Planted("foreign-writer", "keeps_the_fence_in_the_newest_summary", "taken over"),
    Planted("foreign-writer", "drops_what_others_appended", "lost"),
    Planted("snapshots-expired", "keeps_the_fence_in_summaries", "doubled"),
    Planted("table-replaced", "checks_no_uuid", "but shown"),
    Planted("split-during-store", "looks_at_its_own_range_only", "doubled"),
    Planted("split-after-commit-before-apply", "finishes_its_own_range_only", "lost"),
    Planted("join-after-split", "finishes_the_first_child_only", "lost"),
    Planted("one-table-fails", "forgets_what_waits", "lost"),
    Planted("storage-outage", "swallows_upload_errors", "lost"),
    Planted("disk-full", "swallows_a_full_disk", "lost"),
)
