"""Whatever asks the process to stop reaches the main thread, also while it waits."""

import os
import select
import signal
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
