"""Where the operating system does not say something, a portable answer is given."""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from connector.host import machine
from support.snapshots import check_text


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        yield client, accepted


def test_without_affinity_every_core_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.count_cores() == os.cpu_count()


def test_affinity_limits_the_cores() -> None:
    assert machine.count_cores() == len(os.sched_getaffinity(0))


def test_a_system_without_a_list_of_mounts_has_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.is_in_memory(Path("/dev/shm"))
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "missing")
    assert not machine.is_in_memory(Path("/dev/shm"))


def test_a_list_of_mounts_without_a_root_names_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text("tmpfs /elsewhere tmpfs rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    assert not machine.is_in_memory(tmp_path)


@pytest.mark.parametrize("name", [b"two words", b"M\xfcll", "Müll".encode()], ids=["space", "latin-1", "utf-8"])
def test_a_mount_may_have_any_name(name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes a space as \\040, and other bytes as they are."""
    place = bytes(tmp_path / os.fsdecode(name))
    mounts = b"overlay / overlay rw 0 0\ntmpfs %b tmpfs rw 0 0\n" % place.replace(b" ", rb"\040")
    (tmp_path / "mounts").write_bytes(mounts)
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    assert machine.is_in_memory(tmp_path / os.fsdecode(name))
    assert machine.is_in_memory(tmp_path / os.fsdecode(name) / "below" / "it")
    assert not machine.is_in_memory(tmp_path)


def test_a_connection_is_probed_after_half_a_minute(pair: tuple[socket.socket, socket.socket]) -> None:
    connection, _ = pair
    machine.keep_alive(connection)
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_macos_has_another_name_for_the_time_of_silence(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = pair
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", socket.TCP_KEEPIDLE, raising=False)
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    machine.keep_alive(connection)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPALIVE) == 30  # type: ignore[attr-defined,unused-ignore]


LOWERED = """
import os, threading
from connector.host import machine
ended = threading.Event()
before = threading.Thread(target=ended.wait)
before.start()
machine.lower_priority()
after = threading.Thread(target=ended.wait)
after.start()
print({os.sched_getscheduler(thread.native_id) == os.SCHED_IDLE for thread in threading.enumerate()})
ended.set()
"""


LOWERED_WITHOUT_POLICIES = """
import os
from connector.host import machine
del os.SCHED_IDLE
machine.lower_priority()
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_without_a_policy_for_it_a_process_gets_the_lowest_priority() -> None:
    assert subprocess.check_output([sys.executable, "-c", LOWERED_WITHOUT_POLICIES], text=True).strip() == "19"


def test_all_threads_of_a_process_run_only_when_no_other_needs_the_processor() -> None:
    """Those that were there before, and those that are started later."""
    assert subprocess.check_output([sys.executable, "-c", LOWERED], text=True).strip() == "{True}"


ALLOWED: Final = """
import resource, sys
from connector.host import machine
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
machine.allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "allowed"),
    [(100, 4096, "4096 4096"), (100, 15_000, "10240 15000"), (12_000, 15_000, "12000 15000")],
)
def test_a_process_may_open_many_files_as_far_as_its_hard_limit_allows(soft: int, hard: int, allowed: str) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this process has a lower hard limit")
    command = [sys.executable, "-c", ALLOWED, str(soft), str(hard)]
    assert subprocess.check_output(command, text=True).strip() == allowed


MAY_START_NO_THREAD: Final = """
import os, resource
from connector.command_line import main
if os.geteuid() == 0:
    os.setuid(65534)  # root may start as many as it wants
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
os._exit(main([]))
"""


def test_a_process_that_may_start_no_thread_says_what_to_raise() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", MAY_START_NO_THREAD], input=b'{"spec":{}}\n', capture_output=True, check=False
    )
    (line,) = ended.stderr.decode().splitlines()
    assert (ended.returncode, ended.stdout) == (1, b"")
    check_text("machine_errors", "no threads", line.partition(" error ")[2])


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (MemoryError(), "no memory"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "no memory"),
        (ImportError("multiarray.so: failed to map segment from shared object"), "no memory"),
        (RuntimeError("can't start new thread"), "no threads"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "no threads"),  # of a process
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "no files"),
    ],
)
def test_a_limit_of_the_process_is_named(error: Exception, name: str) -> None:
    advice = machine.explain_limit(error)
    assert advice
    check_text("machine_errors", name, advice)


@pytest.mark.parametrize("error", [RuntimeError("no"), OSError("no"), BlockingIOError(errno.EAGAIN, "locked", "file")])
def test_other_errors_name_no_limit(error: Exception) -> None:
    assert machine.explain_limit(error) is None
