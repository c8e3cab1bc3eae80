"""Reads requests from stdin and writes responses to stdout. No other module does either."""

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
QUEUED_BYTES: Final = 16 << 20  # a longer queue is not faster: requests that leave it go to the spool

Wire = NewType("Wire", int)  # a descriptor


def ensure_stderr() -> None:
    """Let each log record be written, also if the parent process has made stderr non-blocking.

    If stderr is closed, open it and drop all output to it. Otherwise the next file, or the wire, would get its
    descriptor, and the log would be written there.
    """
    if sys.stderr is None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDERR)
        if null != STDERR:
            os.close(null)
        os.set_inheritable(STDERR, True)  # child processes need it too
        sys.stderr = open(STDERR, "w", closefd=False)  # noqa: SIM115
    os.set_blocking(STDERR, True)


def claim_stdin() -> int:
    """Return a private duplicate of stdin. From now on, this process's children find no input instead of requests."""
    requests = os.dup(0)  # not inheritable
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return requests


def claim_stdout() -> Wire:
    """Return a private duplicate of stdout. From now on, this process and its children print to stderr instead."""
    wire = os.dup(1)  # not inheritable: a child that outlives this process must not keep the wire open
    os.set_blocking(wire, True)  # the parent process may have made it non-blocking
    os.dup2(STDERR, 1)
    # Python would flush the buffer of the old sys.stdout at exit, after the last log record.
    sys.stdout = sys.stderr
    return Wire(wire)


def write_response(wire: Wire, response: Response) -> None:
    """Write one line. Returns after its last byte is written, raises OSError."""
    rest = memoryview(encode_response(response))
    while rest:
        rest = rest[os.write(wire, rest) :]


class RequestReader:
    """Iterates over the requests of a descriptor. A thread reads ahead into a bounded queue.

    After the last request the iteration stops. If a line is invalid or reading fails, the iteration raises the error
    after all earlier requests. Each further call does the same again.
    """

    def __init__(self, descriptor: int, queued_bytes: int = QUEUED_BYTES, longest_line: int = LONGEST_LINE) -> None:
        self.line = 0  # the line number of the last request that was returned, or of a run's first line
        self._descriptor = descriptor
        self._parser = RequestParser(longest_line)
        self._queued_bytes = queued_bytes
        self._queue: deque[Numbered] = deque()
        self._kinds: Counter[type] = Counter()  # of the queued requests
        self._size = 0  # bytes in the queue
        self._next_size = 0  # bytes that the thread is about to queue
        self._ending: Exception | None = None
        self._interruption: Exception | None = None
        self._changed = threading.Condition()
        os.set_blocking(descriptor, True)
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux has it
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
        """Wait until a request of these kinds is queued, or until no more can be queued: the input has ended, the queue
        is full, or the reader was interrupted. `timeout` is in seconds; returns False if it has passed."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_over() or self._is_full() or any(self._kinds[kind] for kind in kinds), timeout
            )

    def interrupt(self, error: Exception) -> None:
        """Let the iteration raise this error instead of returning further requests. Any thread may call this."""
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
        except (ProtocolError, MemoryError) as error:
            ending = error
        except OSError as error:
            ending = ProtocolError(
                f"stdin cannot be read: {error.strerror}. It must be a pipe or a file that is open for reading"
            )
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
