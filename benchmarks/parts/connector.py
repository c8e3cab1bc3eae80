"""A connector process that a benchmark talks to. If it fails, the benchmark ends without figures."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Self

BARE: Final = (sys.executable, "-m", "connector")
LOGGED: Final = {"LOG_FORMAT": "json", "LOG_LEVEL": "info"}


class Connector:
    """One process, in a directory of its own. `log` is a file that gets its log as lines of JSON."""

    def __init__(self, directory: Path, command: Sequence[str | Path] = BARE, log: Path | None = None) -> None:
        with log.open("ab") if log else nullcontext() as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={"LOG_LEVEL": "warn", **os.environ, **(LOGGED if log else {})},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def input(self) -> int:
        """The descriptor that it reads from."""
        return self._stdin.fileno()

    def send(self, *lines: bytes) -> None:
        self._stdin.writelines(lines)
        self._stdin.flush()

    def expect(self, *kinds: str) -> bytes:
        """Read an answer of each of these kinds, in this order; the last of them."""
        answer = b""
        for kind in kinds:
            answer = self._stdout.readline()
            if not answer.startswith(b'{"%s"' % kind.encode()):
                sys.exit(f"{kind} was expected, not {answer[:200]!r}: nothing is reported")
        return answer

    def receive_until(self, kind: str) -> Iterator[bytes]:
        """Yield the answers before one of this kind, which is read too."""
        end = b'{"%s"' % kind.encode()
        while not (answer := self._stdout.readline()).startswith(end):
            if not answer:
                sys.exit(f"{kind} was expected, not the end: nothing is reported")
            yield answer

    def end(self) -> None:
        """End the input, and wait for the process."""
        self._stdin.close()
        if status := self._process.wait():
            sys.exit(f"the connector ended with status {status}: nothing is reported")
