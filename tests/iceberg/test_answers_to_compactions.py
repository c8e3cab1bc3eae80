"""A compaction whose commit is lost, refused or late deletes no file that the table may need, and leaves none over."""

import time
from collections.abc import Sequence
from posixpath import basename
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
)
from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate

from connector.host.errors import CommitUnknownError, RetryableError, SignInError, UserError
from connector.host.threads import AT_ONCE
from connector.iceberg.commits import compaction_commit
from connector.iceberg.commits.compaction_commit import SUMMARY_COMPACTION, CommittedCompaction, CompactionCommit
from support.bindings import PATH
from support.rows.updated_rows import BY_PART, land, values_of
from support.snapshots import check_text
from support.tables.compacting import compact
from support.tables.eager_compaction import files, make_eager, stored
from support.tables.local_tables import record_property
from support.tables.planted_faults import plant

pytestmark = pytest.mark.long
IN_AN_HOUR: Final = SimpleNamespace(time_ns=lambda: time.time_ns() + 3_601 * 10**9, monotonic=time.monotonic)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    make_eager(catalog)
    return catalog


class Answers:
    """The catalog's answers to commits of compactions: each is sent, lost, or refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Exception | None, reaches: bool = True) -> None:
        self.remaining = list(answers)
        self.reaches = reaches
        commit_table = SqlCatalog.commit_table

        def send(catalog: SqlCatalog, table: Any, requirements: Any, updates: Any) -> Any:
            is_ours = any(
                SUMMARY_COMPACTION in (update.snapshot.summary or {})
                for update in updates
                if isinstance(update, AddSnapshotUpdate)
            )
            answer = self.remaining.pop(0) if is_ours and self.remaining else None
            if answer and not self.reaches:
                raise answer
            response = commit_table(catalog, table, requirements, updates)
            if answer:
                raise answer
            return response

        monkeypatch.setattr(SqlCatalog, "commit_table", send)


@pytest.mark.parametrize("answer", [CommitStateUnknownException("504"), CommitFailedException("409"), OSError("gone")])
@pytest.mark.parametrize("reaches", [True, False])
def test_a_lost_answer_does_not_lose_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, answer: Exception, reaches: bool
) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    Answers(monkeypatch, answer, reaches=reaches)
    result = compact(catalog, PATH)
    assert (result.commits, result.dropped) == (1, 0)
    assert values_of(catalog) == dict.fromkeys(range(3), "a")
    assert len(files(catalog)) == 1


def test_an_answer_without_the_snapshot_is_no_commit(catalog: Catalog) -> None:
    """A proxy may answer with the table as it was."""
    for number in range(3):
        land(catalog, {number: "a"})
    old = catalog.load_table(PATH)
    plant(catalog, [lambda _: SimpleNamespace(metadata=old.metadata)])
    assert compact(catalog, PATH).commits == 1
    assert len(files(catalog)) == 1


def test_files_of_a_commit_that_may_still_arrive_are_kept(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent, and nobody knows. Then another engine rewrites the sources."""
    for number in range(3):
        land(catalog, {number: "a"})
    commit_table = SqlCatalog.commit_table
    sent: list[Any] = []

    def lose(catalog: SqlCatalog, table: Any, *about: Any) -> Any:
        if not sent:
            sent.append(about)
            table = catalog.load_table(PATH)
            table.overwrite(table.scan().to_arrow())
            raise CommitStateUnknownException("504")
        return commit_table(catalog, table, *about)

    monkeypatch.setattr(SqlCatalog, "commit_table", lose)
    result = compact(catalog, PATH)
    assert (result.commits, result.dropped) == (0, 1)
    assert any(name.startswith("compact-") for name in stored(catalog))


def test_an_old_compaction_is_not_committed(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may be taken for orphans soon. No further attempt is made: they get no younger."""
    attempt, attempts = CompactionCommit._attempt, list[int]()

    def count(commit: CompactionCommit, groups: Any, number: int) -> CommittedCompaction:
        attempts.append(number)
        return attempt(commit, groups, number)

    monkeypatch.setattr(CompactionCommit, "_attempt", count)
    for number in range(3):
        land(catalog, {number: "a"})
    with pytest.raises(RetryableError) as caught:
        compact(catalog, PATH, lambda: monkeypatch.setattr(compaction_commit, "time", IN_AN_HOUR))
    check_text("compaction_errors", "too old", str(caught.value))
    assert attempts == [1]
    assert len(files(catalog)) == 3


def test_a_compaction_that_becomes_old_during_an_attempt_is_not_committed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    write = CompactionCommit._write

    def write_slowly(commit: CompactionCommit, *what: Any) -> Snapshot:
        monkeypatch.setattr(compaction_commit, "time", IN_AN_HOUR)
        return write(commit, *what)

    monkeypatch.setattr(CompactionCommit, "_write", write_slowly)
    with pytest.raises(RetryableError, match="more than 60 minutes"):
        compact(catalog, PATH)
    assert len(files(catalog)) == 3


# What Iceberg's REST server answers if this machine's clock is an hour ahead.
OF_ANOTHER_CLOCK: Final = (
    "IllegalArgumentException: Invalid update timestamp 1795716105530: before last snapshot log entry at 1795719705505"
)


@pytest.mark.parametrize(
    ("case", "kind", "answers"),
    [
        ("refused", RetryableError, [CommitFailedException("409")]),
        ("no answer", CommitUnknownError, [CommitStateUnknownException("504")]),
        ("no answer", CommitUnknownError, [CommitStateUnknownException("504"), CommitFailedException("409")]),
        ("no answer", CommitUnknownError, [CommitStateUnknownException("504"), RetryableError("no space is left")]),
        ("forbidden", UserError, [ForbiddenError("403")]),
        ("bad request", UserError, [BadRequestError("400")]),
        ("another clock", UserError, [BadRequestError(OF_ANOTHER_CLOCK)]),
        ("expired token", SignInError, [AuthorizationExpiredError("419")]),
    ],
)
def test_a_catalog_that_takes_no_compaction(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, case: str, kind: type[Exception], answers: Sequence[Exception]
) -> None:
    for number in range(3):
        land(catalog, {number: "a"})
    monkeypatch.setattr(compaction_commit, "RETRY_FOR", 0.01)
    Answers(monkeypatch, *answers, *([answers[-1]] * 100), reaches=False)
    with pytest.raises(kind) as caught:
        compact(catalog, PATH)
    check_text("compaction_errors", case, str(caught.value))
    assert len(files(catalog)) == 3


def test_files_that_no_commit_has_named_are_deleted(catalog: Catalog) -> None:
    """The commit fails before it is sent: a property is broken, as a manifest could not be written to a full disk."""
    for number in range(3):
        land(catalog, {number: "a"})
    before = stored(catalog)

    def spoil() -> None:
        record_property(catalog.load_table(PATH), "write.metadata.previous-versions-max", "many")

    with pytest.raises(UserError, match="many"):
        compact(catalog, PATH, spoil)
    assert stored(catalog) == before


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are deleted at the same time. This one fails before the last ones begin."""
    catalog.drop_table(PATH)
    make_eager(catalog, BY_PART)
    for first in (0, 100, 200, 300):
        land(catalog, {first + number: chr(97 + number) for number in range(3 * AT_ONCE)})
    before, refused = stored(catalog), list[str]()
    kind = type(catalog.load_table(PATH).io)
    delete = kind.delete

    def delete_or_refuse(io: FileIO, location: str) -> None:
        if not refused:
            refused.append(basename(location))
            raise OSError("the store does not answer")
        time.sleep(0.05)
        delete(io, location)

    def spoil() -> None:
        record_property(catalog.load_table(PATH), "write.metadata.previous-versions-max", "many")
        monkeypatch.setattr(kind, "delete", delete_or_refuse)

    with pytest.raises(UserError, match="many"):
        compact(catalog, PATH, spoil)
    assert stored(catalog) == {*before, *refused}
