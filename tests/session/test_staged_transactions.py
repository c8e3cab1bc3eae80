"""What a session stages of its transactions, and in which order it works, without Spark."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

import pyarrow as pa
import pytest

from connector.encoding.lines.key_digest import KeyDigest, digest_hashes, hash_keys
from connector.host.errors import TooManyRejectedError
from connector.host.refresh import Lease
from connector.iceberg.bound_table import BoundTable, Quarantine
from connector.iceberg.commits.commit_outcomes import AlreadyCommitted, Tell
from connector.model.binding import Arrangement, Binding, KeyPart, Updates
from connector.model.invalid_values import Tally, Treated, Treatment
from connector.model.properties import Properties
from connector.model.state import ChainId, DataFile, LocatedRowsFile, StagedCommit, StagedTransaction, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.session import transactions
from connector.session.backlog import Limit
from connector.session.committer import Committer
from connector.session.loads import LoadedRows
from connector.session.transactions import Session
from connector.spark.jobs.write_job import Written
from protocol.flow import WHOLE_RANGE
from protocol.protocol_error import ProtocolError
from protocol.request import Flush, Load, StartCommit, Store
from support.snapshots import check_text

PATH: Final = TableIdentifier("shop", "users")
WRITER: Final = WriterId("acme/task", "users.v1", WHOLE_RANGE.key_range)
UPDATES: Final = Updates((KeyPart(1, "/id"),), document_id=2)
ARRANGEMENT: Final = Arrangement(spec_id=3, sort_order_id=4)
FILE: Final = DataFile("file:///new.parquet", 1, 1, (4,), ())
ONE_KEY: Final = [hash_keys([pa.array([1])])]
NOT_FOUND: Final = LoadedRows(LocatedRowsFile(None, 0, 7), KeyDigest())
FOUND: Final = LoadedRows(LocatedRowsFile("file:///located.parquet", 1, 7), digest_hashes(ONE_KEY))


def accept(staged: Sequence[StagedCommit], *, without_retry: Collection[ChainId], tell: Tell) -> None:  # noqa: ARG001
    """Each table has got what was staged."""
    for commit in staged:
        tell(AlreadyCommitted((commit,)))


@dataclass
class Work:
    """Stands for the search and the write job of each transaction, with the outcome of both."""

    found: LoadedRows
    written: Written
    row_ids: Any = None
    quarantine: Quarantine | None = None
    steps: list[str] = field(default_factory=list)

    def session(self, recovered: Sequence[StagedCommit] = ()) -> Session:
        binding = Binding(0, WRITER.state_key, PATH, (), (), None, updates=UPDATES)
        lease, properties = Lease(Properties()), Properties()
        table = BoundTable(
            binding, WRITER, "a-uuid", ARRANGEMENT, 5, "file:///users", properties, lease, self.quarantine
        )
        committer = Committer(accept, Limit(commits=0, size=0))
        jobs: Any = self
        return Session([table], recovered, committer, jobs)

    def start_loading(self, _: object) -> "Loads":
        return Loads(self, {0: self.found}, {0: self.row_ids} if self.row_ids else {})

    def start_writing(self, _: object, row_ids: Any) -> "Work":
        assert row_ids == ({0: self.row_ids} if self.row_ids else {})
        self.steps.append("start to write")
        return self

    def add(self, _: Store) -> None:
        self.steps.append("store")

    def finish(self) -> Written:
        self.steps.append("write")
        return self.written

    def discard(self) -> None:
        self.steps.append("discard files")


@dataclass
class Loads:
    work: Work
    found: dict[int, LoadedRows]
    row_ids: Any
    count: int = 1
    began: float = 0.0

    def add(self, _: Load) -> None:
        pass

    def answer(self) -> list[bytes]:
        return []

    def check(self) -> None:
        pass

    def stage(self, _: Written) -> None:
        self.work.steps.append("stage located rows")

    def close(self) -> None:
        self.work.steps.append("remove row ids")

    def discard(self) -> None:
        self.work.steps.append("discard located rows")


def stage(session: Session) -> tuple[StagedCommit, ...]:
    """Stage a transaction that loads and stores one key."""
    with session.begin() as transaction:
        transaction.load(Load(0, 1, 1, (b"a load\n",)))
        list(transaction.answer_loads(Flush()))
        transaction.store(Store(0, 1, 1, (b"a store\n",)))
        return transaction.start_commit(StartCommit()).commits


def test_the_tasks_of_the_write_job_wait_for_the_first_row() -> None:
    """To start the job takes a tenth of a small transaction."""
    work = Work(NOT_FOUND, Written())
    transaction = work.session().begin()
    list(transaction.answer_loads(Flush()))
    assert work.steps == ["start to write"]


def test_a_commit_says_in_which_snapshot_its_keys_had_no_rows() -> None:
    """Another writer may add such rows before the commit, which has to find them."""
    [commit] = stage(Work(NOT_FOUND, Written({0: (FILE,)})).session())
    assert (commit.located, commit.updates) == (LocatedRowsFile(None, 0, 7), UPDATES)


def test_a_commit_may_only_delete_rows() -> None:
    [commit] = stage(Work(FOUND, Written(existing_keys={0: ONE_KEY})).session())
    assert (commit.files, commit.located) == ((), FOUND.located)


@pytest.mark.parametrize(
    ("wrong", "found", "stored"),
    [
        ("stored with `exists` without a Load", NOT_FOUND, [2]),
        ("another key stored than was loaded", FOUND, [2]),
        ("a key stored twice", FOUND, [1, 1]),
    ],
)
def test_stores_must_replace_what_was_loaded(wrong: str, found: LoadedRows, stored: list[int]) -> None:
    hashes = [hash_keys([pa.array(stored, pa.int64())])]
    with pytest.raises(ProtocolError) as raised:
        stage(Work(found, Written(existing_keys={0: hashes})).session())
    check_text("update_errors", wrong, str(raised.value))


def test_a_commit_is_of_the_schema_and_the_arrangement_that_its_files_were_written_by() -> None:
    [commit] = stage(Work(NOT_FOUND, Written({0: (FILE,)})).session())
    assert (commit.schema_id, commit.spec_id, commit.sort_order_id) == (5, 3, 4)


def test_a_transaction_without_rows_stages_nothing() -> None:
    session = Work(NOT_FOUND, Written()).session()
    transaction = session.begin()
    assert not list(transaction.answer_loads(Flush()))
    assert transaction.start_commit(StartCommit()) == StagedTransaction()


def test_a_transaction_follows_the_one_before() -> None:
    session = Work(NOT_FOUND, Written({0: (FILE,)})).session()
    [first], [second] = stage(session), stage(session)
    assert (first.prev, second.prev) == ("", first.next)


def test_row_ids_are_removed_when_all_rows_are_written_and_located() -> None:
    work = Work(FOUND, Written({0: (FILE,)}, existing_keys={0: ONE_KEY}), row_ids="a file with row ids")
    assert len(stage(work.session())) == 1
    assert work.steps == ["start to write", "store", "write", "stage located rows", "remove row ids"]


def test_the_commits_of_the_recovery_are_reported_once() -> None:
    """A later report would name an older fence value as the newest one of the table."""
    waiting = StagedCommit(WRITER, "", "0" * 31 + "1", PATH, "a-uuid", 0, 0, (FILE,), is_recovered=True)
    session = Work(NOT_FOUND, Written()).session([waiting])
    assert session.acknowledge(StagedTransaction()).commits == (waiting,)
    assert session.acknowledge(StagedTransaction()).commits == ()


def write_rejected(rejected: int) -> Written:
    """A thousand rows beside so many that are rejected."""
    treated = Tally()
    treated.add("qty", Treatment.REJECTED, Treated(rejected, "key [1]"))
    return Written({0: (DataFile("file:///new.parquet", 1000, 1, (4,), ()),)}, {0: treated})


def test_a_transaction_that_may_not_be_staged_is_discarded() -> None:
    """Its files show the present fence value: until the next commit, no session could delete them as orphan files."""
    work = Work(NOT_FOUND, write_rejected(1001), quarantine=Quarantine(1, 0.5))
    with pytest.raises(TooManyRejectedError):
        stage(work.session())
    assert work.steps[-2:] == ["discard files", "discard located rows"]


def test_a_transaction_that_the_input_does_not_end_is_discarded() -> None:
    work = Work(NOT_FOUND, Written())
    with work.session().begin() as transaction:
        list(transaction.answer_loads(Flush()))
    assert work.steps == ["start to write", "discard files"]


def test_an_error_of_discarding_does_not_hide_why_a_transaction_was_not_staged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Work) -> None:
        raise LookupError("the store is gone")

    monkeypatch.setattr(Work, "discard", fail)
    work = Work(NOT_FOUND, write_rejected(1001), quarantine=Quarantine(1, 0.5))
    with pytest.raises(TooManyRejectedError):
        stage(work.session())
    assert caplog.messages == [
        "files of a transaction that was not staged may be left in the object store: LookupError: the store is gone"
    ]
    assert work.steps[-1] == "discard located rows"


def test_a_store_that_does_not_answer_holds_up_the_end_of_the_process_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "LONGEST_DISCARD", 0.1)
    answers = Event()
    monkeypatch.setattr(Work, "discard", lambda _: answers.wait(60))
    with Work(NOT_FOUND, Written()).session().begin() as transaction:
        list(transaction.answer_loads(Flush()))
    answers.set()
    assert caplog.messages == [
        "files of a transaction that was not staged may be left in the object store: TimeoutError"
    ]


@pytest.mark.parametrize(("rejected", "is_accepted"), [(1000, True), (1001, False)])
def test_rejected_rows_are_counted_among_all_rows_of_their_binding(rejected: int, is_accepted: bool) -> None:
    session = Work(NOT_FOUND, write_rejected(rejected), quarantine=Quarantine(1, 0.5)).session()
    if is_accepted:
        assert len(stage(session)) == 1
    else:
        with pytest.raises(TooManyRejectedError, match="of the last 2001 rows 1001 were rejected"):
            stage(session)


def test_a_transaction_without_rows_says_nothing_of_its_tables(caplog: pytest.LogCaptureFixture) -> None:
    session = Work(NOT_FOUND, Written()).session()
    with caplog.at_level(logging.INFO):
        session.acknowledge(StagedTransaction())
        assert not caplog.records
        session.acknowledge(StagedTransaction(stage(Work(NOT_FOUND, Written({0: (FILE,)})).session())))
    assert "running: all committed transactions are in their tables" in caplog.text
