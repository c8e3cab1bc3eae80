"""The fenced commit against a real catalog: once, whatever the catalog answers and whoever else writes."""

import json
import logging
import re
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError, ServiceUnavailableError
from requests import HTTPError, Response
from sqlalchemy.exc import OperationalError

from connector.host.errors import CommitUnknownError, ConnectorError, RetryableError, UserError
from connector.host.logs import FIELDS
from connector.host.threads import AT_ONCE
from connector.iceberg.commits import commit, retry_commits
from connector.iceberg.commits.commit_outcomes import Committed, Failed
from connector.iceberg.commits.snapshot import SnapshotWriters
from connector.iceberg.fences import fence
from connector.model.table_identifier import TableIdentifier
from connector.storage.file_io import WrittenFile
from support.bindings import PATH
from support.snapshots import check_text
from support.tables.commits_of_ids import REFUSED, SCHEMA, commit_staged, foreign_append, stage_ids
from support.tables.local_tables import ids_of, local_catalog, record_property
from support.tables.outcomes import try_commits
from support.tables.planted_faults import Fault, Send, do_first, lose_answer, no_fault, plant, plant_always, refuse

FIRST_PAUSE: Final = retry_commits.FIRST_PAUSE


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    catalog.create_namespace("shop")
    catalog.create_table(PATH, SCHEMA)
    return catalog


def unprocessable(_: Send) -> Any:
    """As PyIceberg tells HTTP status 422."""
    response = Response()
    response.status_code = 422
    raise RESTError("Unprocessable: the format version is not supported here") from HTTPError(response=response)


CONFLICTING: Final = refuse(CommitFailedException("branch main has changed"))
BROKEN: Final = refuse(ValueError("Snapshot id 5 is unknown"))


def test_rows_and_fence_become_visible_in_one_snapshot(catalog: Catalog) -> None:
    staged = stage_ids(catalog, [1, 2])
    commit_staged(catalog, staged)
    table = catalog.load_table(PATH)
    assert ids_of(catalog, PATH) == [1, 2]
    assert fence.read_value(table.properties, staged.writer) == staged.next
    snapshot = table.current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary["flow.fence"] == staged.next
    assert snapshot.summary["total-records"] == "2"


def test_a_table_is_locked_until_its_outcome_is_told(catalog: Catalog) -> None:
    """Otherwise the session's maintenance would make its commits fail."""
    writers, held = SnapshotWriters(), list[bool]()

    def note(*_: object) -> None:
        held.append(writers.locks.of(PATH).locked())

    plant(catalog, [do_first(note)])
    commit.try_commits(catalog, [stage_ids(catalog, [1])], writers=writers, tell=note)
    assert held == [True, True]
    assert not writers.locks.of(PATH).locked()


def test_a_debug_record_has_the_fence_values_of_each_commit(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, commit.__name__)
    first = stage_ids(catalog, [1])
    second = stage_ids(catalog, [2], prev=first.next)
    for staged in (first, second):
        commit_staged(catalog, staged)
    set_first, set_second = ({fence.property_name(each.writer): each.next} for each in (first, second))
    assert caplog.messages == [
        f"table shop.orders: a commit after fence none sets {set_first}",
        f"table shop.orders: a commit after fence {first.next} sets {set_second}",
    ]


def test_an_answer_without_the_snapshot_is_no_commit(catalog: Catalog) -> None:
    """A proxy may answer with the table as it was."""
    staged, old = stage_ids(catalog, [1]), catalog.load_table(PATH)
    plant(catalog, [lambda _: SimpleNamespace(metadata=old.metadata)])
    commit_staged(catalog, staged)
    assert ids_of(catalog, PATH) == [1]


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
    commit_staged(catalog, stage_ids(catalog, [1]))
    assert ids_of(catalog, PATH) == [1, 9]
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
    staged = stage_ids(catalog, [1])
    record_property(catalog.load_table(PATH), name, value)
    with pytest.raises(UserError) as told:
        commit_staged(catalog, staged, is_recovery=True)
    check_text("commit_errors", f"a property that no commit can follow: {name}", str(told.value))
    assert "commit attempt" not in caplog.text
    assert "this" not in sys.modules


def test_finishing_again_changes_nothing(catalog: Catalog) -> None:
    staged = stage_ids(catalog, [1])
    commit_staged(catalog, staged)
    before = catalog.load_table(PATH).metadata
    commit_staged(catalog, staged)
    commit_staged(catalog, staged, is_recovery=True)
    assert catalog.load_table(PATH).metadata == before


def test_a_chain_lands_in_one_snapshot_whatever_of_it_has_landed(catalog: Catalog) -> None:
    first = stage_ids(catalog, [1])
    second = stage_ids(catalog, [2], prev=first.next)
    third = stage_ids(catalog, [3], prev=second.next)
    commit_staged(catalog, first)
    commit_staged(catalog, third, first, second, is_recovery=True)
    assert ids_of(catalog, PATH) == [1, 2, 3]
    assert len(catalog.load_table(PATH).snapshots()) == 2


def test_other_writers_are_met_by_looking_again(catalog: Catalog) -> None:
    first = stage_ids(catalog, [1])
    commit_staged(catalog, first)
    foreign_append(catalog, 100)
    second = stage_ids(catalog, [2], prev=first.next)
    overtaken = do_first(lambda: foreign_append(catalog, 200))
    plant(catalog, [overtaken, no_fault, overtaken])
    commit_staged(catalog, second)
    assert ids_of(catalog, PATH) == [1, 2, 100, 200, 200]


def test_a_retried_commit_files_its_rows_under_its_own_sequence_number(catalog: Catalog) -> None:
    """Under an older one, another engine's equality deletes would hide them."""
    plant(catalog, [do_first(lambda: foreign_append(catalog, 100))])
    commit_staged(catalog, stage_ids(catalog, [1]))
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
    staged = stage_ids(catalog, [1, 2])
    plant(catalog, [lose_answer(answer)])
    commit_staged(catalog, staged)
    assert ids_of(catalog, PATH) == [1, 2]
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
    commit_staged(catalog, stage_ids(catalog, [1]))
    assert failed
    assert ids_of(catalog, PATH) == [1]


def test_a_commit_that_did_not_land_is_repeated(catalog: Catalog) -> None:
    plant(catalog, [REFUSED, REFUSED])
    commit_staged(catalog, stage_ids(catalog, [1]))
    assert ids_of(catalog, PATH) == [1]


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
    staged = stage_ids(catalog, [1])
    plant_always(catalog, fault)
    with pytest.raises(kind) as error:
        commit_staged(catalog, staged)
    check_text("commit_errors", name, re.sub(r"\d+ s ", "N s ", str(error.value)))
    plant(catalog, [])
    commit_staged(catalog, staged, is_recovery=True)
    assert ids_of(catalog, PATH) == [1]


class Clock:
    """Time passes only while somebody sleeps, and for each thread on its own, as if all of them slept side by side."""

    def __init__(self) -> None:
        self._pauses = defaultdict[int, list[float]](list)

    @property
    def pauses(self) -> list[list[float]]:
        """Those of each thread that has slept."""
        return [*self._pauses.values()]

    def monotonic(self) -> float:
        return sum(self._pauses.get(threading.get_ident(), ()))

    def sleep(self, seconds: float) -> None:
        self._pauses[threading.get_ident()].append(seconds)


def test_attempts_come_ever_slower_end_in_time_and_are_in_the_logs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    monkeypatch.setattr(retry_commits, "time", clock)
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", FIRST_PAUSE)
    plant_always(catalog, REFUSED)
    with caplog.at_level(logging.WARNING), pytest.raises(CommitUnknownError, match="no answer for"):
        commit_staged(catalog, stage_ids(catalog, [1]))
    [pauses] = clock.pauses
    in_full = [min(0.1 * 2**number, 10) for number in range(len(pauses))]
    shares = [pause / full for pause, full in zip(pauses, in_full, strict=True)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert len(set(shares)) > 1
    assert 20 < sum(pauses) <= 30
    assert [record.getMessage() for record in caplog.records] == [
        f"table shop.orders: commit attempt {number + 1}: ServiceUnavailableError: 503"
        for number in range(len(pauses) + 1)
    ]
    assert getattr(caplog.records[1], FIELDS) == {"event": "retried", "table": "shop.orders", "attempt": 2}


def test_tables_that_take_turns_are_retried_no_longer_than_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgement waits for all of them."""
    clock = Clock()
    monkeypatch.setattr(commit, "time", clock)
    monkeypatch.setattr(retry_commits, "time", clock)
    monkeypatch.setattr(retry_commits, "FIRST_PAUSE", FIRST_PAUSE)
    one = stage_ids(catalog, [1])
    paths = [TableIdentifier("shop", f"orders{number}") for number in range(3 * AT_ONCE)]
    uuids = [catalog.create_table(path, SCHEMA).metadata.table_uuid for path in paths]
    plant_always(catalog, REFUSED)
    tables = [replace(one, path=path, table_uuid=str(uuid)) for path, uuid in zip(paths, uuids, strict=True)]
    failed = try_commits(catalog, tables)
    assert sorted(outcome.staged[0].path for outcome in failed if isinstance(outcome, Failed)) == sorted(paths)
    assert 20 < max(map(sum, clock.pauses)) <= 30


def test_a_table_that_has_failed_before_gets_one_attempt(catalog: Catalog) -> None:
    """Its retries would hold up the acknowledgement of the others."""
    staged = stage_ids(catalog, [1])
    plant(catalog, [REFUSED])
    [failed] = try_commits(catalog, [staged], without_retry={staged.chain_id})
    assert isinstance(failed, Failed)
    [landed] = try_commits(catalog, [staged])
    assert isinstance(landed, Committed)


def test_a_clock_that_was_set_back_does_not_put_a_snapshot_before_its_parent(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java refuses to read such a table."""
    first = stage_ids(catalog, [1])
    commit_staged(catalog, first)
    monkeypatch.setattr("connector.iceberg.commits.snapshot.time.time_ns", lambda: 1_000_000_000)
    commit_staged(catalog, stage_ids(catalog, [2], prev=first.next))
    older, newer = catalog.load_table(PATH).snapshots()
    assert newer.timestamp_ms >= older.timestamp_ms


def test_a_clock_that_is_behind_the_one_before_leaves_no_metadata_older_than_its_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg dates metadata itself, by the machine's clock, and Java refuses to read such a table too."""
    first, an_hour_ahead = stage_ids(catalog, [1]), time.time_ns() + 3600 * 10**9
    with monkeypatch.context() as ahead:
        ahead.setattr("connector.iceberg.commits.snapshot.time.time_ns", lambda: an_hour_ahead)
        commit_staged(catalog, first)
    commit_staged(catalog, stage_ids(catalog, [2], prev=first.next))
    metadata = catalog.load_table(PATH).metadata
    assert metadata.last_updated_ms >= max(snapshot.timestamp_ms for snapshot in metadata.snapshots)
