import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import pytest

from protocol import request, response
from protocol.lines import LONGEST_LINE
from protocol.protocol_error import ProtocolError
from protocol.request import Store
from protocol.stdio import QUEUED_BYTES, RequestReader, Wire, write_response
from support.sessions.processes import wait_until
from support.snapshots import check_text

LOAD = b'{"load":{"binding":1}}\n'
FLUSH = b'{"flush":{}}\n'
LOADED = request.Load(1, 1, 1, (LOAD,))
STORE = b'{"store":{"binding":1,"key":[1],"values":["' + b"x" * 1000 + b'"]}}\n'
LONG_ENOUGH = 60.0  # seconds; only a test that fails waits for them


def start_reader(
    descriptor: int, queued_bytes: int = QUEUED_BYTES, longest_line: int = LONGEST_LINE
) -> tuple[RequestReader, threading.Thread]:
    """Return a reader, and the thread that reads for it."""
    others = threading.enumerate()
    reader = RequestReader(descriptor, queued_bytes, longest_line)
    [reading] = (each for each in threading.enumerate() if each.name == "stdin" and each not in others)
    return reader, reading


class Pipe:
    """A pipe, the reader at its end, and threads that write into it what may be more than it holds."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self._readers: list[tuple[RequestReader, threading.Thread]] = []
        self._threads: list[threading.Thread] = []

    def reader(self, queued_bytes: int = QUEUED_BYTES, longest_line: int = LONGEST_LINE) -> RequestReader:
        reader, reading = start_reader(self.reading, queued_bytes, longest_line)
        self._readers.append((reader, reading))
        return reader

    def write(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(self.writing, rest) :]

    def write_all_and_close(self, *texts: bytes) -> None:
        def run() -> None:
            for text in texts:
                self.write(text)
            self.close()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def close(self) -> None:
        os.close(self.writing)
        self.writing = -1

    def clean_up(self) -> None:
        """A reader's thread must have ended before the number of its descriptor is given to another file. It would take
        what is written there, also if the reader was interrupted."""
        for thread in self._threads:
            thread.join(LONG_ENOUGH)
        if self.writing >= 0:
            self.close()
        for reader, reading in self._readers:
            with suppress(ProtocolError):
                deque(reader, maxlen=0)
            reading.join(LONG_ENOUGH)
            assert not reading.is_alive()
        os.close(self.reading)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.clean_up()


def test_a_conversation_may_arrive_byte_by_byte(pipe: Pipe) -> None:
    text = b'{"open":{"version":"1"}}\n\n{"store":{"key":[1],"binding":3}}\r\n{"startCommit":{}}'
    reader = pipe.reader()
    pipe.write_all_and_close(*(text[at : at + 1] for at in range(len(text))))
    requests = [(reader.line, message) for message in reader]
    assert requests == [
        (1, request.Open(version="1")),
        (3, Store(3, 3, 1, (b'{"store":{"key":[1],"binding":3}}\r\n',))),
        (4, request.StartCommit()),
    ]


def test_lines_of_64_mib_arrive_whole(pipe: Pipe) -> None:
    large = b'{"store":{"binding":2,"key":["' + b"x" * (64 << 20) + b'"]}}\n'
    reader = pipe.reader()
    pipe.write_all_and_close(STORE, large, STORE, FLUSH)
    lines: dict[int, list[bytes]] = {}
    for message in reader:
        if isinstance(message, Store):
            lines.setdefault(message.binding, []).extend(bytes(piece) for piece in message.pieces)
    assert b"".join(lines[1]) == STORE * 2
    assert b"".join(lines[2]) == large
    assert reader.line == 4


def test_whole_lines_are_passed_on_before_the_next_one_is_whole(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write(STORE + FLUSH + STORE[:10])
    assert isinstance(next(reader), Store)
    assert next(reader) == request.Flush()


def test_the_iteration_stops_where_the_input_ends_and_stays_there(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write_all_and_close(FLUSH)
    assert list(reader) == [request.Flush()]
    assert list(reader) == []


def test_a_broken_line_is_raised_at_its_place(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write_all_and_close(LOAD, STORE, b"\n{}\n", FLUSH)
    assert next(reader) == LOADED
    assert isinstance(next(reader), Store)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=r"^line 4: no message"):
            next(reader)


def test_a_line_that_never_ends_is_raised(pipe: Pipe) -> None:
    reader = pipe.reader(longest_line=2 << 20)
    pipe.write_all_and_close(FLUSH, b"x" * ((2 << 20) + 1))
    assert next(reader) == request.Flush()
    with pytest.raises(ProtocolError, match=r"^line 2: longer than 2 MiB"):
        next(reader)


def test_a_descriptor_that_cannot_be_read_is_raised(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    reader = RequestReader(directory)
    with pytest.raises(ProtocolError) as error:
        next(reader)
    os.close(directory)
    check_text("protocol_errors", "a stdin that cannot be read", str(error.value))


def has_ended_or_waits(thread: threading.Thread) -> bool:
    """Whether the thread does nothing until something changes."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is None or frame.f_code is threading.Condition.wait.__code__


def test_no_more_is_read_ahead_than_the_queue_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "stores"
    path.write_bytes(STORE * 16_000)
    with path.open("rb") as file:
        reader, reading = start_reader(file.fileno(), queued_bytes=4 << 20)
        assert reader.wait_for((), LONG_ENOUGH), "the queue is full"
        assert wait_until(lambda: has_ended_or_waits(reading))
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 5 << 20  # what is queued, and the block that must wait
        assert sum(message.count for message in reader if isinstance(message, Store)) == 16_000


def test_a_request_larger_than_the_queue_is_let_through(pipe: Pipe) -> None:
    reader = pipe.reader(queued_bytes=1)
    pipe.write_all_and_close(LOAD, STORE, FLUSH)
    assert [type(message) for message in reader] == [request.Load, Store, request.Flush]


def test_a_queued_request_is_seen_and_not_taken(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write(LOAD + FLUSH)
    assert reader.wait_for((request.Acknowledge, request.Flush), LONG_ENOUGH)
    assert next(reader) == LOADED
    assert next(reader) == request.Flush()


def test_a_request_that_comes_while_waiting_is_seen(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write(LOAD)
    assert reader.wait_for((request.Load,), LONG_ENOUGH)
    writer = threading.Timer(0.05, pipe.write, [FLUSH])
    writer.start()
    assert reader.wait_for((request.Flush,), LONG_ENOUGH)
    writer.join()


def test_waiting_for_what_does_not_come_ends_at_the_time_out(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write(LOAD + FLUSH)
    assert reader.wait_for((request.Flush,), LONG_ENOUGH)
    assert not reader.wait_for((request.StartCommit,), 0.01)
    assert [next(reader), next(reader)] == [LOADED, request.Flush()]
    assert not reader.wait_for((request.Load, request.Flush), 0.01), "both have been taken"


@pytest.mark.parametrize("end", [b"", b"{}\n"])
def test_the_end_of_the_input_ends_the_waiting(pipe: Pipe, end: bytes) -> None:
    reader = pipe.reader()
    pipe.write_all_and_close(LOAD, end)
    assert reader.wait_for((request.Flush,), LONG_ENOUGH)
    assert next(reader) == LOADED


def test_a_full_queue_ends_the_waiting_until_there_is_room(pipe: Pipe) -> None:
    reader = pipe.reader(queued_bytes=2 * len(LOAD))
    pipe.write(LOAD + b"\n" + LOAD + b"\n" + LOAD)  # blank lines keep them apart
    assert reader.wait_for((request.Flush,), LONG_ENOUGH)
    assert next(reader) == LOADED
    assert not reader.wait_for((request.Flush,), 0.01)


class InterruptedByTestError(Exception):
    pass


@contextmanager
def interruption(pipe: Pipe) -> Iterator[None]:
    """A signal whose handler raises; were it not heard, the end of the input would end the wait."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptedByTestError(number, frame)

    give_up = threading.Timer(LONG_ENOUGH / 4, pipe.close)
    give_up.start()
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        give_up.cancel()


def test_a_signal_interrupts_the_wait_for_the_next_request(pipe: Pipe) -> None:
    reader = pipe.reader()
    with pytest.raises(InterruptedByTestError), interruption(pipe):
        next(reader)
    pipe.write(FLUSH)
    assert next(reader) == request.Flush()


def test_a_signal_interrupts_waiting_for_a_kind_of_request(pipe: Pipe) -> None:
    reader = pipe.reader()
    with pytest.raises(InterruptedByTestError), interruption(pipe):
        reader.wait_for((request.Flush,), LONG_ENOUGH)


def test_an_error_of_another_thread_is_raised_instead_of_what_is_queued(pipe: Pipe) -> None:
    reader = pipe.reader()
    pipe.write_all_and_close(LOAD)
    assert reader.wait_for((request.Load,), LONG_ENOUGH)
    reader.interrupt(ProtocolError("another thread has failed"))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="another thread has failed"):
            next(reader)


def test_an_error_of_another_thread_ends_the_waiting(pipe: Pipe) -> None:
    reader = pipe.reader()
    threading.Timer(0.05, reader.interrupt, [ProtocolError("another thread has failed")]).start()
    assert reader.wait_for((request.Flush,), LONG_ENOUGH)
    with pytest.raises(ProtocolError, match="another thread has failed"):
        next(reader)


def test_a_response_is_written_whole_even_if_a_pipe_holds_less(pipe: Pipe) -> None:
    expected = b'{"loaded":{"binding":1,"doc":"' + b"x" * (4 << 20) + b'"}}\n'
    answer = response.Loaded(expected)
    writer = threading.Thread(target=write_response, args=(Wire(pipe.writing), answer))
    writer.start()
    with os.fdopen(os.dup(pipe.reading), "rb") as file:
        assert file.read(len(expected)) == expected
    writer.join()


def test_nobody_reading_the_responses_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write_response(Wire(writing), response.Opened())
    os.close(writing)


def test_a_pipe_that_does_not_wait_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.reading, False)
    reader = pipe.reader()
    assert not reader.wait_for((request.Flush,), 0.1)
    pipe.write(FLUSH)
    assert next(reader) == request.Flush()


def test_a_stdout_that_does_not_wait_is_waited_for(pytestconfig: pytest.Config, pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    program = "import os; from protocol import stdio; print(os.get_blocking(stdio.claim_stdout()))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, stdout=pipe.writing, stderr=subprocess.PIPE, check=True)
    assert done.stderr == b"True\n"


def test_a_stderr_that_does_not_wait_is_waited_for(pytestconfig: pytest.Config, pipe: Pipe) -> None:
    """Otherwise records would be lost while it is full, and among them the last one, which says why a process ended."""
    os.set_blocking(pipe.writing, False)
    program = "import os; from protocol import stdio; stdio.ensure_stderr(); print(os.get_blocking(2))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, stdout=subprocess.PIPE, stderr=pipe.writing, check=True)
    assert done.stdout == b"True\n"


CLAIMING = """
import os, subprocess, sys
from protocol import response, stdio
wire = stdio.claim_stdout()
print("print")
os.write(1, b"descriptor\\n")
subprocess.run(["echo", "child"], check=True)
held = subprocess.run([sys.executable, "-c", f"import os; os.fstat({wire})"], close_fds=False, capture_output=True)
print("held" if held.returncode == 0 else "not held")
stdio.write_response(wire, response.Opened())
"""


def test_once_stdout_is_claimed_only_responses_reach_it(pytestconfig: pytest.Config) -> None:
    command = [sys.executable, "-c", CLAIMING]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, cwd=pytestconfig.rootpath, env=buffered, capture_output=True, check=True)
    assert done.stdout == b'{"opened":{}}\n'
    assert done.stderr.split() == [b"print", b"descriptor", b"child", b"not", b"held"]
