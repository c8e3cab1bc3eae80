"""What the machine's operating system offers. Linux can say and do more than others, such as macOS.

Each function here has a portable way for them. Only `cgroup` and `processes` also read what Linux alone has, and
say nothing elsewhere.
"""

import errno
import os
import re
import resource
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/mounts")
THREADS: Final = Path("/proc/self/task")

_MOST_FILES: Final = 10_240  # more bindings than a task has; macOS accepts no larger limit

_NO_THREAD: Final = "can't start new thread"  # of Python's RuntimeError
_NO_LIBRARY: Final = "failed to map segment from shared object"  # of the dynamic linker
_LOWEST_PRIORITY: Final = 19  # as the highest nice value

# Three probes after half a minute of silence; Spark itself gives a lost executor two minutes.
SILENCE: Final = 30  # seconds
PROBE_PAUSE: Final = 10  # seconds
PROBES: Final = 3
UNACKNOWLEDGED: Final = 60_000  # milliseconds that sent data may be unacknowledged
# The first name that the system has is set.
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, ("SO_KEEPALIVE",), 1),
    (socket.IPPROTO_TCP, ("TCP_KEEPIDLE", "TCP_KEEPALIVE"), SILENCE),  # the second name is macOS's
    (socket.IPPROTO_TCP, ("TCP_KEEPINTVL",), PROBE_PAUSE),
    (socket.IPPROTO_TCP, ("TCP_KEEPCNT",), PROBES),
    (socket.IPPROTO_TCP, ("TCP_USER_TIMEOUT",), UNACKNOWLEDGED),
)


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def measure_memory() -> int | None:
    """Return the bytes of memory of this machine, or None if the system does not say it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def lower_priority() -> None:
    """Let this process run only while no other process needs the processor. This cannot be undone."""
    if not hasattr(os, "SCHED_IDLE"):
        os.nice(_LOWEST_PRIORITY)
        return
    # Each thread has a policy. New threads get that of the thread that starts them.
    for thread in THREADS.glob("[0-9]*"):
        with suppress(OSError):  # the thread has ended, or the container forbids it
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


def allow_many_files() -> None:
    """Let this process, and those that it starts, open more files at the same time than is usual. A transaction has an
    open file for each binding."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # the system has a lower limit than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def count_files() -> int | None:
    """Return how many files a process may open at the same time if it raises its limit. None: without a limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def explain_limit(error: Exception) -> str | None:
    """Return what to change if the error says that this process gets no more memory, files, threads or processes."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_LIBRARY in str(error)):
        return (
            "A process of the connector got no more memory. Give its machine or container more, run fewer tasks at "
            "once (spark.master in /advanced/spark, such as local[1]), or raise the limit of the process (`ulimit -v`)."
        )
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "A process of the connector may open no more files. Raise the hard limit (`ulimit -Hn`, or `--ulimit "
            "nofile` of Docker)."
        )
    has_no_thread = isinstance(error, RuntimeError) and _NO_THREAD in str(error)
    if has_no_thread or (isinstance(error, BlockingIOError) and error.filename is None):  # the latter: no process
        return (
            "A process of the connector may start no more threads or processes. Let its container have at least 512 "
            f"(--pids-limit of Docker), or raise the limit of its user (`ulimit -u`).{describe_address_limit()}"
        )
    return None


def describe_address_limit() -> str:
    """Return what to say of the address space of processes if it is limited: they may lack memory because of it."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return ""
    return (
        f" Or raise the limit of the address space (`ulimit -v`): it is {most >> 20} MB, and Spark's JVM needs some "
        "4,000 MB."
    )


def is_in_memory(directory: Path) -> bool:
    """Return whether the directory is in a tmpfs: its files count as memory. False if the system does not say it."""
    try:
        mounts = MOUNTS.read_bytes()
    except OSError:
        return False
    kinds = {_read_path(mount): kind for _, mount, kind, *_ in (line.split(b" ") for line in mounts.split(b"\n")[:-1])}
    path = directory.resolve()
    return next((kinds[each] for each in (path, *path.parents) if each in kinds), b"") == b"tmpfs"


def _read_path(mounted: bytes) -> Path:
    """Return the path that the kernel has written. It writes spaces and some other bytes as octal numbers."""
    return Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), mounted)))


def keep_alive(connection: socket.socket) -> None:
    """Make reading from the TCP connection end within about a minute when the other machine is gone."""
    for option in list_keep_alive_options():
        connection.setsockopt(*option)


def list_keep_alive_options() -> list[tuple[int, int, int]]:
    """Return the options that `keep_alive` sets: their levels, names and values."""
    return [
        (level, getattr(socket, name), value)
        for level, names, value in _KEEP_ALIVE
        if (name := next((each for each in names if hasattr(socket, each)), None))
    ]
