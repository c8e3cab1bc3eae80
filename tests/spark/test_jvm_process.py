"""What is said of a JVM that does not start, or that has ended."""

import errno
import os
import re
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.util import local_connect_and_auth

from connector.host.cgroup import Cgroup
from connector.host.errors import RetryableError, UserError
from connector.host.signals import ENDED_BECAUSE_IT_HANGS, ENDED_BY_SIGTERM
from connector.spark.jvm import jvm_process, spark_errors, spark_session
from connector.spark.jvm.class_path import list_jars
from connector.spark.jvm.jvm_command import find_spark_home
from connector.spark.jvm.jvm_ends import WORKER_ENDED, WORKER_HANGS
from connector.spark.jvm.jvm_process import Jvm
from connector.spark.jvm.spark_errors import explain_lost_task, translate_errors
from connector.spark.jvm.start_spark import start_spark
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.snapshots import check_text

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer

HEAP: Final = "512m"
JARS: Final = list_jars(find_spark_home() / "jars", is_local=True)


@contextmanager
def started(directory: Path, heap: str = HEAP) -> Iterator[Jvm]:
    running = Jvm(directory, heap, JARS, {})
    try:
        yield running
    finally:
        running.kill()


def java_that(directory: Path, does: str) -> str:
    """Return the home of a Java that is this shell script."""
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{does}\n")
    java.chmod(0o755)
    return str(directory)


def connect(running: Jvm) -> "ClientServer":
    running.wait()
    return running.connect()


def test_a_directory_that_the_jvm_cannot_have_is_an_error_that_names_tmpdir(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no temporary directory in {tmp_path}/missing can be made: .* set TMPDIR"):
        Jvm(tmp_path / "missing", HEAP, JARS, {})


def test_a_jvm_that_may_open_too_few_files_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that it lacks a class, or a library."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 60))
    with pytest.raises(UserError) as error:
        Jvm(tmp_path, HEAP, JARS, {})
    check_text("spark_errors", "a JVM that may open too few files", str(error.value))


@pytest.mark.spark
def test_a_jvm_does_not_begin_with_a_part_of_the_machine_s_memory(tmp_path: Path) -> None:
    """It would fill with garbage before any is collected."""
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        assert gateway.jvm.java.lang.Runtime.getRuntime().totalMemory() < 64 << 20


@pytest.mark.spark
def test_a_jvm_has_no_file_that_it_would_leave_when_it_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
        assert [*Path("/tmp").glob(f"hsperfdata_*/{pid}")] == []


@pytest.mark.spark
def test_a_jvm_that_ends_while_it_starts_is_told_with_its_last_words(tmp_path: Path) -> None:
    with started(tmp_path, heap="1k") as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM that does not start", str(error.value))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a JVM with too small a heap", "Java heap space"),
        (
            "a JVM without threads",
            "unable to create native thread: possibly out of memory or process/resource limits reached",
        ),
    ],
)
def test_a_jvm_that_lacks_heap_or_threads_is_told_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"echo java.lang.OutOfMemoryError: {said}\nexit 3"))
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", name, str(error.value))


CRASH: Final = """#
# There is insufficient memory for the Java Runtime Environment to continue.
# Native memory allocation (mmap) failed to map 65536 bytes for committing reserved memory.
# An error report file with more information is saved as:
# /tmp/crash.log
[thread 9575 also had an error]"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a JVM whose memory runs out", CRASH),
        (
            "a JVM with too small an address space",
            "Error occurred during initialization of VM\nCould not allocate compressed class space: 1073741824 bytes",
        ),
    ],
)
def test_a_jvm_that_lacks_memory_is_told_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    limits = {resource.RLIMIT_AS: (2 << 30, resource.RLIM_INFINITY), resource.RLIMIT_NOFILE: (1024, 1024)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"cat <<'END'\n{said}\nEND\nexit 1"))
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", name, str(error.value))


@pytest.mark.spark
def test_a_jvm_that_crashes_is_told_with_the_cause_and_leaves_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    with started(temporary) as running, closing(connect(running)) as gateway:
        os.kill(gateway.jvm.java.lang.ProcessHandle.current().pid(), signal.SIGSEGV)
        assert running.ends_within(60.0)
        said = re.sub(r"at pc=.*?, pid=\d+, tid=\d+", "at pc=…, pid=…, tid=…", running.explain_end())
        check_text("spark_errors", "a JVM that crashes", said)
    assert [*work.iterdir()] == []


def test_a_signal_that_ends_a_jvm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "kill -TERM $$"))
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM that is ended while it starts", str(error.value))


def test_a_jvm_that_fails_to_start_and_does_not_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'Exception in thread "main" java.io.IOException: No space left on device'
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"echo '{said}'\nexec sleep 100"))
    monkeypatch.setattr(jvm_process, "START_TIMEOUT", 10.0)
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM without room for temporary files", str(error.value))


def test_a_jvm_that_lives_on_without_a_thread_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have lost a thread of Spark's scheduler, and its jobs would never end."""
    said = "java.lang.OutOfMemoryError: unable to create native thread: no"
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"echo {said}\nexec sleep 60"))
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM that lives on without a thread", str(error.value))


def test_a_jvm_that_does_not_come_up_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(jvm_process, "START_TIMEOUT", 0.0)
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM that says nothing", str(error.value))


def limit_memory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let JVMs be in a control group with a limit of memory. Return the file that counts its killed processes."""
    (directory / "membership").write_text("0::/\n")
    (directory / "memory.max").write_text(str(700 << 20))
    (killed := directory / "memory.events").write_text("oom_kill 0\n")
    monkeypatch.setattr(jvm_process, "Cgroup", partial(Cgroup, directory / "membership", directory))
    return killed


def test_a_worker_that_the_kernel_has_killed_explains_no_later_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session goes on without the compaction whose worker was killed."""
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(spark_errors, "ENDING_TIMEOUT", 0.0)
    monkeypatch.setattr(jvm_process, "GRACE", 0.0)
    killed = limit_memory(tmp_path, monkeypatch)
    with started(tmp_path) as running:
        killed.write_text("oom_kill 1\n")
        assert "out of memory" in str(explain_lost_task(running))
        monkeypatch.setattr(jvm_process, "RECENT", 0.0)
        assert str(explain_lost_task(running)) == WORKER_ENDED


def test_when_the_kernel_has_killed_a_worker_is_seen_also_while_no_job_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that comes hours later has another cause."""
    noted, note_kills = threading.Event(), Jvm._note_kills

    def note(running: Jvm) -> None:
        note_kills(running)
        if running._killed_for_memory:
            noted.set()

    events = limit_memory(tmp_path, monkeypatch)
    monkeypatch.setattr(Jvm, "_note_kills", note)
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(jvm_process, "PAUSE", 0.01)
    monkeypatch.setattr(jvm_process, "_answers", lambda *_: True)
    with started(tmp_path) as running:
        threading.Thread(target=running._watch, args=(0, ""), daemon=True).start()
        events.write_text("oom_kill 1\n")
        assert noted.wait(20.0)
        monkeypatch.setattr(jvm_process, "RECENT", 0.0)
        assert not running.memory_ran_out


@pytest.mark.spark
def test_a_jvm_that_was_killed_is_told_from_one_that_has_had_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = limit_memory(tmp_path, monkeypatch)
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        running.kill()
        for name, kills in {"a killed JVM": 0, "a JVM without memory": 1}.items():
            killed.write_text(f"oom_kill {kills}\n")
            with pytest.raises(RetryableError) as error, translate_errors(running, "A Spark job failed"):
                gateway.jvm.java.lang.System.nanoTime()
            check_text("spark_errors", name, str(error.value))


CLIENTS: Final[Mapping[str, Callable[["ClientServer"], object]]] = {
    "an open connection": lambda gateway: gateway.jvm.java.lang.System.nanoTime(),
    "a new connection": lambda gateway: in_another_thread(gateway.jvm.java.lang.System.nanoTime),
    "PySpark's own connection": lambda _: local_connect_and_auth(int(free_address().split(":")[1]), "secret"),
}


def in_another_thread(call: Callable[[], object]) -> object:
    """Py4J opens a connection for each thread."""
    with ThreadPoolExecutor() as threads:
        return threads.submit(call).result()


def kill(gateway: "ClientServer") -> None:
    """Return before the system says that the JVM has ended."""
    os.kill(gateway.jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)


def test_a_machine_without_a_loopback_interface_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(spark_errors, "ENDING_TIMEOUT", 0.0)
    with (
        started(tmp_path) as running,
        pytest.raises(RetryableError) as error,
        translate_errors(running, "Spark did not start"),
    ):
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    check_text("spark_errors", "no loopback interface", str(error.value))


@pytest.mark.spark
@pytest.mark.parametrize("client", CLIENTS)
def test_a_killed_jvm_is_told_whichever_client_sees_it_first(tmp_path: Path, client: str) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        kill(gateway)
        with pytest.raises(RetryableError) as error, translate_errors(running, "A Spark job failed"):
            CLIENTS[client](gateway)
    check_text("spark_errors", "a killed JVM", str(error.value))


@pytest.mark.spark
def test_a_signal_that_ends_a_jvm_is_told_also_if_its_spark_context_ends_first(tmp_path: Path) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
        threading.Timer(0.5, os.kill, [pid, signal.SIGTERM]).start()
        with pytest.raises(RetryableError) as error, translate_errors(running, "A Spark job failed"):
            gateway.jvm.java.util.Objects.requireNonNull(None, "Job 1 cancelled because SparkContext was shut down")
    check_text("spark_errors", "a JVM that is ended", str(error.value))


@pytest.mark.spark
def test_a_killed_jvm_is_told_also_by_what_asks_for_its_cores() -> None:
    with start_spark({"spark.master": "local[1]"}) as started:
        assert started.spark.cores == 1
        started.spark._jvm.kill()
        with pytest.raises(RetryableError) as error:
            _ = started.spark.cores
    check_text("spark_errors", "a killed JVM", str(error.value))


@pytest.mark.spark
def test_a_jvm_that_does_not_answer_any_more_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs would never end."""
    monkeypatch.setattr(jvm_process, "PAUSE", 0.01)
    monkeypatch.setattr(jvm_process, "ANSWER_TIMEOUT", 5.0)
    monkeypatch.setattr(jvm_process, "UNANSWERED", 2)
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
        assert not running.ends_within(1.0)  # it has answered many questions meanwhile
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RetryableError) as error, translate_errors(running, "A Spark job failed"):
            gateway.jvm.java.lang.System.nanoTime()
    check_text("spark_errors", "a JVM that does not answer any more", str(error.value))


def test_a_jvm_that_has_left_one_question_unanswered_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as while its container was paused."""
    answers = iter([False, False, True, False, False, True])
    asked = threading.Event()

    def answer(*_: object) -> bool:
        if (answered := next(answers, None)) is None:
            asked.set()
        return answered is not False

    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(jvm_process, "PAUSE", 0.0)
    monkeypatch.setattr(jvm_process, "UNANSWERED", 3)
    monkeypatch.setattr(jvm_process, "_answers", answer)
    with started(tmp_path) as running:
        threading.Thread(target=running._watch, args=(0, ""), daemon=True).start()
        assert asked.wait(20.0)
        assert not running.has_ended


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which processes are stopped")
def test_a_worker_that_is_stopped_for_long_is_killed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task would never end."""
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "sleep 60 &\nkill -STOP $!\nwait $!\necho $?\nexec sleep 60"))
    monkeypatch.setattr(jvm_process, "PAUSE", 0.01)
    monkeypatch.setattr(jvm_process, "_answers", lambda *_: True)
    with started(tmp_path) as running:
        threading.Thread(target=running._watch, args=(0, ""), daemon=True).start()
        assert wait_until(lambda: str(128 + signal.SIGKILL) in running.read_last_words())
        check_text("spark_errors", "a worker that was stopped", str(explain_lost_task(running)))
        monkeypatch.setattr(jvm_process, "RECENT", 0.0)
        monkeypatch.setattr(jvm_process, "GRACE", 0.0)
        assert str(explain_lost_task(running)) == WORKER_ENDED  # the session has gone on since


def test_a_jvm_may_speak_while_its_end_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Line(str):
        """The JVM says the next line while this one is read."""

        def __contains__(self, _: object) -> bool:
            running._keep("the next line")
            return False

    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    with started(tmp_path) as running:
        running._output += [Line("a line"), Line("another line")]
        assert "the next line" in running.explain_end()


def test_a_process_that_may_open_no_more_files_does_not_give_its_jvm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert jvm_process._answers(0, "")


@pytest.mark.parametrize(
    ("place", "name", "found"), [(jvm_process, "find_stopped", ()), (Cgroup, "killed_for_memory", 0)]
)
def test_a_jvm_is_watched_on_after_a_look_for_which_no_file_could_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str, found: object
) -> None:
    was_refused, has_gone_on = threading.Event(), threading.Event()

    def refuse_once(*_: object) -> object:
        if was_refused.is_set():
            has_gone_on.set()
            return found
        was_refused.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(jvm_process, "PAUSE", 0.01)
    monkeypatch.setattr(jvm_process, "_answers", lambda *_: True)
    with started(tmp_path) as running:
        monkeypatch.setattr(place, name, property(refuse_once) if place is Cgroup else refuse_once)
        threading.Thread(target=running._watch, args=(0, ""), daemon=True).start()
        assert has_gone_on.wait(20.0)


@pytest.mark.spark
def test_a_cluster_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself tries for a quarter of an hour, without saying so."""
    monkeypatch.setattr(spark_session, "CONTEXT_TIMEOUT", 2.0)
    settings = {"spark.master": "yarn", "spark.driver.host": "127.0.0.1"}
    with start_spark(settings) as started, pytest.raises(RetryableError) as error:
        started.spark.run(list).result()
    told, found, _ = str(error.value).partition("Spark's last words:")
    check_text("spark_errors", "a cluster that does not answer", f"{told}{found} …")


@pytest.mark.spark
def test_a_task_that_has_ended_with_the_jvm_is_told_from_one_that_has_ended_alone(tmp_path: Path) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        alone = explain_lost_task(running)
        kill(gateway)
        with_the_jvm = explain_lost_task(running)
    check_text("spark_errors", "a task that ends too early", str(alone))
    check_text("spark_errors", "a killed JVM", str(with_the_jvm))


@pytest.mark.parametrize(
    ("name", "said"), [("a worker that is ended", ENDED_BY_SIGTERM), ("a worker that hangs", ENDED_BECAUSE_IT_HANGS)]
)
def test_a_worker_that_says_why_it_ends_is_not_said_to_lack_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"echo '{said}'\nexec sleep 60"))
    monkeypatch.setattr(spark_errors, "ENDING_TIMEOUT", 0.0)
    monkeypatch.setattr(jvm_process, "GRACE", 10.0)
    with started(tmp_path) as running:
        error = explain_lost_task(running)
    check_text("spark_errors", name, str(error))


def test_the_end_that_a_worker_announced_explains_no_later_end_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session goes on without the compaction whose worker has ended."""
    monkeypatch.setenv("JAVA_HOME", java_that(tmp_path, f"echo '{ENDED_BECAUSE_IT_HANGS}'\nexec sleep 60"))
    monkeypatch.setattr(spark_errors, "ENDING_TIMEOUT", 0.0)
    monkeypatch.setattr(jvm_process, "GRACE", 10.0)
    with started(tmp_path) as running:
        assert str(explain_lost_task(running)) == str(explain_lost_task(running)) == WORKER_HANGS
        monkeypatch.setattr(jvm_process, "RECENT", 0.0)
        monkeypatch.setattr(jvm_process, "GRACE", 0.1)
        assert str(explain_lost_task(running)) == WORKER_ENDED


@pytest.mark.spark
def test_an_exception_of_java_alone_is_not_taken_for_the_end_of_a_worker(tmp_path: Path) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        io = gateway.jvm.java.io
        empty = io.DataInputStream(io.ByteArrayInputStream(b""))
        with (
            pytest.raises(RetryableError, match=r"^A Spark job failed: java\.io\.EOFException$"),
            translate_errors(running, "A Spark job failed"),
        ):
            empty.readInt()


@pytest.mark.spark
def test_of_several_exceptions_of_java_the_cause_is_told_alone(tmp_path: Path) -> None:
    with started(tmp_path) as running, closing(connect(running)) as gateway:
        failed = gateway.jvm.java.util.concurrent.CompletableFuture()
        failed.completeExceptionally(gateway.jvm.java.lang.IllegalStateException("no room"))
        with (
            pytest.raises(RetryableError, match=r"^A Spark job failed: java\.lang\.IllegalStateException: no room$"),
            translate_errors(running, "A Spark job failed"),
        ):
            failed.get()


@pytest.mark.spark
def test_of_an_exception_in_python_its_own_line_is_told(tmp_path: Path) -> None:
    """Libraries in Rust panic with an exception that is no `Exception`, so the task cannot report it."""
    trace = 'PythonException: Traceback (most recent call last):\n  File "a.py", line 1\n    b()\nPanic: at c\n\n\tat d'
    with (
        started(tmp_path) as running,
        closing(connect(running)) as gateway,
        pytest.raises(RetryableError, match=r"^A Spark job failed: Panic: at c$"),
        translate_errors(running, "A Spark job failed"),
    ):
        gateway.jvm.java.util.Objects.requireNonNull(None, trace)


def test_a_jvm_that_may_not_open_its_files_is_told_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    said = "java.io.FileNotFoundException: /java/lib/tzdb.dat (Too many open files)"
    java.write_text(f"#!/bin/sh\necho 'Caused by: {said}'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.wait()
    check_text("spark_errors", "a JVM without open files", str(error.value))
