"""Speaks the protocol with a connector in a process of its own, as the runtime does."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from connector.host.errors import ConnectorError
from connector.spark.jvm.jvm_command import make_python_path

WIDTH: Final = 116  # characters of a line that is shown


class ConversationEndedError(ConnectorError):
    """The connector's process has ended where it should not."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"The connector ended with status {self.status}. Its last line above says why."


class Conversation:
    """The requests to a connector process, and its responses, which are shown. The process logs to stderr."""

    def __init__(self, show: Callable[[str], None], log_level: str) -> None:
        """`show` gets each response line, shortened. `log_level` holds if the environment has no LOG_LEVEL."""
        self.lines = 0  # that were sent
        self._show = show
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "connector"],  # -P: not a connector.py of the current directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"LOG_FORMAT": "text", "LOG_LEVEL": log_level, **os.environ, "PYTHONPATH": make_python_path()},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the input, and wait for the process. After an error, the process is not to say that its input ends where
        it should not."""
        if error:
            self._process.terminate()
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def ask(self, request: bytes) -> Any:
        """Send a request, and return what is in its response. Raises ConversationEndedError if there is none."""
        self.send(request + b"\n")
        if not (line := self.receive()):
            raise ConversationEndedError(self.finish())
        ((_, answer),) = msgspec.json.decode(line).items()
        return answer

    def send(self, line: bytes) -> None:
        """Send a line. Raises ConversationEndedError if the process reads no more."""
        self.lines += 1
        try:
            self._stdin.write(line)
            if not line.startswith((b'{"store"', b'{"load"')):
                self._stdin.flush()
        except BrokenPipeError:
            raise ConversationEndedError(self.finish()) from None

    def receive(self) -> bytes:
        """Return the next response line, after it is shown. It is empty when the process has ended."""
        if line := self._stdout.readline():
            self._show(shorten(line))
        return line

    def feed(self, lines: Iterable[bytes]) -> None:
        """Send all lines, and end the input. Meanwhile, another thread must read the responses."""
        try:
            with self._stdin:
                self._stdin.writelines(lines)
        except BrokenPipeError:
            return  # the process has ended, and its status and last line say why

    def finish(self) -> int:
        """End the input, show the rest of the responses, and return the exit status."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Show the rest of the responses, and return the exit status."""
        while self.receive():
            pass
        return self._process.wait()


def shorten(line: bytes) -> str:
    """Return the line as it is shown to a person."""
    text = line.decode().rstrip()
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"
