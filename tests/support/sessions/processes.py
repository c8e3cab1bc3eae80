"""Everything that a process has started, found by a mark in the environment that its children inherit."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MARK: Final = "CONNECTOR_TEST_RUN"
DEADLINE: Final = 20.0  # seconds: generous, so that only a process that would have stayed is found


def new_mark() -> dict[str, str]:
    return {MARK: uuid.uuid4().hex}


def marked(mark: dict[str, str]) -> dict[int, str]:
    """The living processes of a run, with their command lines."""
    wanted = f"{MARK}={mark[MARK]}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended meanwhile, or is not ours to look at
            continue
    return {pid: command for pid, command in found.items() if command and pid != os.getpid()}


def wait_until(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Whether it came true before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def heeded_signals() -> Iterator[None]:
    """Meanwhile, new processes heed SIGINT and SIGHUP. A shell that runs the tests in the background, or nohup, would
    have them ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
