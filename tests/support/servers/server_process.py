"""A server in a process of its own on a free loopback port: started, waited for, and ended."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
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


def _answers(address: str) -> bool:
    """Return whether a server answers. A refusal is an answer, too, but "unavailable" is not: it is still starting."""
    place = urlsplit(address)
    try:
        if place.scheme == "http":
            with urlopen(address, timeout=5):
                return True
        with socket.create_connection((place.hostname, place.port), timeout=5):
            return True
    except HTTPError as refusal:
        refusal.close()
        return refusal.code != HTTPStatus.SERVICE_UNAVAILABLE
    except (URLError, ConnectionError, TimeoutError):
        return False


def _wait_until_it_answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE
    while not _answers(address):
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(0.1)
            raise AssertionError(f"{process.args!r} ended with status {status}:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"{process.args!r} did not answer within {START_DEADLINE:.0f} s:\n{log.read_text()}")
