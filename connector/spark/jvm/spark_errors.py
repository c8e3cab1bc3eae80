"""Translates the errors of Spark: why it failed, from what the JVM and the system say.

If a process of Spark ends, the other processes only see that it does not answer, and each raises an error of its own.
So an error is translated by the process that has ended, not by the one that noticed.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.host.errors import ConnectorError, RetryableError
from connector.host.redaction import redact_and_shorten
from connector.spark.jvm.jvm_process import Jvm

ENDING_TIMEOUT: Final = 3.0  # seconds: the sockets of a killed JVM are closed before the system says that it has ended

NO_LOOPBACK: Final = (
    ". The connector reaches Spark's JVM by the loopback interface of this machine or container. If the interface is "
    "down, start it (`ip link set lo up`)."
)
_UNREACHABLE: Final = (errno.EADDRNOTAVAIL, errno.ENETUNREACH)

# The end of a worker, as the JVM finds it: by reading from it, by writing to it, or by asking the daemon for another.
_WORKER_IN_TRACE: Final = "org.apache.spark.api.python."
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_END_IN_TRACE: Final = re.compile(
    r"Python worker exited unexpectedly|java\.io\.EOFException|java\.net\.SocketException"
    r"|java\.io\.IOException: (?:Broken pipe|Stream closed|Connection reset)"
)

_CONTEXT_ENDED: Final = re.compile("SparkContext was shut down|stopped SparkContext")  # a JVM that ends does this first


@contextmanager
def translate_errors(jvm: Jvm, failed: str) -> Iterator[None]:
    """Turn errors of Py4J and PySpark into a RetryableError.

    At once: the error's text is in the JVM, and is lost when the JVM ends.
    """
    try:
        yield
    except ConnectorError:
        raise
    except Exception as error:
        from connector.spark.jvm.client import Py4JError, PySparkException  # slow to import

        if not isinstance(error, (Py4JError, PySparkException, OSError, EOFError)):
            raise
        text = _told_by_java(error)
        is_ending = text is None or _CONTEXT_ENDED.search(text)
        if end := _end_of(jvm, ENDING_TIMEOUT if is_ending else 0):
            raise RetryableError(end) from error
        if text and _WORKER_IN_TRACE in text and _END_IN_TRACE.search(text):
            raise RetryableError(jvm.explain_worker_end()) from error
        advice = NO_LOOPBACK if isinstance(error, OSError) and error.errno in _UNREACHABLE else ""
        raise RetryableError(f"{failed}: {_cause(text or str(error) or repr(error))}{advice}") from error


def explain_lost_task(jvm: Jvm) -> RetryableError:
    """Return the error that says why a task was lost: its worker ended, alone or with the JVM."""
    return RetryableError(_end_of(jvm, ENDING_TIMEOUT) or jvm.explain_worker_end())


def _end_of(jvm: Jvm, timeout: float) -> str | None:
    if jvm.memory_ran_out:
        return (
            "the kernel has killed Spark's JVM or one of its workers (out of memory, exit status 137): the memory of "
            f"this container (or control group) has reached {jvm.memory_limit}. Raise it, or run fewer tasks at once "
            "(spark.master in /advanced/spark, such as local[1])."
        )
    if jvm.ends_within(timeout):
        return f"Spark's JVM has ended: {jvm.explain_end()}"
    return None


def _told_by_java(error: Exception) -> str | None:
    """Return the stack trace of an exception in the JVM; None if the JVM raised none, or does not answer."""
    from connector.spark.jvm.client import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return None
    try:
        return str(error)  # asks the JVM
    except (Py4JError, OSError):
        return None


def _cause(text: str) -> str:
    """Return the line of Spark's long error message that says what happened."""
    if in_python := _PYTHON_ERROR.search(text):
        return redact_and_shorten(in_python[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("org.apache.spark", "Caused by", "pyspark.errors"))]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # as Py4J puts it
    return redact_and_shorten((told or thrown or lines or [text])[0].removeprefix("Caused by: "))
