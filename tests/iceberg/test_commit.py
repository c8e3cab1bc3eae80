"""The fenced commit against a real catalog: once, whatever the catalog answers and whoever else writes."""

import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServiceUnavailableError,
)
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from requests import HTTPError, Response
from sqlalchemy.exc import OperationalError

from connector.host.errors import CommitUnknownError, ConnectorError, FencedError, RetryableError, UserError
from connector.host.logs import FIELDS
from connector.iceberg.commits import commit, fence
from connector.iceberg.commits.fence import WriterFence
from connector.iceberg.commits.outcomes import Committed, Failed
from connector.iceberg.metadata.manifests import manifests_of
from connector.model.state import ColumnStatistics, DataFile, StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import WrittenFile
from support.bindings import PATH
from support.planted_faults import Fault, Send, do_first, lose_answer, no_fault, plant, refuse
from support.snapshots import check_text
from support.tables import cut_manifest, cut_manifest_list, local_catalog, record_property

WHOLE = "00000000-ffffffff"
LEFT, RIGHT = "00000000-7fffffff", "80000000-ffffffff"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
FIRST_PAUSE: Final = commit.FIRST_PAUSE
ARROW_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA)
    return catalog


def stage(
    catalog: Catalog,
    ids: Sequence[int],
    prev: str | None = None,
    key_range: str = WHOLE,
    state_key: str = "orders.v1",
    waiting: Sequence[StagedCommit] = (),
) -> StagedCommit:
    """Write a data file as a task would, and name it as startCommit does; without a `prev` as the first of a session
    that opens now."""
    table = catalog.load_table(PATH)
    writer = WriterId("acme/orders", state_key, key_range)
    writer_fence = WriterFence.begin(table.properties, writer, waiting)
    path = Path(table.location().removeprefix("file://")) / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}, schema=ARROW_SCHEMA), path)
    statistics = ColumnStatistics(1, 40, len(ids), 0, min(ids).to_bytes(8, "little"), max(ids).to_bytes(8, "little"))
    return StagedCommit(
        writer=writer,
        prev=writer_fence.prev if prev is None else prev,
        next=fence.new_value(),
        path=PATH,
        table_uuid=str(table.metadata.table_uuid),
        spec_id=0,
        schema_id=0,
        files=(DataFile(path.as_uri(), len(ids), path.stat().st_size, (4,), (statistics,)),),
        known=writer_fence.known,
    )


def finish(catalog: Catalog, *staged: StagedCommit, is_recovery: bool = False) -> None:
    commit.commit_all_or_raise(catalog, [replace(commit, is_recovered=is_recovery) for commit in staged])


def ids(catalog: Catalog) -> list[int]:
    return sorted(catalog.load_table(PATH).scan().to_arrow()["id"].to_pylist())


def foreign_append(catalog: Catalog, *values: int) -> None:
    catalog.load_table(PATH).append(pa.table({"id": list(values)}))


def record_summary(catalog: Catalog, summary: dict[str, str]) -> None:
    """Let the current snapshot have this summary, as if another engine had written it."""
    table = catalog.load_table(PATH)
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    metadata["snapshots"][-1]["summary"] = {"operation": "append", **summary}
    file.write_text(json.dumps(metadata))


def unprocessable(_: Send) -> Any:
    """As PyIceberg tells HTTP status 422."""
    response = Response()
    response.status_code = 422
    raise RESTError("Unprocessable: the format version is not supported here") from HTTPError(response=response)


REFUSED: Final = refuse(ServiceUnavailableError("503"))
CONFLICTING: Final = refuse(CommitFailedException("branch main has changed"))
BROKEN: Final = refuse(ValueError("Snapshot id 5 is unknown"))


def test_rows_and_fence_become_visible_in_one_snapshot(catalog: Catalog) -> None:
    staged = stage(catalog, [1, 2])
    finish(catalog, staged)
    table = catalog.load_table(PATH)
    assert ids(catalog) == [1, 2]
    assert fence.read_value(table.properties, staged.writer) == staged.next
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary["flow.fence"] == staged.next
    assert snapshot.summary["total-records"] == "2"


def test_an_answer_without_the_snapshot_is_no_commit(catalog: Catalog) -> None:
    """A proxy may answer with the table as it was."""
    staged, old = stage(catalog, [1]), catalog.load_table(PATH)
    plant(catalog, [lambda _: SimpleNamespace(metadata=old.metadata)])
    finish(catalog, staged)
    assert ids(catalog) == [1]


@pytest.mark.parametrize("total", ["1.0", "", "many", "-1"])
def test_a_total_of_another_writer_that_is_no_number_is_counted_or_left_out(
    catalog: Catalog, tmp_path: Path, total: str
) -> None:
    foreign_append(local_catalog(tmp_path), 9)
    table = catalog.load_table(PATH)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["snapshots"][-1]["summary"] |= {"total-records": total, "total-files-size": total}
    path.write_text(json.dumps(metadata))
    finish(catalog, stage(catalog, [1]))
    assert ids(catalog) == [1, 9]
    snapshot = catalog.load_table(PATH).current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary["total-records"] == "2"
    assert snapshot.summary["total-files-size"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.metadata.previous-versions-max", "abc"),
        ("write.py-location-provider.impl", "this.Names"),
        ("encryption.key-id", "key-1"),
        ("write.metadata.path", "meta"),
        ("write.data.path", "file:///lake/orders#1"),
        ("write.object-storage.enabled", "perhaps"),
        ("schema.name-mapping.default", "id"),
        ("flow.converted.1", "two"),
        ("flow.converted.2", "2"),
    ],
)
def test_a_table_property_that_no_commit_can_follow_is_told_at_the_first_attempt(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    staged = stage(catalog, [1])
    record_property(catalog.load_table(PATH), name, value)
    with pytest.raises(UserError) as told:
        finish(catalog, staged, is_recovery=True)
    check_text("commit_errors", f"a property that no commit can follow: {name}", str(told.value))
    assert "commit attempt" not in caplog.text
    assert "this" not in sys.modules


def test_finishing_again_changes_nothing(catalog: Catalog) -> None:
    staged = stage(catalog, [1])
    finish(catalog, staged)
    before = catalog.load_table(PATH).metadata
    finish(catalog, staged)
    finish(catalog, staged, is_recovery=True)
    assert catalog.load_table(PATH).metadata == before


def test_a_chain_lands_in_one_snapshot_whatever_of_it_has_landed(catalog: Catalog) -> None:
    first = stage(catalog, [1])
    second = stage(catalog, [2], prev=first.next)
    third = stage(catalog, [3], prev=second.next)
    finish(catalog, first)
    finish(catalog, third, first, second, is_recovery=True)
    assert ids(catalog) == [1, 2, 3]
    assert len(catalog.load_table(PATH).snapshots()) == 2


def test_a_stale_process_is_refused_by_the_table(catalog: Catalog) -> None:
    stale, successor = stage(catalog, [1]), stage(catalog, [2])
    finish(catalog, successor)
    with pytest.raises(FencedError):
        finish(catalog, stale)
    assert ids(catalog) == [2]


def test_a_stale_process_is_refused_in_the_middle_of_a_conflict(catalog: Catalog) -> None:
    """Its successor commits between its look at the table and its commit: a blind retry would append twice."""
    stale, successor = stage(catalog, [1]), stage(catalog, [2])
    plant(catalog, [do_first(lambda: finish(catalog, successor))])
    with pytest.raises(FencedError):
        finish(catalog, stale)
    assert ids(catalog) == [2]


def test_other_writers_are_met_by_looking_again(catalog: Catalog) -> None:
    first = stage(catalog, [1])
    finish(catalog, first)
    foreign_append(catalog, 100)
    second = stage(catalog, [2], prev=first.next)
    overtaken = do_first(lambda: foreign_append(catalog, 200))
    plant(catalog, [overtaken, no_fault, overtaken])
    finish(catalog, second)
    assert ids(catalog) == [1, 2, 100, 200, 200]


def test_a_retried_commit_files_its_rows_under_its_own_sequence_number(catalog: Catalog) -> None:
    """Under an older one, another engine's equality deletes would hide them."""
    plant(catalog, [do_first(lambda: foreign_append(catalog, 100))])
    finish(catalog, stage(catalog, [1]))
    table = catalog.load_table(PATH)
    snapshot = table.current_snapshot()
    assert snapshot
    numbers = {manifest.added_snapshot_id: manifest.sequence_number for manifest in snapshot.manifests(table.io)}
    assert numbers[snapshot.snapshot_id] == snapshot.sequence_number == 2


@pytest.mark.parametrize(
    "answer",
    [
        CommitStateUnknownException("500"),
        ServiceUnavailableError("503"),
        ConnectionError("reset by peer"),
        TimeoutError("no answer"),
        OperationalError("UPDATE iceberg_tables", {}, Exception("the database has gone away")),
        CommitFailedException("a conflict with our own commit, sent twice"),
    ],
)
def test_a_commit_that_landed_under_a_lost_answer_is_not_repeated(catalog: Catalog, answer: Exception) -> None:
    staged = stage(catalog, [1, 2])
    plant(catalog, [lose_answer(answer)])
    finish(catalog, staged)
    assert ids(catalog) == [1, 2]
    assert len(catalog.load_table(PATH).snapshots()) == 1


@pytest.mark.parametrize("kind", ["-m0.avro", "snap-"])
def test_a_manifest_that_did_not_reach_the_store_is_sent_by_the_next_attempt(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write, failed = WrittenFile._write, list[str]()

    def fail_once(file: WrittenFile) -> None:
        if kind in file.location and not failed:
            failed.append(file.location)
            raise OSError("the store does not answer")
        write(file)

    monkeypatch.setattr(WrittenFile, "_write", fail_once)
    finish(catalog, stage(catalog, [1]))
    assert failed
    assert ids(catalog) == [1]


def test_a_commit_that_did_not_land_is_repeated(catalog: Catalog) -> None:
    plant(catalog, [REFUSED, REFUSED])
    finish(catalog, stage(catalog, [1]))
    assert ids(catalog) == [1]


@pytest.mark.parametrize(
    ("fault", "kind", "name"),
    [
        (REFUSED, CommitUnknownError, "a catalog that stays silent"),
        (CONFLICTING, RetryableError, "writers that are always faster"),
        (BROKEN, RetryableError, "a commit with a defect"),
        (unprocessable, UserError, "a commit that the catalog cannot process"),
    ],
)
def test_what_lets_no_commit_land_is_an_error_that_loses_nothing(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    kind: type[ConnectorError],
    name: str,
) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.1)
    staged = stage(catalog, [1])
    plant(catalog, repeat(fault))
    with pytest.raises(kind) as error:
        finish(catalog, staged)
    check_text("commit_errors", name, re.sub(r"\d+ s ", "N s ", str(error.value)))
    plant(catalog, [])
    finish(catalog, staged, is_recovery=True)
    assert ids(catalog) == [1]


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_attempts_come_ever_slower_end_in_time_and_are_in_the_logs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(commit, "time", clock)
    monkeypatch.setattr(commit, "FIRST_PAUSE", FIRST_PAUSE)
    plant(catalog, repeat(REFUSED))
    with caplog.at_level(logging.WARNING), pytest.raises(CommitUnknownError, match="no answer for"):
        finish(catalog, stage(catalog, [1]))
    in_full = [min(0.1 * 2**number, 10) for number in range(len(clock.pauses))]
    shares = [pause / full for pause, full in zip(clock.pauses, in_full, strict=True)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert len(set(shares)) > 1
    assert 20 < sum(clock.pauses) <= 30
    assert [record.getMessage() for record in caplog.records] == [
        f"table shop.orders: commit attempt {number + 1}: ServiceUnavailableError: 503"
        for number in range(len(clock.pauses) + 1)
    ]
    assert getattr(caplog.records[1], FIELDS) == {"event": "retried", "table": "shop.orders", "attempt": 2}


def test_a_table_that_was_replaced_gets_nothing(catalog: Catalog) -> None:
    staged = stage(catalog, [1])
    catalog.drop_table(PATH)
    with pytest.raises(UserError) as gone:
        finish(catalog, staged)
    check_text("commit_errors", "a table that is gone", str(gone.value), {staged.table_uuid: "UUID"})
    new = catalog.create_table(PATH, SCHEMA)
    with pytest.raises(UserError) as replaced:
        finish(catalog, staged)
    uuids = {staged.table_uuid: "UUID", str(new.metadata.table_uuid): "NEW UUID"}
    check_text("commit_errors", "a table that was replaced", str(replaced.value), uuids)
    assert ids(catalog) == []


def test_the_fence_survives_the_expiry_of_our_snapshots(catalog: Catalog) -> None:
    first = stage(catalog, [1])
    finish(catalog, first)
    foreign_append(catalog, 100)
    table = catalog.load_table(PATH)
    ours = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    finish(catalog, first, is_recovery=True)
    assert ids(catalog) == [1, 100]


def test_a_child_finishes_its_parents_transaction_and_fences_the_parent(catalog: Catalog) -> None:
    first = stage(catalog, [1])
    finish(catalog, first)
    pending = stage(catalog, [2], prev=first.next)
    for _ in (LEFT, RIGHT):
        finish(catalog, pending, is_recovery=True)
    finish(catalog, stage(catalog, [3], key_range=LEFT))
    finish(catalog, stage(catalog, [4], key_range=RIGHT))
    with pytest.raises(FencedError):
        finish(catalog, stage(catalog, [5], prev=pending.next))
    assert ids(catalog) == [1, 2, 3, 4]


@pytest.mark.parametrize("older", [WHOLE, LEFT])
def test_a_range_that_has_never_committed_is_fenced_by_the_first_commit_of_one_that_overlaps_it(
    catalog: Catalog, older: str
) -> None:
    """It has no property that could be closed, be it a parent before a split or a child before a join."""
    newer = LEFT if older == WHOLE else WHOLE
    stale = stage(catalog, [1], key_range=older)
    finish(catalog, stage(catalog, [2], key_range=newer))
    with pytest.raises(FencedError):
        finish(catalog, stale)
    assert ids(catalog) == [2]


def test_a_first_transaction_that_the_log_committed_lands_whatever_happened_to_the_ranges_before_it(
    catalog: Catalog,
) -> None:
    parents = stage(catalog, [1])
    childs = stage(catalog, [2], key_range=LEFT)
    finish(catalog, parents, is_recovery=True)
    finish(catalog, childs, is_recovery=True)
    assert ids(catalog) == [1, 2]


def test_what_earlier_sessions_staged_lands_before_a_sessions_own(catalog: Catalog) -> None:
    """Our commit closes the value that theirs is staged on, and what is staged on a closed value may be deleted."""
    parents = replace(stage(catalog, [1]), is_recovered=True)
    own = stage(catalog, [2], key_range=LEFT, waiting=[parents])
    commit.try_commits(catalog, [own, parents])
    newest = [snapshot.summary["flow.fence"] for snapshot in catalog.load_table(PATH).snapshots() if snapshot.summary]
    assert newest == [parents.next, own.next]


def test_a_table_that_has_refused_what_earlier_sessions_staged_is_not_asked_for_a_sessions_own(
    catalog: Catalog,
) -> None:
    parents = replace(stage(catalog, [1]), is_recovered=True)
    own = stage(catalog, [2], key_range=LEFT, waiting=[parents])
    plant(catalog, [REFUSED])
    outcomes = commit.try_commits(catalog, [own, parents], without_retry={parents.chain_id})
    assert [type(outcome) for outcome in outcomes] == [Failed] * 2
    assert ids(catalog) == []


def test_what_waits_for_a_table_that_was_replaced_holds_up_nothing(catalog: Catalog) -> None:
    of_the_old_one = replace(stage(catalog, [1]), is_recovered=True, table_uuid=str(uuid.uuid4()))
    outcomes = commit.try_commits(catalog, [stage(catalog, [2], key_range=LEFT), of_the_old_one])
    assert {type(outcome) for outcome in outcomes} == {Failed, Committed}
    assert ids(catalog) == [2]


def test_an_old_state_key_goes_inert_with_the_first_commit_of_the_new_one(catalog: Catalog) -> None:
    """A backfill that keeps the rows goes on in the same table."""
    old = stage(catalog, [1])
    finish(catalog, old)
    stale = stage(catalog, [666], prev=old.next)
    finish(catalog, stage(catalog, [2], state_key="orders.v2"))
    with pytest.raises(FencedError):
        finish(catalog, stale)
    assert fence.read_value(catalog.load_table(PATH).properties, old.writer) == f"closed:{old.next}"
    finish(catalog, old, is_recovery=True)
    assert ids(catalog) == [1, 2]


def test_siblings_do_not_fence_each_other(catalog: Catalog) -> None:
    finish(catalog, stage(catalog, [1]))
    left, right = stage(catalog, [2], key_range=LEFT), stage(catalog, [3], key_range=RIGHT)
    finish(catalog, left)
    finish(catalog, right)
    assert ids(catalog) == [1, 2, 3]


def test_a_range_that_was_split_and_joined_goes_on_from_the_closed_value(catalog: Catalog) -> None:
    first = stage(catalog, [1])
    finish(catalog, first)
    finish(catalog, stage(catalog, [2], key_range=LEFT))
    recorded = fence.read_value(catalog.load_table(PATH).properties, first.writer)
    assert recorded == f"closed:{first.next}"
    finish(catalog, stage(catalog, [3], prev=recorded))
    left = fence.read_value(catalog.load_table(PATH).properties, replace(first.writer, key_range=LEFT))
    assert left.startswith("closed:")
    assert ids(catalog) == [1, 2, 3]


def test_one_tables_error_does_not_keep_the_others_from_being_committed(catalog: Catalog) -> None:
    gone = replace(stage(catalog, [1]), path=TableIdentifier("shop", "gone"))
    staged = stage(catalog, [2])
    with pytest.raises(UserError, match=r"shop\.gone is gone"):
        finish(catalog, gone, staged)
    assert ids(catalog) == [2]


def in_another_table(catalog: Catalog, staged: StagedCommit) -> StagedCommit:
    """The same rows, staged for a table whose current manifest list is to be spoilt."""
    path = TableIdentifier("shop", "broken")
    table = catalog.create_table(path, SCHEMA)
    table.append(pa.table({"id": [1]}))
    return replace(staged, path=path, table_uuid=str(table.metadata.table_uuid))


def test_no_commit_drops_the_rows_that_the_lost_part_of_a_manifest_lists(catalog: Catalog) -> None:
    for first, second in ([1, 2], [3, 4]):
        pending = stage(catalog, [first])
        finish(catalog, pending, stage(catalog, [second], prev=pending.next))
    file, whole = cut_manifest(catalog.load_table(PATH))
    with catalog.load_table(PATH).transaction() as others:  # the next commit reads the manifests, and merges them
        others.set_properties({"commit.manifest.min-count-to-merge": "2"})
    finish(catalog, stage(catalog, [5]))
    file.write_bytes(whole)
    assert ids(catalog) == [1, 2, 3, 4, 5]


def test_no_commit_drops_the_rows_of_a_manifest_list_that_ends_behind_its_header(catalog: Catalog) -> None:
    finish(catalog, stage(catalog, [1]))
    table = catalog.load_table(PATH)
    file, whole = cut_manifest_list(table)
    staged = stage(catalog, [2])
    [failed] = commit.try_commits(catalog, [staged])
    assert isinstance(failed, Failed)
    assert file.name in str(failed.error)
    with pytest.raises(InvalidMetadataError) as error:
        manifests_of(table.io, table.current_snapshot())
    names = {file.as_uri(): "file:///…/snap-….avro"}
    check_text("commit_errors", "a manifest list that ends behind its header", str(error.value), names)
    file.write_bytes(whole)
    finish(catalog, staged)
    assert ids(catalog) == [1, 2]


@pytest.mark.parametrize("totals", [{}, {"total-data-files": "0"}, {"total-data-files": "many"}])
def test_a_manifest_list_may_be_empty_if_the_summary_names_no_files(catalog: Catalog, totals: dict[str, str]) -> None:
    """Engines write one if the first rows are none. Some count no totals."""
    catalog.load_table(PATH).append(ARROW_SCHEMA.empty_table())
    cut_manifest_list(catalog.load_table(PATH))
    record_summary(catalog, totals)
    finish(catalog, stage(catalog, [1]))
    assert ids(catalog) == [1]


@pytest.mark.parametrize("content", [b"", b"Obj\x01", b"no Avro at all" * 9])
def test_broken_metadata_are_one_tables_failure(catalog: Catalog, content: bytes) -> None:
    staged = stage(catalog, [2])
    broken = in_another_table(catalog, staged)
    current = catalog.load_table(broken.path).current_snapshot()
    assert current is not None
    Path(current.manifest_list.removeprefix("file://")).write_bytes(content)
    failed, landed = commit.try_commits(catalog, [broken, staged])
    assert isinstance(failed, Failed)
    assert "shop.broken" in str(failed.error)
    if not content:
        names = {current.manifest_list: "file:///…/snap-….avro"}
        check_text("commit_errors", "metadata that cannot be read", str(failed.error), names)
    assert isinstance(landed, Committed)
    assert ids(catalog) == [2]


def test_a_partition_spec_that_is_gone_is_one_tables_failure(catalog: Catalog) -> None:
    staged = stage(catalog, [2])
    broken = replace(in_another_table(catalog, staged), spec_id=7)
    failed, landed = commit.try_commits(catalog, [broken, staged])
    assert isinstance(failed, Failed)
    check_text("commit_errors", "staged files of a partition spec that is gone", str(failed.error))
    assert isinstance(landed, Committed)


def test_a_table_that_has_failed_before_gets_one_attempt(catalog: Catalog) -> None:
    """Its retries would hold up the acknowledgement of the others."""
    staged = stage(catalog, [1])
    faults = iter([REFUSED, no_fault])
    plant(catalog, faults)
    [failed] = commit.try_commits(catalog, [staged], without_retry={staged.chain_id})
    assert isinstance(failed, Failed)
    assert len(list(faults)) == 1
    [landed] = commit.try_commits(catalog, [staged])
    assert isinstance(landed, Committed)


def test_a_clock_that_was_set_back_does_not_put_a_snapshot_before_its_parent(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java refuses to read such a table."""
    first = stage(catalog, [1])
    finish(catalog, first)
    monkeypatch.setattr("connector.iceberg.commits.snapshot.time.time_ns", lambda: 1_000_000_000)
    finish(catalog, stage(catalog, [2], prev=first.next))
    older, newer = catalog.load_table(PATH).snapshots()
    assert newer.timestamp_ms >= older.timestamp_ms


def test_a_clock_that_is_behind_the_one_before_leaves_no_metadata_older_than_its_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg dates metadata itself, by the machine's clock, and Java refuses to read such a table too."""
    first, an_hour_ahead = stage(catalog, [1]), time.time_ns() + 3600 * 10**9
    with monkeypatch.context() as ahead:
        ahead.setattr("connector.iceberg.commits.snapshot.time.time_ns", lambda: an_hour_ahead)
        finish(catalog, first)
    finish(catalog, stage(catalog, [2], prev=first.next))
    metadata = catalog.load_table(PATH).metadata
    assert metadata.last_updated_ms >= max(snapshot.timestamp_ms for snapshot in metadata.snapshots)
