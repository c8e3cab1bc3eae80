"""Tasks connect, also while files or threads are short, and a silent connection holds up no other."""

import errno
import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import pytest

from connector.host.errors import RetryableError
from connector.spark.blocks import claim_server
from connector.spark.blocks.claim_server import ClaimServer
from connector.spark.blocks.claims import Claim, Next
from connector.spark.blocks.ledger import Ledger
from spark.served_claims import add_a_row, serving
from support.jars import leave_out
from support.sessions.processes import DEADLINE
from support.snapshots import check_text


def test_a_socket_that_another_program_has_removed_is_named(claims: ClaimServer) -> None:
    path = str(claims.address.socket)
    Path(path).unlink()
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{path}'"), claims.address.connect():
        pass


def test_a_task_on_another_machine_notices_when_the_driver_is_gone(tmp_path: Path, ledger: Ledger) -> None:
    with (
        serving(tmp_path, ledger, ("127.0.0.1", 0)) as server,
        server.address.connect() as task,
        socket.socket(fileno=os.dup(task.fileno())) as same,
    ):
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_a_task_gets_a_block_at_an_ipv6_address(tmp_path: Path, ledger: Ledger) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        leave_out("needs IPv6")
    add_a_row(ledger)
    with serving(tmp_path, ledger, ("::1", 0), "::1") as server, server.address.connect() as task:
        task.send(Next(None))
        assert isinstance(task.recv(), Claim)


def test_who_connects_and_says_nothing_holds_up_nobody(claims: ClaimServer, ledger: Ledger) -> None:
    add_a_row(ledger)
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect(claims.address.socket)
        with claims.address.connect() as task:
            task.send(Next(None))
            assert task.poll(DEADLINE)


def test_a_connection_that_says_nothing_is_closed(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session runs for days, and each connection has a thread and a descriptor."""
    monkeypatch.setattr(claim_server, "LONGEST_SIGN_IN", 1)
    with serving(tmp_path, ledger) as server, closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.settimeout(DEADLINE)
        silent.connect(server.address.socket)
        while silent.recv(1000):  # the challenge
            pass


def test_a_task_may_say_nothing_for_longer_than_signing_in_may_take(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_server, "LONGEST_SIGN_IN", 1)
    ledger.complete()
    with serving(tmp_path, ledger) as server, server.address.connect() as task:
        assert not task.poll(1.5)  # it would be closed
        task.send(Next(None))
        assert task.recv() is None


def test_a_socket_that_another_program_has_removed_is_no_error(tmp_path: Path, ledger: Ledger) -> None:
    """Such as one that removes old files from /tmp."""
    with serving(tmp_path, ledger):
        (tmp_path / "claims").unlink()


def test_a_socket_on_a_disk_that_is_read_only_now_hides_no_other_error(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(RetryableError, match="no rows"), serving(tmp_path, ledger):
        raise RetryableError("no rows")


@contextmanager
def few_files() -> Iterator[None]:
    """This process may open only one more file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.dup(0) for _ in range(2)]
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1], hard))  # the number that the next file would get
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Heard(logging.Handler):
    """Hears that a connection was not accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "no Spark task can be accepted" in record.msg:
            self.event.set()


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Iterator[threading.Event]:
    heard = _Heard()
    with caplog.at_level(logging.DEBUG, claim_server.__name__):
        claim_server.log.addHandler(heard)
        yield heard.event
        claim_server.log.removeHandler(heard)


def test_a_task_that_connects_while_too_many_files_are_open_is_served_later(
    tmp_path: Path, ledger: Ledger, refused: threading.Event
) -> None:
    add_a_row(ledger)
    waiting = socket.socket(socket.AF_UNIX)
    with ExitStack() as stack:
        with few_files():  # the socket that listens
            server = stack.enter_context(serving(tmp_path, ledger))
            waiting.connect(server.address.socket)
            assert refused.wait(DEADLINE)
        task: Connection[Any, Any] = stack.enter_context(Connection(waiting.detach()))
        assert task.poll(DEADLINE)
        answer_challenge(task, server.address.secret)
        deliver_challenge(task, server.address.secret)
        task.send(Next(None))
        assert task.poll(DEADLINE)


def test_tasks_that_cannot_be_accepted_fail_the_transaction(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_server, "ATTEMPTS", 2)
    job: Future[None] = Future()
    deadline = threading.Timer(DEADLINE, job.cancel)
    deadline.start()
    with few_files(), serving(tmp_path, ledger), pytest.raises(RetryableError) as error:
        ledger.wait_for(job)
    deadline.cancel()
    check_text("spark_errors", "tasks that cannot be accepted", str(error.value))


def test_only_attempts_that_fail_one_after_the_other_fail_the_transaction(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_server, "ATTEMPTS", 2)
    accept, is_good = Listener.accept, cycle((False, True))

    def accept_each_second(listener: Listener) -> Any:
        if next(is_good):
            return accept(listener)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Listener, "accept", accept_each_second)
    with serving(tmp_path, ledger) as server:
        for _ in range(2):
            with server.address.connect():
                pass
        ledger.check()


def test_tasks_for_which_no_thread_can_be_started_fail_the_transaction(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_others(thread: threading.Thread) -> None:
        if thread.name == "claim":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    job: Future[None] = Future()
    deadline = threading.Timer(DEADLINE, job.cancel)
    deadline.start()
    with serving(tmp_path, ledger) as server:
        for _ in range(2):  # the server goes on
            with socket.socket(socket.AF_UNIX) as task:
                task.connect(server.address.socket)
                assert task.recv(1) == b""
        with pytest.raises(RetryableError) as error:
            ledger.wait_for(job)
    deadline.cancel()
    check_text("machine_errors", "no threads", str(error.value))
