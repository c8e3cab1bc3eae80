"""Says why Spark's JVM or one of its Python workers has ended, and what to change."""

import signal
from typing import Final

from connector.host.machine import describe_address_limit
from connector.host.signals import ENDED_BECAUSE_IT_HANGS, ENDED_BY_SIGTERM

LESS_MEMORY: Final = "give it more, or run fewer tasks at once (spark.master in /advanced/spark, such as local[1])"
SEE_LOG: Final = "With LOG_LEVEL=debug, the connector logs the output of Spark's processes."
WORKER_ENDED: Final = (
    "A Python worker of Spark has ended before its files were complete. It was probably killed (SIGKILL, exit status "
    f"137) because the memory of its machine or container ran out: {LESS_MEMORY}. {SEE_LOG}"
)
WORKER_GOT_SIGTERM: Final = (
    "A Python worker of Spark has ended before its files were complete: something has ended it with SIGTERM (exit "
    "status 143). Find out what sends this signal to it: only Spark should end it."
)
WORKER_HANGS: Final = (
    "A Python worker of Spark has ended before its files were complete, because it had not gone on for an hour: it "
    "hung, such as at a disk of the network that does not answer (TMPDIR, or the storage of the tables). Find out what "
    "it waits for, if this repeats."
)
WORKER_WAS_STOPPED: Final = (
    "A Python worker of Spark has ended before its files were complete: something had stopped it (SIGSTOP) for more "
    "than a minute, so the connector has killed it. Find out what stops it."
)
NO_ANSWER: Final = (
    "it did not answer any more, so the connector has killed it. Either something has stopped it (SIGSTOP), or its "
    "machine or container is overloaded: give it more memory or processors."
)
# What a worker says on stderr, and what its end means then.
ANNOUNCED_ENDS: Final = {ENDED_BECAUSE_IT_HANGS: WORKER_HANGS, ENDED_BY_SIGTERM: WORKER_GOT_SIGTERM}
_HEAP_RAN_OUT: Final = "java.lang.OutOfMemoryError"
NO_THREAD: Final = f"{_HEAP_RAN_OUT}: unable to create native thread"
_NO_FILE: Final = "Too many open files"
_NO_ROOM: Final = "No space left on device"
_NO_MEMORY: Final = ("There is insufficient memory for the Java Runtime", "Could not allocate", "Could not reserve")
_END_REQUESTS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def explain_status(status: int | None) -> str | None:
    """Return why a JVM with this exit status has ended, if a signal has ended it."""
    if status == -signal.SIGKILL:
        return (
            "it was killed (SIGKILL, exit status 137), probably by the kernel because the memory of its machine or "
            f"container ran out: {LESS_MEMORY}. The kernel's log (dmesg) names the processes that it has killed."
        )
    if request := next((each for each in _END_REQUESTS if status in (-each, 128 + each)), None):
        return (
            f"something has ended it with {request.name} (exit status {128 + request}). Find out what sends this "
            "signal to it: only the connector should end it."
        )
    return None


def explain_last_words(said: str) -> str:
    """Return a JVM's last words, which end without a full stop, and what to change."""
    if NO_THREAD in said:
        return (
            f"{said}. Its machine or container allows no more threads, or has no memory for them. Let the "
            f"container have at least 512 processes and threads (--pids-limit of Docker).{describe_address_limit()}"
        )
    if _NO_FILE in said:
        return f"{said}. Raise the hard limit of open files (`ulimit -Hn`, or `--ulimit nofile` of Docker)."
    if _NO_ROOM in said:
        return f"{said}. Make room for temporary files, or set TMPDIR to a directory on a larger disk."
    if _HEAP_RAN_OUT in said:
        return f"{said}. Raise spark.driver.memory in /advanced/spark, and the memory of the container with it."
    if any(words in said for words in _NO_MEMORY):
        return f"{said}. Its machine or container has too little memory: {LESS_MEMORY}.{describe_address_limit()}"
    return f"{said}. {SEE_LOG}"
