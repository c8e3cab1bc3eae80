"""Starts Spark's JVM directly: one process instead of two, in half the time of Spark's own launcher.

The launcher (bin/spark-submit) starts a JVM of its own only to assemble a command line, and insists on a module that
small Java runtimes leave out. `docs/decisions/0001-direct-jvm-start.md` has the figures.
"""

import contextlib
import logging
import math
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connector.host.cgroup import Cgroup
from connector.host.errors import RetryableError, UserError
from connector.host.machine import count_files
from connector.host.processes import find_stopped
from connector.host.tempdirs import translate_disk_errors
from connector.spark.jvm import jvm_command
from connector.spark.jvm.jvm_ends import (
    ANNOUNCED_ENDS,
    NO_ANSWER,
    NO_THREAD,
    WORKER_ENDED,
    WORKER_WAS_STOPPED,
    explain_last_words,
    explain_status,
)

if TYPE_CHECKING:
    from connector.spark.jvm.client import ClientServer

log = logging.getLogger(__name__)

START_TIMEOUT: Final = 120.0  # seconds: a cold JVM on a loaded machine
LEAST_FILES: Final = 256  # that the JVM may open: it has about 200, its jars and Spark's sockets
PAUSE: Final = 20.0  # seconds between two questions to the JVM
ANSWER_TIMEOUT: Final = 30.0  # seconds
UNANSWERED: Final = 4  # questions in a row. One alone gets no answer if the whole container was paused.
STOPPED: Final = 5  # times in a row that a worker is found stopped: for more than a minute
LAST_WORDS_TIMEOUT: Final = 5.0  # seconds: a worker that lives on may hold the pipe
RECENT: Final = 60.0  # seconds: what is older explains no error, since the session has gone on without a compaction
GRACE: Final = 1.0  # seconds: a JVM that lacks threads may end by itself, and a worker's last line comes later
_ENVIRONMENT: Final = threading.Lock()  # held while this process's environment names a gateway
_START_FAILED: Final = 'Exception in thread "main"'  # after it, other threads may keep the JVM alive
STACK_FRAMES: Final = ("\tat ", "\t... ")
CRASHES: Final = ("# There is insufficient memory for the Java Runtime", "# A fatal error has been detected")
CRASH_LINES: Final = 2  # of a JVM that crashes: what the first one says, and how. The others are not about the cause


class Jvm:
    """A JVM that is being started.

    It watches its standard input, a pipe from this process, and so ends with it, however that ends. Its output is a
    pipe too, so that it never holds our stdout or stderr open.
    """

    def __init__(self, local_directory: Path, heap: str, jars: Sequence[Path], environment: Mapping[str, str]) -> None:
        """The connector's own variables replace those of `environment`. See `jvm_command.make_command` for `heap` and
        errors. Raises UserError if the JVM may not open enough files."""
        check_files(count_files())
        with translate_disk_errors(f"directory in {local_directory}"):
            self._connection_file = Path(tempfile.mkdtemp(prefix="jvm-", dir=local_directory)) / "connection"
        self._output: deque[str] = deque(maxlen=5)
        self._worker_end = ""  # why a worker has ended, by what it announced
        self._end_was_announced = threading.Event()
        # When something happened, by the monotonic clock.
        self._announced_at = self._killed_stopped_at = self._memory_ran_out_at = -math.inf
        self._ended = threading.Event()  # by the connector
        self._reason = ""  # why the connector has given it up
        self._control_group = Cgroup()
        self._killed_for_memory = self._control_group.killed_for_memory
        self._process = subprocess.Popen(
            jvm_command.make_command(heap, local_directory, jars),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C in a terminal is ours to handle. A JVM in a session of its own would be left if it is stopped while
            # this process is killed: the system continues stopped groups only of a session that loses their parent.
            process_group=0,
            env={**environment, **jvm_command.make_environment(self._connection_file)},
        )
        self._reader = threading.Thread(target=self._log_output, name="jvm-output", daemon=True)
        self._reader.start()

    def connect(self) -> "ClientServer":
        """Return the gateway to the JVM, which has started."""
        from connector.spark.jvm.client import UTF8Deserializer, launch_gateway, read_int  # slow to import

        with self._connection_file.open("rb") as info:
            port, secret = read_int(info), UTF8Deserializer().loads(info)
        shutil.rmtree(self._connection_file.parent)
        threading.Thread(target=self._watch, args=(port, secret), name="jvm-watch", daemon=True).start()
        # PySpark takes a gateway of ours only from the environment; the JVM already runs and never sees it. Another
        # thread may still connect to a JVM that was killed.
        with _ENVIRONMENT:
            jvm_command.remove_settings_of_other_spark()
            os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
            try:
                gateway: ClientServer = launch_gateway()
            finally:
                del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        _give_name(gateway)
        return gateway

    @property
    def has_ended(self) -> bool:
        """Whether the JVM's process is over."""
        return self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Wait until the JVM has ended, at most so long. Return whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def read_last_words(self) -> str:
        """Return the last lines that the JVM printed: the cause, if it ended by itself. Then this waits for the rest of
        its output, but only some seconds."""
        if self.has_ended:
            self._reader.join(LAST_WORDS_TIMEOUT)
        return " | ".join(self._output) or "it has said nothing"

    def explain_worker_end(self) -> str:
        """Return why a Python worker of this JVM has ended. Its last line may take a moment."""
        if _is_recent(self._killed_stopped_at):
            return WORKER_WAS_STOPPED
        if not _is_recent(self._announced_at):
            self._end_was_announced.clear()
        return self._worker_end if self._end_was_announced.wait(GRACE) else WORKER_ENDED

    def explain_end(self) -> str:
        """Return why the JVM has ended, or does not answer, and what to change. Ends in a full stop."""
        if self._reason:
            return self._reason
        said_by_status = None if self._has_no_thread else explain_status(self._process.poll())
        return said_by_status or explain_last_words(self.read_last_words().rstrip("."))

    @property
    def memory_ran_out(self) -> bool:
        """Whether the kernel has just killed the JVM or one of its workers because memory ran out (OOM)."""
        self._note_kills()
        return _is_recent(self._memory_ran_out_at)

    @property
    def memory_limit(self) -> str:
        """What the memory of its control group is limited to, in words."""
        memory = self._control_group.memory
        return "the limit of its machine" if memory is None else f"its limit of {memory >> 20} MB"

    def stop(self) -> None:
        """Let the JVM exit, and wait for that."""
        assert self._process.stdin is not None
        self._ended.set()
        self._process.stdin.close()
        self._process.wait()

    def kill(self) -> None:
        """Kill the JVM. Its Python daemon and workers watch a pipe from it, and end too."""
        assert self._process.stdin is not None
        self._ended.set()
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    @contextlib.contextmanager
    def limit_time(self, seconds: float, reason: str) -> Iterator[None]:
        """Give the JVM up if the block takes longer. `explain_end` then has the reason and the JVM's last words."""
        timer = threading.Timer(seconds, lambda: self._give_up(f"{reason}: {self.read_last_words().rstrip('.')}."))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def wait(self) -> None:
        """Wait until the JVM has started. Raises RetryableError if it does not start."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self._connection_file.exists():  # it is renamed into place, whole
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(0.01)
                raise self._explain_failed_start(f"ended with status {status}")
            if any(line.startswith(_START_FAILED) for line in [*self._output]):
                raise self._explain_failed_start("failed")
            if time.monotonic() > deadline:
                raise RetryableError(
                    f"Spark's JVM did not answer within {START_TIMEOUT:.0f} s: {self.explain_end()} If the machine is "
                    "overloaded, give it more processors or memory."
                )

    def _watch(self, port: int, secret: str) -> None:
        """Give the JVM up if it does not answer any more, and kill workers that are stopped: jobs would never end."""
        unanswered = 0
        seen: dict[int, int] = {}  # how many times in a row a worker was found stopped
        while not (self._ended.wait(PAUSE) or self.has_ended):
            unanswered = 0 if _answers(port, secret) else unanswered + 1
            if unanswered == UNANSWERED:
                self._give_up(NO_ANSWER)
            with contextlib.suppress(OSError):  # of this process, such as when it may open no more files
                self._note_kills()
                seen = {worker: seen.get(worker, 0) + 1 for worker in find_stopped(self._process.pid)}
            for worker in [worker for worker, times in seen.items() if times == STOPPED]:
                self._killed_stopped_at = time.monotonic()
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(worker, signal.SIGKILL)

    def _note_kills(self) -> None:
        killed = self._control_group.killed_for_memory
        if killed > self._killed_for_memory:
            self._memory_ran_out_at, self._killed_for_memory = time.monotonic(), killed

    def _give_up(self, reason: str) -> None:
        if not self.has_ended:
            self._reason = reason
            self._process.kill()

    def _explain_failed_start(self, how: str) -> RetryableError:
        return RetryableError(
            f"Spark's JVM {how} while it started: {self.explain_end()} Check JAVA_HOME, and the spark.* settings in "
            "/advanced/spark."
        )

    def _log_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode("utf-8", "replace").rstrip()
                log.debug("spark: %s", text)
                if end := ANNOUNCED_ENDS.get(text):
                    self._worker_end, self._announced_at = end, time.monotonic()
                    self._end_was_announced.set()
                if not text.startswith(STACK_FRAMES):
                    self._keep(text)
                    if NO_THREAD in text and not self.ends_within(GRACE):
                        # Spark may have lost the thread that schedules tasks. Then its jobs would never end.
                        self._process.kill()

    def _keep(self, text: str) -> None:
        """Keep a line for the last words."""
        if text.startswith(CRASHES):
            self._output = deque(maxlen=CRASH_LINES)
        if self._output.maxlen == CRASH_LINES and (text == "#" or len(self._output) == CRASH_LINES):
            return
        self._output.append(text.lstrip("# "))

    @property
    def _has_no_thread(self) -> bool:
        return any(NO_THREAD in line for line in [*self._output])


def _give_name(gateway: "ClientServer") -> None:
    """Let Hadoop have a user if that of this process has no name, as in a container: Spark keeps its secret with it."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(jvm_command.USER["SPARK_USER"]))


def _is_recent(moment: float) -> bool:
    return time.monotonic() - moment < RECENT


def check_files(most: int | None) -> None:
    """Raise UserError if a process may open too few files. The JVM would fail with an error that does not say so."""
    if most is not None and most < LEAST_FILES:
        raise UserError(
            f"a process of the connector may open only {most} files at the same time, and Spark's JVM needs "
            f"{LEAST_FILES}. Raise the hard limit (`ulimit -Hn`, or `--ulimit nofile` of Docker) to 1024 or more."
        )


def _answers(port: int, secret: str) -> bool:
    """Return whether the JVM answers, as it does when Py4J signs in."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT) as connection:
            connection.sendall(f"A\n{secret}\n".encode())
            return bool(connection.recv(1))
    except (TimeoutError, ConnectionError):
        return False
    except OSError:  # of this process, such as when it may open no more files
        return True
