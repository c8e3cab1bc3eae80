"""A real connector process, and conversations with it."""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Protocol, Self, TypeAlias

from connector.host.processes import NOT_INHERITED

Json: TypeAlias = Any

CONNECTOR: Final = ("connector",)
# Far more than any conversation of the tests takes: a process that hangs is killed, and its test fails.
DEADLINE: Final = 300.0


@dataclass(frozen=True)
class Answer:
    """One response line: the message's name and what is in it."""

    kind: str
    body: Json

    @classmethod
    def of(cls, line: bytes) -> Self:
        ((kind, body),) = json.loads(line).items()
        return cls(kind, body)


@dataclass(frozen=True)
class Outcome:
    """What became of a process: its exit status, all it answered, and all it logged."""

    status: int
    answers: tuple[Answer, ...]
    log: str

    @property
    def kinds(self) -> list[str]:
        return [answer.kind for answer in self.answers]

    @property
    def last_log_line(self) -> str:
        return self.log.rstrip("\n").rpartition("\n")[2]


class ConnectorEndedError(AssertionError):
    """The process ended where an answer of it was awaited."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"the connector ended with status {outcome.status}:\n{outcome.log}")
        self.outcome = outcome


class Process(Protocol):
    """What subprocess.Popen has in common with a container's first process."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


# Starts a module with its arguments, given the directory to run in, the log to append to and the environment.
Launch: TypeAlias = Callable[[Sequence[str], Path, Path, Mapping[str, str]], Process]


def launch_process(
    module: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str], *, in_own_session: bool = False
) -> Process:
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    with log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**inherited, **environment},
            start_new_session=in_own_session,
        )


class ConnectorProcess:
    """A connector in a directory of its own, spoken to request by request. `module` is what Python runs, with its
    arguments: the connector, or something that alters it first."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        module: Sequence[str] = CONNECTOR,
        launch: Launch = launch_process,
    ) -> None:
        self._log = directory / "connector.log"
        self.process = launch(module, directory, self._log, environment or {})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._answers: list[Answer] = []
        self._deadline = threading.Timer(DEADLINE, self.process.kill)
        self._deadline.daemon = True
        self._deadline.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, *lines: bytes) -> None:
        try:
            self._stdin.write(b"".join(lines))
            self._stdin.flush()
        except BrokenPipeError:
            raise ConnectorEndedError(self._take_all()) from None

    def receive(self) -> Answer:
        line = self._stdout.readline()
        if not line:
            raise ConnectorEndedError(self._take_all())
        self._answers.append(Answer.of(line))
        return self._answers[-1]

    def expect(self, kind: str) -> Json:
        answer = self.receive()
        assert answer.kind == kind, f"{kind} was expected, not {answer}"
        return answer.body

    def has_answered(self) -> bool:
        """Whether there is something to receive: what was answered is received whole here."""
        readable, _, _ = select.select([self._stdout], [], [], 0)
        return bool(readable)

    def close_stdout(self) -> None:
        self._stdout.close()

    def wait(self) -> Outcome:
        """Takes what is still answered by a process that ends by itself, its input still open."""
        return self._take_all()

    def finish(self) -> Outcome:
        """Ends the input and takes what is still answered."""
        self._stdin.close()
        return self._take_all()

    def pipe(self, lines: Iterable[bytes]) -> Outcome:
        """Pipes a whole conversation into it, as a file would be."""
        threading.Thread(target=self._feed, args=(lines,), daemon=True).start()
        return self._take_all()

    def kill(self) -> Outcome:
        """Ends the process as a crash would."""
        self.process.kill()
        return self._take_all()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _feed(self, lines: Iterable[bytes]) -> None:
        # One that ends early is no error here: its status and its log are what the test looks at.
        with contextlib.suppress(BrokenPipeError), self._stdin:
            self._stdin.writelines(lines)

    def _take_all(self) -> Outcome:
        if not self._stdout.closed:
            self._answers.extend(map(Answer.of, self._stdout))
            self._stdout.close()
        status = self.process.wait()
        self._deadline.cancel()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        return Outcome(status, tuple(self._answers), self.log)


def run_conversation(
    lines: Iterable[bytes],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    launch: Launch = launch_process,
) -> Outcome:
    """Pipes a whole conversation into a new connector that runs in this directory."""
    with ConnectorProcess(directory, environment, launch=launch) as connector:
        return connector.pipe(lines)
