"""What has happened to Spark, in words for a user. Where a process of Spark's ends, others see only that it is silent,
and whichever of them sees it first raises an error of its own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connector.host.errors import RetryableError
from connector.host.redaction import redact
from connector.spark.jvm import Jvm

QUOTED_CHARACTERS: Final = 500
ENDING_TIMEOUT: Final = 3.0  # seconds: the sockets of a killed JVM are closed before the system says that it has ended

MEMORY_RAN_OUT: Final = (
    "the kernel has ended Spark's JVM or one of its workers, because the memory of this container (or control group) "
    "ran out: give it more, or fewer tasks at once (spark.master in /advanced/spark, such as local[1])."
)
WORKER_ENDED: Final = (
    "A Python worker of Spark has ended before its files were complete. It was probably killed because the memory of "
    "its machine or container ran out: give it more, or fewer tasks at once (spark.master in /advanced/spark, such as "
    "local[1])."
)

# The end of a worker, as the JVM finds it: by reading from it, by writing to it, or by asking the daemon for another.
_WORKER_IN_TRACE: Final = "org.apache.spark.api.python."
_END_IN_TRACE: Final = re.compile(
    r"Python worker exited unexpectedly|java\.io\.EOFException|java\.net\.SocketException"
    r"|java\.io\.IOException: (?:Broken pipe|Stream closed|Connection reset)"
)


@contextmanager
def translate_errors(jvm: Jvm, failed: str) -> Iterator[None]:
    """Turn what Py4J and PySpark raise into a RetryableError, at once: the error's text is in the JVM, and goes with
    it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, OSError, EOFError) as error:
        text = _told_by_java(error)
        if end := _end_of(jvm, 0 if text else ENDING_TIMEOUT):
            raise RetryableError(end) from error
        if text and _WORKER_IN_TRACE in text and _END_IN_TRACE.search(text):
            raise RetryableError(WORKER_ENDED) from error
        raise RetryableError(f"{failed}: {_cause(text or str(error) or repr(error))}") from error


def end_of_task(jvm: Jvm) -> RetryableError:
    """Why a task has ended without a word: its worker has ended, by itself or with the JVM."""
    return RetryableError(_end_of(jvm, ENDING_TIMEOUT) or WORKER_ENDED)


def _end_of(jvm: Jvm, timeout: float) -> str | None:
    if jvm.memory_ran_out:
        return MEMORY_RAN_OUT
    if jvm.ends_within(timeout):
        return f"Spark's JVM has ended: {jvm.last_words}"
    return None


def _told_by_java(error: Exception) -> str | None:
    """The trace of an exception in the JVM; None if the JVM has said nothing."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return None
    try:
        return str(error)  # asks the JVM
    except (Py4JError, OSError):
        return None


def _cause(text: str) -> str:
    """The line of Spark's long error message that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("org.apache.spark", "Caused by", "pyspark.errors"))]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]  # as Py4J puts it
    return redact((told or thrown or lines or [text])[0])[:QUOTED_CHARACTERS]
