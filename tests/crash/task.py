"""A task that reads its source for ever, whatever happens to its processes."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from connector.host.errors import UserError
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from crash.balances import WrongLoadsError
from crash.catalog_faults import MEETING
from crash.engines import Engines
from crash.faults import DEFECT, Faults
from crash.lakes import Lake
from crash.ledger import COLLECTIONS, TABLES, PromiseBrokenError
from crash.shards import Event, Shards
from crash.source import Share
from crash.tables import Tables
from fixtures.collection import Collection
from fixtures.conversation import WHOLE_RANGE
from support.repository import TESTS
from support.sessions.connector_process import ConnectorEndedError, Outcome
from support.sessions.runtime import Runtime, Session

WHOLE: Final = (WHOLE_RANGE,)
HALVES: Final = (
    {"keyBegin": 0, "keyEnd": 0x7FFFFFFF, "rClockEnd": 0xFFFFFFFF},
    {"keyBegin": 0x80000000, "keyEnd": 0xFFFFFFFF, "rClockEnd": 0xFFFFFFFF},
)
PYTHON_PATH: Final = os.pathsep.join(map(str, (TESTS, TESTS.parent)))
# Documents a transaction, session by session: what is replayed is cut differently than it was.
TRANSACTION_SIZES: Final = (8, 6, 10)
TRANSACTIONS_TO_CATCH_UP: Final = 10
REFUSED: Final = ("CommitFailedException", "ValueError")  # for certain: somebody else has committed
FENCED: Final = (
    "another process has taken over acmeCo/task",
    "acmeCo/task has been published with a backfill of this table since",
)


@dataclass(frozen=True)
class Stale:
    """A session that has been replaced, and the documents that its next transaction has."""

    session: Session
    documents: range


class Task:
    """Its log, its processes and its tables. A fault is noted when it has certainly happened."""

    def __init__(
        self, directory: Path, lake: Lake, faults: Faults, defect: str | None, format_version: int = 2
    ) -> None:
        self.lake = lake
        self.resources = ExitStack()  # that last as long as it does
        self.tables = Tables(lake)
        self.faults = faults
        self.runtime = Runtime(
            directory,
            [replace(collection, namespace=lake.namespace) for collection in COLLECTIONS],
            {
                **lake.config,
                "hard_delete": True,
                "advanced": {
                    "spark": {"spark.python.daemon.module": "crash.daemon"},
                    "format_version": format_version,
                },
            },
            {"PYTHONPATH": PYTHON_PATH, "TMPDIR": str(directory), **faults.environment, **lake.environment}
            | ({DEFECT: defect} if defect else {}),
            shards_share_state=True,
            module=("crash.altered",),
        )
        self.ranges: Sequence[Any] = WHOLE
        self.memo_size = 0
        self.fired = 0
        self.committed_at_fault = 0
        self.sessions_opened = 0
        self._shards: Shards | None = None
        self._events: Iterator[Event] = iter(())

    @property
    def log(self) -> str:
        """What all its processes have logged."""
        return (self.runtime.directory / "connector.log").read_text()

    @property
    def staged(self) -> list[StagedCommit]:
        """What the log names that no session has reported as part of its table."""
        try:
            return read_state("acmeCo/task", self.runtime.log)
        except UserError as error:
            raise PromiseBrokenError(f"the log has a state that cannot be read: {error}") from error

    @property
    def documents(self) -> range:
        """What the transaction reads that is under way, or the next one if there is none."""
        assert self._shards
        return self._shards.documents

    @property
    def waiting_tables(self) -> set[str]:
        """Those for which something is staged."""
        return {commit.path[-1] for commit in self.staged}

    def noted(self) -> None:
        """A fault has happened: what commits from now on has committed after it."""
        self.fired += 1
        self.committed_at_fault = self.runtime.checkpoint

    def check(self, tables: Sequence[str] = TABLES, *, complete: bool = False) -> None:
        self.tables.check(self.runtime.checkpoint, tables, complete=complete)

    def audit(self, engines: Engines) -> int:
        return self.tables.audit(self.runtime.checkpoint, engines)

    def run_to(self, event: Event, times: int = 1) -> None:
        """Go on until that has happened so often; a new session is opened where there is none."""
        if self._shards is None:
            size = TRANSACTION_SIZES[self.sessions_opened % len(TRANSACTION_SIZES)]
            self._shards = Shards(self.runtime, self.ranges, size, self._share, publish=not self.sessions_opened)
            self._events = self._shards.events()
            self.sessions_opened += 1
        while times:
            try:
                times -= next(self._events) is event
            except WrongLoadsError:
                self.check([table for table in TABLES if table not in self.waiting_tables], complete=True)
                raise  # the tables are right

    def read_one_by_one(self) -> None:
        """From now on, each transaction of the session has one document."""
        assert self._shards
        self._shards.transaction_size = 1

    def run_to_commit_for(self, table: str) -> None:
        """Go on until a transaction with rows for it has committed."""
        self.run_to(Event.COMMITTED)
        while table not in self.waiting_tables:
            self.run_to(Event.COMMITTED)

    def is_complete(self) -> bool:
        """Whether the tables hold everything."""
        with suppress(PromiseBrokenError):
            self.check(complete=True)
            return True
        return False

    def catches_up(self) -> None:
        """Go on until the tables hold everything."""
        self.noted()
        for _ in range(TRANSACTIONS_TO_CATCH_UP):
            self.run_to(Event.RECORDED)
            if self.is_complete():
                return
        self.check(complete=True)

    def end(self) -> None:
        """The end of the input."""
        for session in self._sessions:
            outcome = session.finish()
            if outcome.status:
                raise ConnectorEndedError(outcome)
        self._kill_all()

    def kill(self) -> None:
        outcomes = [session.connector.kill() for session in self._sessions]
        self._kill_all()
        _expect_killed(*outcomes)
        self.check()
        self.noted()

    def dies(self, fault: str, within: int = 2) -> None:
        """Go on until the process dies of it, within so many transactions."""
        _expect_killed(self._ends(within))
        assert not self.faults.is_armed(fault)
        self.noted()

    def fails(self, message: str) -> None:
        """Go on until the process ends by itself, and says why in its last record."""
        outcome = self._ends()
        if outcome.status != 1 or message not in outcome.last_log_line:
            raise ConnectorEndedError(outcome)

    def backfill(self) -> None:
        """The user backfills every binding, and the runtime reads the source from its beginning. No session is open."""
        self.tables.begin_backfill()
        self.runtime.backfill()
        self.runtime.checkpoint = 0

    def publish(self) -> None:
        """Apply what the user has changed. Tables that are backfilled keep their rows."""
        self.runtime.apply()
        self.check(complete=True)

    def apply_dies(self, fault: str, *, after: int) -> None:
        """The process of an apply dies of a fault."""
        self.faults.arm(fault, after=after)
        _expect_killed(self.runtime.apply_and_fail())
        assert not self.faults.is_armed(fault)
        self.check()
        self.noted()

    def convert(self, table: str, column: str) -> None:
        """Publish the task with numbers in place of integers in a column. No session is open."""
        self.runtime.change(
            [_with_numbers(each, column) if each.table == table else each for each in self.runtime.collections]
        )
        answer = self.runtime.apply()
        assert f"convert column '{column}'" in answer.body["actionDescription"]

    def limit_file_size(self, size: int) -> None:
        for session in self._sessions:
            resource.prlimit(session.connector.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    @contextmanager
    def frozen(self) -> Iterator[Stale]:
        """The present process stalls, for others to take its place."""
        assert self._shards
        (session,), documents = self._shards.sessions, self.documents
        session.connector.process.send_signal(signal.SIGSTOP)
        self._shards = None
        with session:
            yield Stale(session, documents)

    @contextmanager
    def another_instance(self) -> Iterator[Stale]:
        """A second process opens the task."""
        with self.runtime.open() as session:
            self._share(self.documents, WHOLE_RANGE).load(session)
            yield Stale(session, self.documents)

    def store_and_start_commit(self, stale: Stale) -> None:
        stale.session.store_rows(*self._share(stale.documents, WHOLE_RANGE).rows)
        stale.session.send_start_commit(stale.documents.stop)

    def wakes_and_is_refused(self, zombie: Stale, *awaited: str) -> None:
        zombie.session.connector.process.send_signal(signal.SIGCONT)
        self.is_refused(zombie, *awaited)

    def is_refused(self, stale: Stale, *awaited: str) -> None:
        """It gives these answers, and is then fenced off."""
        for kind in awaited:
            stale.session.connector.expect(kind)
        stale.session.send_acknowledge()
        try:
            stale.session.connector.expect("acknowledged")
        except ConnectorEndedError as ended:
            if not any(text in ended.outcome.last_log_line for text in FENCED):
                raise
            self.noted()
        else:
            self.check()
            raise PromiseBrokenError("a stale process was not refused")

    @contextmanager
    def meeting(self, table: str = TABLES[0]) -> Iterator[None]:
        """Two shards look at a table before either of them commits: one is refused, and must try again."""
        place = self.faults.directory / f"{MEETING}-{table}.place"
        place.mkdir()
        conflicts = self.conflicts
        yield
        assert len(list(place.iterdir())) >= 2, "nobody met"
        shutil.rmtree(place)
        assert self.conflicts > conflicts, "no commit conflicted"
        self.check(complete=True)  # what conflicted was tried again
        self.noted()

    def close(self) -> None:
        self._kill_all()
        self.resources.close()

    def _kill_all(self) -> None:
        for session in self._sessions:
            session.connector.kill()
        self._shards = None

    @property
    def _sessions(self) -> Sequence[Session]:
        return self._shards.sessions if self._shards else ()

    @property
    def conflicts(self) -> int:
        return sum(self.log.count(f"commit attempt 1: {refused}") for refused in REFUSED)

    def _share(self, documents: range, held: Any) -> Share:
        return Share(documents, held, self.memo_size)

    def _ends(self, within: int = 2) -> Outcome:
        try:
            self.run_to(Event.RECORDED, within)
        except ConnectorEndedError as ended:
            self._kill_all()
            self.check()
            return ended.outcome
        self.check(complete=True)
        raise PromiseBrokenError("the process went on")


def _with_numbers(collection: Collection, column: str) -> Collection:
    fields = [replace(each, types=("number",)) if each.name == column else each for each in collection.fields]
    return replace(collection, fields=tuple(fields))


def _expect_killed(*outcomes: Outcome) -> None:
    for outcome in outcomes:
        if outcome.status != -signal.SIGKILL:
            raise ConnectorEndedError(outcome)
