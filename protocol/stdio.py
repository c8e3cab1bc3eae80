"""The wire: the only reader of stdin and the only writer of stdout."""

import fcntl
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NewType

from protocol.codec import encode_response
from protocol.lines import LONGEST_LINE, Numbered, RequestParser
from protocol.protocol_error import ProtocolError
from protocol.request import Request
from protocol.response import Response

STDERR: Final = 2
_BLOCK: Final = 1 << 20
QUEUED_BYTES: Final = 16 << 20  # more makes nothing faster: what is taken from it goes to a spool

Wire = NewType("Wire", int)  # a descriptor


def ensure_stderr() -> None:
    """Where stderr is closed, drop what is written to it. Its descriptor would else become the next file's or the
    wire's, and get the log."""
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)
        if nowhere != STDERR:
            os.close(nowhere)
        os.set_inheritable(STDERR, True)  # children have it open too
        sys.stderr = open(STDERR, "w", closefd=False)  # noqa: SIM115


def claim_stdout() -> Wire:
    """From now on whoever prints, in this process or a child of it, prints to stderr."""
    wire = os.dup(1)  # not inheritable: a child that outlives us cannot keep the session open
    os.set_blocking(wire, True)  # who started us may have it otherwise
    os.dup2(STDERR, 1)
    # Its buffer would reach stderr at exit, after the last log record.
    sys.stdout = sys.stderr
    return Wire(wire)


def write_response(wire: Wire, response: Response) -> None:
    """Return when the whole line has been handed over."""
    rest = memoryview(encode_response(response))
    while rest:
        rest = rest[os.write(wire, rest) :]


class RequestReader:
    """The requests of a descriptor, read ahead by a thread: a bounded queue of them.

    Where the input ends the iteration stops, and where it breaks the error is raised, both in order and every time.
    """

    def __init__(self, descriptor: int, queued_bytes: int = QUEUED_BYTES, longest_line: int = LONGEST_LINE) -> None:
        self.line = 0  # the number of the line of the last request taken, a run's first one
        self._descriptor = descriptor
        self._parser = RequestParser(longest_line)
        self._queued_bytes = queued_bytes
        self._queue: deque[Numbered] = deque()
        self._kinds: Counter[type] = Counter()  # of what is queued
        self._size = 0  # of what is queued
        self._next_size = 0  # of what the thread is about to queue
        self._ending: Exception | None = None
        self._interruption: Exception | None = None
        self._changed = threading.Condition()
        os.set_blocking(descriptor, True)
        if sys.platform == "linux":
            with suppress(OSError):  # not a pipe
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _BLOCK)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._ending or self._interruption)
            if self._interruption:
                raise self._interruption
            if not self._queue:
                assert self._ending
                raise self._ending
            self.line, size, message = self._queue.popleft()
            assert not isinstance(message, ProtocolError), "errors are not queued"
            self._size -= size
            self._kinds[type(message)] -= 1
            self._changed.notify_all()
        return message

    def wait_for(self, kinds: tuple[type[Request], ...], timeout: float) -> bool:
        """Wait until one of these requests is queued or none can come: the input has ended, the queue is full or the
        reader was interrupted."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_over() or self._is_full() or any(self._kinds[kind] for kind in kinds), timeout
            )

    def interrupt(self, error: Exception) -> None:
        """Raise this error instead of returning any further request, from whatever thread."""
        with self._changed:
            self._interruption = error
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._ending is not None or self._interruption is not None

    def _is_full(self) -> bool:
        return bool(self._queue) and self._size + self._next_size > self._queued_bytes

    def _read(self) -> None:
        ending: Exception = AssertionError("the thread that reads requests has failed")
        try:
            while block := os.read(self._descriptor, _BLOCK):
                self._put(self._parser.receive(block))
            self._put(self._parser.end())
            ending = StopIteration()
        except (ProtocolError, OSError, MemoryError) as error:
            ending = error
        finally:
            with self._changed:
                self._ending = ending
                self._changed.notify_all()

    def _put(self, requests: list[Numbered]) -> None:
        with self._changed:
            for numbered in requests:
                if isinstance(numbered.request, ProtocolError):
                    raise numbered.request
                self._next_size = numbered.size
                while self._is_full():
                    self._changed.notify_all()
                    self._changed.wait()
                self._next_size = 0
                self._queue.append(numbered)
                self._size += numbered.size
                self._kinds[type(numbered.request)] += 1
            self._changed.notify_all()
