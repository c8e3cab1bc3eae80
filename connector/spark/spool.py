"""The spool: Store lines between stdin and the tasks that write data files.

Lines are appended, as they came, to one block for each binding; a full block is sealed and may be claimed. The spool is
bounded: when tasks fall behind, `add` waits, stdin is not read, and the runtime waits too.
"""

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

from connector.host.errors import RetryableError
from connector.spark.blocks import Block, OpenBlock
from connector.spark.limits import SPOOL_LIMIT
from protocol.request import Store

BLOCK_SIZE: Final = 32 << 20  # bytes: large enough to pay for its claim, small enough to spread over the cores
CLAIMANT_CHECK: Final = 1.0  # seconds between two looks whether a task that waits for a block has been killed


class Spool:
    """One transaction's Store lines. One thread adds, any number of threads claim."""

    def __init__(self, directory: Path, block_size: int = BLOCK_SIZE, limit: int = SPOOL_LIMIT) -> None:
        directory.mkdir()
        self._directory = directory
        self._block_size = block_size
        self._limit = limit
        self._open: dict[int, OpenBlock] = {}
        self._sealed: list[Block] = []
        self._claimed: set[Block] = set()
        self._encoded: set[Block] = set()  # but not yet in a file that counts
        self._size = 0
        self._numbers = count(1)
        self._is_complete = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def add(self, store: Store) -> None:
        """Append a run; waits while the spool is full. Raises the error that `fail` was given."""
        with self._on_disk():
            block = self._open.get(store.binding) or self._new_block(store.binding)
            block.append(store)
        with self._changed:
            self._size += store.size
            if block.size >= self._block_size:
                self._seal(block)
            if self._size > self._limit:
                self._seal_all()  # a spool full of half-filled blocks would otherwise wait for ever
                self._changed.wait_for(lambda: self._size <= self._limit or self._error)
            self.check()

    def complete(self) -> None:
        """There are no more lines: what is left may be claimed, and claims end when all blocks are encoded."""
        with self._changed:
            self._seal_all()
            self._is_complete = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """The transaction cannot be staged: `add` and claims raise this error. The first one is kept."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def wait_for(self, job: Future[Any]) -> None:
        """Return when the job that claims blocks is over, or raise the error that `fail` is given before."""
        job.add_done_callback(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: job.done() or self._error)
            self.check()

    def remove(self) -> None:
        """Remove the spool's directory, whatever is left in it."""
        for block in self._open.values():
            block.file.close()
        shutil.rmtree(self._directory)

    def check(self) -> None:
        """Raise the error that `fail` was given, if any."""
        if self._error:
            raise self._error

    def claim(self, preferred: int | None, has_left: Callable[[], bool] = lambda: False) -> Block | None:
        """A block, of the preferred binding if there is one; None when there are no more, or the claimant `has_left`.

        Waits for blocks that may still come, those of claimed blocks' strays included. Raises the error of `fail`.
        """
        with self._changed:
            while not self._changed.wait_for(self._is_claim_answered, CLAIMANT_CHECK):
                if has_left():
                    return None
            self.check()
            if not self._sealed or has_left():
                return None
            block = next((block for block in self._sealed if block.binding == preferred), self._sealed[0])
            self._sealed.remove(block)
            self._claimed.add(block)
            return block

    def encoded(self, block: Block) -> None:
        """A claimed block is encoded, and its strays were returned: its file is deleted to make room."""
        block.path.unlink(missing_ok=True)
        with self._changed:
            self._claimed.remove(block)
            self._encoded.add(block)
            self._size -= block.size
            self._changed.notify_all()

    def written(self, blocks: Iterable[Block]) -> None:
        """Every row of these encoded blocks is in a file that counts."""
        with self._changed:
            self._encoded.difference_update(blocks)

    def give_back(self, blocks: Collection[Block]) -> None:
        """Let claimed or encoded blocks be claimed again: their rows are in no file that counts."""
        with self._changed:
            self._size += sum(block.size for block in self._encoded.intersection(blocks))
            self._claimed.difference_update(blocks)
            self._encoded.difference_update(blocks)
            self._sealed.extend(blocks)
            self._changed.notify_all()

    def check_written(self) -> None:
        """To be called when nobody claims any more: raises unless every row is in a file that counts."""
        self.check()
        if left := [*self._open.values(), *self._sealed, *self._claimed, *self._encoded]:
            raise RetryableError(
                f"{len(left)} block(s) of rows have been written to no file. Nothing of this transaction has become "
                "visible."
            )

    def add_strays(self, binding: int, lines: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Take back lines that were spooled under a wrong binding, to be claimed under their own."""
        with self._changed, self._on_disk():
            block = self._new_block(binding, keep=False)
            for line, number in zip(lines, numbers, strict=True):
                block.append(Store(binding, number, 1, (line,)))
            self._size += block.size
            self._sealed.append(block.seal())
            self._changed.notify_all()

    def _is_claim_answered(self) -> bool:
        return bool(self._sealed or self._error or (self._is_complete and not self._claimed))

    def _wake(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        """A write that fails ends the transaction: a line that is only partly on disk must never be claimed."""
        try:
            yield
        except OSError as error:
            raise RetryableError(
                f"the disk that holds {self._directory} takes no more ({error.strerror}): rows wait there until their "
                f"data files are written, up to {self._limit >> 20} MiB. Nothing of this transaction has become "
                "visible. Make room, or set TMPDIR to a directory on a larger disk."
            ) from error

    def _new_block(self, binding: int, keep: bool = True) -> OpenBlock:
        path = self._directory / f"{next(self._numbers)}-{binding}.jsonl"
        block = OpenBlock(binding, path, path.open("xb", buffering=0))
        if keep:
            self._open[binding] = block
        return block

    def _seal(self, block: OpenBlock) -> None:
        del self._open[block.binding]
        self._sealed.append(block.seal())
        self._changed.notify_all()

    def _seal_all(self) -> None:
        for block in list(self._open.values()):
            self._seal(block)
