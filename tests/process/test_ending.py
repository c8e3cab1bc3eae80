"""However a session ends, it ends soon and quietly, with the status that convention gives, and leaves nothing
running."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from fixtures.conversation import line
from support.engines.readers import ledger_ids
from support.sessions.connector_process import ConnectorEndedError, ConnectorProcess, launch_process
from support.sessions.processes import heeded_signals, marked, new_mark, wait_until
from support.sessions.runtime import Runtime, Session

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    with heeded_signals():
        yield


@pytest.fixture
def mark() -> dict[str, str]:
    return new_mark()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


@pytest.fixture
def temporary_of_java(tmp_path: Path) -> Path:
    """What Java would use, as /tmp, if it were not told otherwise."""
    directory = tmp_path / "java"
    directory.mkdir()
    return directory


@pytest.fixture
def runtime(tmp_path: Path, temporary: Path, temporary_of_java: Path, mark: dict[str, str]) -> Runtime:
    java = {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary_of_java}"}
    return Runtime(tmp_path, environment={**mark, **java, "TMPDIR": str(temporary)})


@pytest.fixture
def session(runtime: Runtime, mark: dict[str, str]) -> Iterator[Session]:
    """A session whose JVM and workers are up."""
    with runtime.open(publish=True) as session:
        session.transaction({"id": 1})
        assert any("pyspark.worker" in command for command in marked(mark).values())
        yield session


def nothing_is_left(mark: dict[str, str]) -> bool:
    return wait_until(lambda: not marked(mark))


@pytest.fixture
def leaves_no_file(temporary: Path, temporary_of_java: Path) -> Iterator[None]:
    yield
    assert [*temporary.iterdir(), *temporary_of_java.iterdir()] == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_process_that_has_done_nothing_yet(tmp_path: Path, number: int, status: int) -> None:
    with ConnectorProcess(tmp_path) as connector:
        connector.send(line("spec", {}))
        connector.expect("spec")
        connector.process.send_signal(number)
        outcome = connector.finish()
    assert (outcome.status, outcome.log) == (status, "")


@pytest.mark.usefixtures("leaves_no_file")
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        # The same handler, whose statuses have a test above.
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_session_in_the_middle_of_a_transaction(
    session: Session, mark: dict[str, str], tmp_path: Path, number: int, status: int
) -> None:
    session.flush()
    session.store({"id": 2})
    session.connector.process.send_signal(number)
    outcome = session.connector.wait()
    assert outcome.status == status
    assert " error " not in outcome.log
    assert nothing_is_left(mark)
    assert ledger_ids(tmp_path) == [1]


def test_a_closed_stdout_ends_a_session_that_has_nothing_to_say(session: Session, mark: dict[str, str]) -> None:
    session.connector.close_stdout()
    outcome = session.connector.wait()
    assert outcome.status == 141
    assert " error " not in outcome.log
    assert nothing_is_left(mark)


@pytest.mark.usefixtures("leaves_no_file")
def test_the_end_of_the_input_ends_a_session_and_a_broken_connection_of_ours_does_not(
    session: Session, mark: dict[str, str], tmp_path: Path
) -> None:
    """Whoever writes to a socket that its other side has closed gets this signal."""
    session.connector.process.send_signal(signal.SIGPIPE)
    session.transaction({"id": 2})
    assert session.finish().status == 0
    assert nothing_is_left(mark)
    assert ledger_ids(tmp_path) == [1, 2]


def test_a_killed_process_leaves_no_process_behind(session: Session, mark: dict[str, str]) -> None:
    session.flush()
    session.store({"id": 2})
    assert session.connector.kill().status == -signal.SIGKILL
    assert nothing_is_left(mark)


def test_a_killed_process_leaves_no_jvm_that_is_stopped(tmp_path: Path, mark: dict[str, str]) -> None:
    """As under a shell with job control, or a service manager: what takes orphans over is in another session."""
    runtime = Runtime(tmp_path, environment=mark, launch=partial(launch_process, in_own_session=True))
    with runtime.open(publish=True) as session:
        assert any("java" in command for command in marked(mark).values())
        send_signal(mark, "java", signal.SIGSTOP)
        assert wait_until(lambda: all(has_stopped(pid) for pid, command in marked(mark).items() if "java" in command))
        session.connector.process.kill()
        assert nothing_is_left(mark)


def has_stopped(pid: int) -> bool:
    """Whether all threads of a process have stopped. The kernel wakes an orphan only if it has stopped before."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(") ")[2].startswith("T") for thread in threads)


JVM_ENDED = "Spark's JVM has ended: it was killed (SIGKILL, exit status 137), probably "
WORKER_ENDED = "A Python worker of Spark has ended before its files were complete. It was probably killed "


def commit_and_go_on(session: Session) -> None:
    """A worker may have made its rows durable before it sees that the JVM has ended. Then the next one is told."""
    session.start_commit()
    session.acknowledge()
    session.transaction({"id": 3})


@pytest.mark.parametrize(
    ("victim", "said", "is_idle"),
    [
        # Whoever sees the end of the JVM first tells it, as tests/spark/test_jvm_process.py shows.
        pytest.param("java", JVM_ENDED, True, id="idle JVM", marks=pytest.mark.slow),
        pytest.param("java", JVM_ENDED, False, id="busy JVM"),
        pytest.param("pyspark.worker", WORKER_ENDED, False, id="busy worker"),
        # The workers end with their daemon.
        pytest.param("connector.spark.tasks.daemon", WORKER_ENDED, True, id="idle daemon", marks=pytest.mark.slow),
        pytest.param("connector.spark.tasks.daemon", WORKER_ENDED, False, id="busy daemon", marks=pytest.mark.slow),
    ],
)
def test_a_killed_process_of_spark_is_told_as_that(
    session: Session, mark: dict[str, str], victim: str, said: str, is_idle: bool
) -> None:
    if is_idle:
        kill(mark, victim)
    before = sockets_of_workers(mark)
    session.flush()
    session.store({"id": 2})
    # A worker that is killed before it has its task is replaced, and nothing fails.
    assert is_idle or wait_until(lambda: sockets_of_workers(mark) > before)
    kill(mark, victim)
    with pytest.raises(ConnectorEndedError) as ended:
        commit_and_go_on(session)
    outcome = ended.value.outcome
    assert outcome.status == 1
    assert f" error {said}" in outcome.last_log_line
    assert nothing_is_left(mark)


# Slow: tests/spark shows which text each signal of a worker gets.
@pytest.mark.slow
def test_a_worker_that_sigterm_ends_is_not_said_to_lack_memory(session: Session, mark: dict[str, str]) -> None:
    before = sockets_of_workers(mark)
    session.flush()
    session.store({"id": 2})
    assert wait_until(lambda: sockets_of_workers(mark) > before)
    pids = {pid for pid, command in marked(mark).items() if "pyspark.worker" in command}
    for pid in pids:
        if parent_of(pid) in pids:  # the daemon, which has the same command, would end its workers with SIGHUP
            os.kill(pid, signal.SIGTERM)
    session.connector.send(line("startCommit", {}))
    outcome = session.connector.wait()
    assert outcome.status == 1
    assert "files were complete: something has ended it with SIGTERM" in outcome.last_log_line
    assert nothing_is_left(mark)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow  # what is killed while it works is told above, and Spark replaces the others
def test_a_worker_that_is_killed_while_idle_is_replaced_or_told(
    session: Session, mark: dict[str, str], tmp_path: Path
) -> None:
    """Spark gives the dead worker the task, if it has not noticed its end."""
    kill(mark, "pyspark.worker")
    session.flush()
    session.store({"id": 2})
    session.connector.send(line("startCommit", {}), line("acknowledge", {}))
    outcome = session.connector.finish()
    if outcome.status != 0:
        assert outcome.status == 1
        assert f" error {WORKER_ENDED}" in outcome.last_log_line
    assert ledger_ids(tmp_path) == ([1] if outcome.status else [1, 2])
    assert nothing_is_left(mark)


def sockets_of_workers(mark: dict[str, str]) -> int:
    """How many sockets Spark's Python processes have open. A task has one more than an idle worker: its claims come
    over it."""
    sockets = 0
    for pid in [pid for pid, command in marked(mark).items() if "pyspark.worker" in command]:
        with suppress(OSError):  # it ended meanwhile
            sockets += sum(os.readlink(fd).startswith("socket:") for fd in Path(f"/proc/{pid}/fd").iterdir())
    return sockets


def kill(mark: dict[str, str], victim: str) -> None:
    send_signal(mark, victim, signal.SIGKILL)


def send_signal(mark: dict[str, str], victim: str, number: int) -> None:
    for pid, command in marked(mark).items():
        if victim in command:
            with suppress(ProcessLookupError):  # it ended meanwhile: an earlier signal has killed it
                os.kill(pid, number)


def test_a_signal_ends_a_session_whose_catalog_does_not_answer(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, environment={"LOG_LEVEL": "debug"})
    with (
        runtime.open(publish=True) as session,
        closing(sqlite3.connect(tmp_path / "warehouse" / "catalog.db")) as catalog,
    ):
        session.flush()
        session.store({"id": 2})
        session.start_commit()
        catalog.execute("BEGIN EXCLUSIVE")
        session.send_acknowledge()
        assert wait_until(lambda: "committing 1 staged" in session.connector.log)
        session.connector.process.send_signal(signal.SIGHUP)
        # The connector would wait for the catalog twice as long.
        assert session.connector.process.wait(timeout=15) == 129
        catalog.rollback()
    assert ledger_ids(tmp_path) == []
