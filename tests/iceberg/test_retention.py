"""Which snapshots go is decided by the table's own properties, and for the readers where these leave a choice."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from connector.iceberg.metadata.retention import GC_ENABLED, MAX_AGE, MAX_KEPT, MAX_REF_AGE, MIN_KEPT, Expired, find_due
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY

NOW: Final = 10_000
AGE: Final = {MAX_AGE: "1000"}


class Table:
    """A table's metadata in the making; the ids of snapshots are the times of their commits."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.refs: dict[str, SnapshotRef] = {}
        self._numbers = count(1)

    def commit(self, *times: int, branch: str | None = MAIN_BRANCH, parent: int | None = None, **summary: str) -> None:
        for time in times:
            head = self.refs.get(branch or "")
            self.snapshots.append(
                Snapshot(
                    snapshot_id=time,
                    parent_snapshot_id=head.snapshot_id if head else parent,
                    sequence_number=next(self._numbers),
                    timestamp_ms=time,
                    manifest_list=f"{time}.avro",
                    summary=Summary(Operation.APPEND, **summary),
                )
            )
            if branch:
                self.point(branch, time)

    def point(self, name: str, snapshot: int, kind: SnapshotRefType = SnapshotRefType.BRANCH, **retention: int) -> None:
        self.refs[name] = SnapshotRef(snapshot_id=snapshot, snapshot_ref_type=kind, **retention)

    def metadata(self, properties: Mapping[str, str]) -> TableMetadata:
        made: dict[str, Any] = {"snapshots": self.snapshots, "refs": self.refs, "properties": dict(properties)}
        empty = new_table_metadata(ID_ONLY, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///table")
        return empty.model_copy(update=made)

    def due(self, properties: Mapping[str, str] = AGE, now: int = NOW) -> list[int]:
        return list(self.expired(properties, now).snapshots)

    def expired(self, properties: Mapping[str, str] = AGE, now: int = NOW) -> Expired:
        return find_due(self.metadata(properties), now)


@pytest.fixture
def table() -> Table:
    return Table()


def test_snapshots_go_that_were_replaced_too_long_ago(table: Table) -> None:
    table.commit(1000, 2000, 9500, 9900)
    assert table.due() == [1000]
    assert table.due(now=12_000) == [1000, 2000, 9500]


def test_the_current_snapshot_stays_however_old_it_is(table: Table) -> None:
    table.commit(1000)
    assert table.due() == []


def test_a_reader_of_what_was_current_a_moment_ago_is_not_disturbed(table: Table) -> None:
    """By the time of its commit the snapshot is old; that of its successor is what counts."""
    table.commit(1000, 9999)
    assert table.due() == []


def test_as_many_as_the_table_says_stay(table: Table) -> None:
    table.commit(1000, 2000, 3000, 4000)
    assert table.due(AGE | {MIN_KEPT: "3"}) == [1000]


def test_a_batch_goes_once_the_oldest_is_a_quarter_late(table: Table) -> None:
    table.commit(1000, 2000, 2100, 2200, 2300)
    assert table.due(now=3250) == []
    assert table.due(now=3251) == [1000, 2000, 2100]


def test_no_more_young_snapshots_stay_than_the_table_says(table: Table) -> None:
    table.commit(*range(9900, 9910))
    assert table.due(AGE | {MAX_KEPT: "8"}) == [], "a quarter more may wait"
    assert table.due(AGE | {MAX_KEPT: "7"}) == [9900, 9901, 9902]
    assert table.due(AGE | {MAX_KEPT: "1", MIN_KEPT: "9"}) == [9900]
    table.point("release", 9900, SnapshotRefType.TAG)
    assert table.due(AGE | {MAX_KEPT: "7"}) == [9901, 9902]
    table.point("kept", 9905, max_snapshot_age_ms=1000)
    assert table.due(AGE | {MAX_KEPT: "3"}) == [9906]


def test_without_a_largest_number_only_the_age_counts(table: Table) -> None:
    """A user may have removed the number, to keep all young snapshots."""
    table.commit(*range(2600))
    age = {MAX_AGE: "3000"}
    assert table.due(age, now=2600) == []
    assert table.due(age | {MAX_KEPT: "2000"}, now=2600) == [*range(600)]


@pytest.mark.parametrize(
    "properties",
    [{}, {MAX_KEPT: "1"}, AGE | {GC_ENABLED: "false"}],
    ids=["no age", "a number without an age", "gc.enabled=false"],
)
def test_a_table_that_does_not_ask_for_it_keeps_all(table: Table, properties: dict[str, str]) -> None:
    table.commit(1000, 2000, 3000)
    assert table.due(properties) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (MAX_AGE, "a while"),
        (MAX_AGE, "-1"),
        (MIN_KEPT, "a few"),
        (MIN_KEPT, "0"),
        (MAX_KEPT, "0"),
        (MAX_REF_AGE, "-1"),
        (GC_ENABLED, "maybe"),
    ],
)
def test_a_property_that_makes_no_sense_expires_nothing(table: Table, name: str, value: str) -> None:
    table.commit(1000, 2000, 3000)
    with pytest.raises(ValueError, match=name) as error:
        table.due(AGE | {name: value})
    check_text("commit_errors", f"{name} of {value}", str(error.value))


def test_what_a_tag_names_stays(table: Table) -> None:
    table.commit(1000, 2000, 3000, 4000)
    table.point("release", 2000, SnapshotRefType.TAG)
    assert table.due() == [1000, 3000]


def test_a_branch_or_tag_goes_at_the_age_that_it_says_and_keeps_nothing_more(table: Table) -> None:
    table.commit(1000, 2000, 9000)
    table.point("release", 2000, SnapshotRefType.TAG, max_ref_age_ms=8000)
    table.point("audit", 1000, max_ref_age_ms=100_000)
    assert table.expired() == Expired(), "it is not older than the age"
    assert table.expired(now=10_001) == Expired([2000], ["release"])
    table.commit(1500, branch="audit")
    table.point("audit", 1500, max_ref_age_ms=1)
    assert table.expired(now=10_001) == Expired([1000, 2000, 1500], ["release", "audit"])


def test_the_table_may_say_the_age_of_branches_and_tags_that_say_none(table: Table) -> None:
    table.commit(1000, 2000)
    table.point("release", 1000, SnapshotRefType.TAG)
    table.point("long", 1000, SnapshotRefType.TAG, max_ref_age_ms=100_000)
    table.point("young", 2000, SnapshotRefType.TAG)
    assert table.expired(AGE | {MAX_REF_AGE: "8500"}) == Expired([], ["release"])
    assert table.expired({MAX_REF_AGE: "8500"}) == Expired(), "the table does not ask for expiry"


def test_the_main_branch_stays_and_so_does_a_reference_without_its_snapshot(table: Table) -> None:
    table.commit(1000)
    table.point(MAIN_BRANCH, 1000, max_ref_age_ms=1)
    table.point("lost", 4711, SnapshotRefType.TAG, max_ref_age_ms=1)
    assert table.expired(AGE | {MAX_REF_AGE: "1"}) == Expired()


def test_a_branch_keeps_its_head_and_what_is_young_in_it(table: Table) -> None:
    table.commit(1000, 2000)
    table.point("audit", 2000)
    table.commit(3000, 4000)
    table.commit(3500, 9500, 9600, branch="audit")
    assert table.due() == [1000, 2000, 3000]


def test_a_branch_may_have_a_retention_of_its_own(table: Table) -> None:
    table.commit(1000, 2000, 3000, 4000, 5000)
    table.point("kept", 4000, min_snapshots_to_keep=2)
    table.point("long", 2000, max_snapshot_age_ms=100_000)
    assert table.due() == []
    table.refs.pop("long")
    assert table.due() == [1000, 2000]


def test_what_was_rolled_back_goes_by_its_age(table: Table) -> None:
    table.commit(1000, 2000, 9700)
    table.point(MAIN_BRANCH, 1000)
    assert table.due() == [2000]


def test_what_is_staged_to_be_audited_stays(table: Table) -> None:
    table.commit(1000)
    table.commit(2000, branch=None, parent=1000, **{"wap.id": "monday"})
    table.commit(3000)
    assert table.due() == [1000]


def test_what_was_staged_goes_once_it_was_published(table: Table) -> None:
    """Spark publishes it as another snapshot, which names it."""
    table.commit(1000)
    table.commit(2000, branch=None, parent=1000, **{"wap.id": "monday"})
    table.commit(2100, branch=None, parent=1000, **{"wap.id": "tuesday"})
    table.commit(3000)
    table.commit(9900, parent=None, **{"published-wap-id": "monday", "source-snapshot-id": "2000"})
    assert table.due() == [1000, 2000]
    table.point(MAIN_BRANCH, 3000)
    assert table.due() == [1000], "after a rollback it may be published again"


def test_what_was_published_goes_with_the_snapshot_that_says_so(table: Table) -> None:
    table.commit(1000)
    table.commit(9700, branch=None, parent=1000, **{"wap.id": "monday"})
    table.commit(9800)
    table.commit(9810, parent=None, **{"published-wap-id": "monday", "source-snapshot-id": "9700"})
    assert table.due() == []
    table.commit(9900)
    assert table.due(AGE | {MAX_KEPT: "2"}) == [1000, 9800]
    assert table.due(AGE | {MAX_KEPT: "1"}) == [1000, 9700, 9800, 9810]
