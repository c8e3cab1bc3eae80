"""Whatever asks the process to stop reaches the main thread, also while it waits."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from connector.host import signals

# The kernel may give a signal to another thread, or to the main thread just before it begins to wait. Both leave it
# waiting, so this does the same each time.
WAITING: Final = """
import os, signal, sys, threading
from connector.host import signals

signal.signal(int(sys.argv[1]), signal.SIG_DFL)  # what started this may have had it ignored
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
signals.install(1)
main = threading.main_thread().native_id

def signal_another_thread():
    while open(f"/proc/self/task/{main}/stat").read().rpartition(")")[2].split()[0] != "S":
        pass
    signal.pthread_kill(threading.get_ident(), int(sys.argv[1]))

never = threading.Lock()
never.acquire()
threading.Thread(target=signal_another_thread).start()
try:
    never.acquire()
except signals.Stopped as stopped:
    sys.exit(stopped.exit_status)
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signals.UNREAD, 141)]
)
def test_a_signal_that_another_thread_gets_ends_a_wait_of_the_main_thread(number: int, status: int) -> None:
    command = [sys.executable, "-c", WAITING, str(int(number))]
    assert subprocess.run(command, timeout=30, capture_output=True).returncode == status


ANNOUNCING: Final = """
import os, signal
from connector.host import signals

signals.announce_sigterm(os.kill)(os.getpid(), signal.SIGTERM)
"""


def test_sigterm_ends_a_process_that_announces_it() -> None:
    ended = subprocess.run([sys.executable, "-c", ANNOUNCING], timeout=30, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, f"{signals.ENDED_BY_SIGTERM}\n")


HANGING: Final = """
import os, socket, sys, threading, time
from connector.host import signals, threads

signals.LOOKS, signals.LOOK_PAUSE = 3, 0.05
other = socket.socket(fileno=int(sys.argv[1]))
never = threading.Lock()
never.acquire()
{block}
print("has ended by itself")
"""
HANGS: Final = "with signals.ending_if_it_hangs(): never.acquire()"
GOES_ON: Final = {
    "works": """
end = time.monotonic() + 1
with signals.ending_if_it_hangs():
    while time.monotonic() < end: time.sleep(0.01)
""",
    "waits for another process": """
with signals.ending_if_it_hangs(), signals.waiting():
    never.acquire(timeout=1)
""",
    "waits for a call with a limit of its own": """
with signals.ending_if_it_hangs():
    threads.call_within(30, lambda: never.acquire(timeout=1))
""",
    "has done its work": """
with signals.ending_if_it_hangs(): pass
never.acquire(timeout=1)
""",
}


def run_with(connection: socket.socket, block: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HANGING.format(block=block), str(connection.fileno())]
    return subprocess.run(command, timeout=30, capture_output=True, text=True, pass_fds=[connection.fileno()])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a thread goes on")
def test_a_process_that_hangs_ends_and_its_connections_with_it() -> None:
    ours, others = socket.socketpair()  # `others` stays open: a process may not end before what the kernel waits for
    with ours, others:
        ended = run_with(others, HANGS)
        ours.setblocking(False)
        assert ours.recv(1) == b""
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{signals.ENDED_BECAUSE_IT_HANGS}\n")


@pytest.mark.parametrize("block", GOES_ON.values(), ids=GOES_ON)
def test_a_process_that_goes_on_or_waits_for_another_one_does_not_end(block: str) -> None:
    ours, others = socket.socketpair()
    with ours, others:
        ended = run_with(others, block)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "has ended by itself\n", "")


IGNORING: Final = """
import signal, sys
from connector.host import signals

number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
signals.install()
try:
    signal.raise_signal(number)
except signals.Stopped as stopped:
    sys.exit(stopped.exit_status)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 0), (signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_that_nohup_or_a_shell_has_had_ignored_stays_ignored(number: int, status: int) -> None:
    command = [sys.executable, "-c", IGNORING, str(int(number))]
    assert subprocess.run(command, timeout=30, capture_output=True).returncode == status


@pytest.fixture
def woken() -> Iterator[tuple[int, int]]:
    """A pipe: what is read from, and what Python would write to."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_closed_pipe_is_a_reason_to_stop(woken: tuple[int, int]) -> None:
    reading, wire = os.pipe()
    os.close(reading)
    try:
        assert signals._wait_for_reason(wire, woken[0]) == signals.UNREAD
    finally:
        os.close(wire)


def test_a_wire_that_cannot_be_watched_is_none(woken: tuple[int, int]) -> None:
    """Poll reports a closed descriptor like macOS reports /dev/null."""
    wire = os.dup(woken[0])
    os.close(wire)
    watch = select.poll()
    watch.register(wire, 0)
    assert watch.poll()[0][1] & select.POLLNVAL
    os.write(woken[1], bytes([signal.SIGTERM]))
    assert signals._wait_for_reason(wire, woken[0]) == signal.SIGTERM
