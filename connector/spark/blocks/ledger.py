"""The ledger: where every block of a transaction is, and why the transaction has failed, if it has.

A block is on the spool, with a task (claimed or encoded), or in counted files. A task's files and the blocks that they
hold are counted in one step. So every block is in one counted file, or the transaction fails, however its tasks end.
Sorted runs are counted like files.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from connector.encoding.values.arrays import Words
from connector.host import facts
from connector.host.errors import RetryableError
from connector.host.facts import FullSpool
from connector.model.invalid_values import Tally
from connector.model.state import DataFile
from connector.spark.blocks.spool import Block, Spool
from connector.spark.blocks.transaction_files import StoredRun
from protocol.request import Store

CLAIMANT_CHECK: Final = 1.0  # seconds between two looks whether a task that waits for a block has been killed


@dataclass
class TaskOutput:
    """What tasks have made of blocks: durable files and runs with every row of them."""

    files: dict[int, tuple[DataFile, ...]] = field(default_factory=dict)  # by table: its binding's index
    runs: dict[int, tuple[StoredRun, ...]] = field(default_factory=dict)  # by table; they are to be merged into files
    treated: dict[int, Tally] = field(default_factory=dict)  # values not written as they were sent, by binding
    existing_keys: dict[int, tuple[Words, ...]] = field(default_factory=dict)  # hashes of those whose rows exist

    def add(self, other: "TaskOutput") -> None:
        """Add what was made of other blocks. Tables and bindings of which there is nothing are left out."""
        for index, files in other.files.items():
            if files:
                self.files[index] = self.files.get(index, ()) + files
        for index, runs in other.runs.items():
            if runs:
                self.runs[index] = self.runs.get(index, ()) + runs
        for binding, treated in other.treated.items():
            if treated:
                self.treated.setdefault(binding, Tally()).add_all(treated)
        for binding, existing in other.existing_keys.items():
            if existing:
                self.existing_keys[binding] = self.existing_keys.get(binding, ()) + existing


@dataclass(eq=False)
class TaskAccount:
    """The blocks of one task that are in no counted file yet. Only the ledger changes it."""

    claimed: Block | None = None  # the block that the task is encoding
    encoded: list[Block] = field(default_factory=list)
    strays: list[Sequence[Store]] = field(default_factory=list)  # of the claimed block

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the task, claimed or encoded."""
        return [*self.encoded, *([self.claimed] if self.claimed else [])]


class Ledger:
    """One transaction's blocks and files, and its failure. One thread adds; each task has a thread that claims."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._spooled: list[Block] = []  # sealed, and with no task: the oldest first
        self._tasks: list[TaskAccount] = []
        self._counted = TaskOutput()
        self._strays_spooled: set[Block] = set()  # given back after their strays were spooled
        self._is_complete = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def add(self, store: Store) -> None:
        """Spool a run of lines; waits while the spool is full. Raises the transaction's failure."""
        full = self._spool.add(store)
        with self._changed:
            self._let_claim(full)
            if not self._spool.has_room:
                self._let_claim(self._spool.seal_all())  # a spool full of half-filled blocks would never get room
                self._wait_for_room()
            self.check()

    def complete(self) -> None:
        """Let the last blocks be claimed. Claims end when no task is encoding a block any more."""
        with self._changed:
            self._let_claim(self._spool.seal_all())
            self._is_complete = True
            self._changed.notify_all()

    def begin_task(self) -> TaskAccount:
        """Open the account of a task that has connected."""
        task = TaskAccount()
        with self._changed:
            self._tasks.append(task)
        return task

    def claim(
        self, task: TaskAccount, preferred: int | None, has_left: Callable[[], bool] = lambda: False
    ) -> Block | None:
        """Give the task a block, of the preferred binding if there is one. The block that it had claimed is encoded.

        Waits for blocks that may still come, the strays of claimed blocks among them. Returns None when no more come,
        or when the task `has_left`. Raises the transaction's failure.
        """
        self._end_block(task)
        with self._changed:
            while not self._changed.wait_for(self._is_claim_answered, CLAIMANT_CHECK):
                if has_left():
                    return None
            self.check()
            if not self._spooled or has_left():
                return None
            block = next((block for block in self._spooled if block.binding == preferred), self._spooled[0])
            self._spooled.remove(block)
            task.claimed = block
            return block

    def note_strays(self, task: TaskAccount, strays: Sequence[Store]) -> None:
        """Keep lines of the claimed block that are of another binding, all of the same one, until it is encoded."""
        task.strays.append(strays)

    def count(self, task: TaskAccount, output: TaskOutput) -> None:
        """Count files and sorted runs of a task, and in the same step all blocks that it has encoded."""
        with self._changed:
            self._counted.add(output)
            task.encoded = []
            self._changed.notify_all()

    def give_back(self, task: TaskAccount) -> None:
        """Let other tasks claim the blocks of a lost task: their rows are in no counted file."""
        with self._changed:
            for block in task.encoded:
                self._spool.take_back(block)
                self._strays_spooled.add(block)
            self._let_claim(task.blocks)
            self._tasks.remove(task)

    def fail(self, error: BaseException) -> None:
        """Fail the transaction: every thread that waits here raises this error. The first error is kept."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the transaction's failure, if there is one."""
        if self._failure:
            raise self._failure

    def wait_for(self, job: Future[Any]) -> bool:
        """Wait until every block is in a counted file, and return True, or until the job that claims them is over.

        Raises the failure as soon as there is one.
        """
        job.add_done_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: self._is_counted() or job.done() or self._failure)
            self.check()
            return self._is_counted()

    @property
    def files(self) -> Mapping[int, tuple[DataFile, ...]]:
        """The data files that are counted until now, by table."""
        with self._changed:
            return {**self._counted.files}

    @property
    def runs(self) -> Mapping[int, tuple[StoredRun, ...]]:
        """The sorted runs that are counted until now, by table."""
        with self._changed:
            return {**self._counted.runs}

    def close(self) -> TaskOutput:
        """Return the counted files and runs when no task claims any more. Raises unless they hold every block."""
        self.check()
        if left := self._list_left():
            bindings = ", ".join(map(str, sorted({*left})))
            raise RetryableError(
                f"Internal error: the Spark job has ended, but {len(left)} block(s) of rows of binding(s) {bindings} "
                "are in no data file. Nothing of this transaction has become visible. Start the task again: it writes "
                "these rows anew. If the error comes back, report it with the log (LOG_LEVEL=debug logs what Spark "
                "says)."
            )
        return self._counted

    def _wait_for_room(self) -> None:
        began = time.monotonic()
        self._changed.wait_for(lambda: self._spool.has_room or self._failure)
        facts.report(FullSpool(time.monotonic() - began))

    def _is_counted(self) -> bool:
        return self._is_complete and not self._list_left()

    def _list_left(self) -> list[int]:
        """Return the binding of each block that is in no counted file."""
        blocks = [*self._spooled, *chain.from_iterable(task.blocks for task in self._tasks)]
        return [*self._spool.open_bindings, *(block.binding for block in blocks)]

    def _end_block(self, task: TaskAccount) -> None:
        """Note that the claimed block is encoded. Its strays are spooled, to be claimed under their own bindings."""
        if block := task.claimed:
            is_spooled = block in self._strays_spooled
            strays = [] if is_spooled else [self._spool.write_strays(strays) for strays in task.strays]
            self._spool.free(block)
            with self._changed:
                self._let_claim(strays)
                task.encoded.append(block)
                task.claimed, task.strays = None, []
                self._changed.notify_all()

    def _let_claim(self, blocks: Sequence[Block]) -> None:
        self._spooled.extend(blocks)
        if blocks:
            self._changed.notify_all()

    def _is_claim_answered(self) -> bool:
        is_encoding = any(task.claimed for task in self._tasks)
        return bool(self._spooled or self._failure or (self._is_complete and not is_encoding))

    def _wake(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()
