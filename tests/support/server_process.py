"""A server in a process of its own on a free loopback port: started, waited for, and ended."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

ENDS_WITH_ITS_PARENT: Final = Path(__file__).with_name("ends_with_its_parent.py")
START_DEADLINE: Final = 180.0  # seconds: a JVM on a loaded machine


def free_address() -> str:
    """Host and port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host, port = listener.getsockname()
        return f"{host}:{port}"


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], answers_at: str, log: Path, user: str = ""
) -> Iterator[None]:
    """Run a server while the context lasts, which begins when something answers at the address.

    It also ends with this process, or rather with this thread of it: tests may be interrupted or killed.
    """
    tied = [sys.executable, "-IS", str(ENDS_WITH_ITS_PARENT), str(os.getpid()), user, *command]
    with log.open("ab") as output:
        process = subprocess.Popen(
            tied,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_it_answers(answers_at, process, log)
        yield
    finally:
        process.kill()
        process.wait()


def _ask(address: str) -> None:
    place = urlsplit(address)
    if place.scheme == "http":
        with urlopen(address, timeout=5):
            return
    with socket.create_connection((place.hostname, place.port), timeout=5):
        return


def _wait_until_it_answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        try:
            _ask(address)
            return
        except HTTPError as refusal:
            refusal.close()
            return
        except (URLError, ConnectionError, TimeoutError):
            try:
                status = process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"{process.args!r} ended with status {status}:\n{log.read_text()}") from None
    raise AssertionError(f"{process.args!r} did not answer within {START_DEADLINE:.0f} s:\n{log.read_text()}")
