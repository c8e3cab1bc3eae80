"""What becomes of sessions in containers that are stopped, frozen, killed or short of memory: every row lands once."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any, Final

import pytest

from support.engines.readers import ledger_ids
from support.sessions.connector_process import ConnectorEndedError
from support.sessions.containers import IMAGE, Container, Image
from support.sessions.runtime import Runtime, Session

pytestmark = [*IMAGE, pytest.mark.spark]

HALVES: Final = (
    {"keyEnd": 0x7FFFFFFF, "rClockEnd": 0xFFFFFFFF},
    {"keyBegin": 0x80000000, "keyEnd": 0xFFFFFFFF, "rClockEnd": 0xFFFFFFFF},
)
KILLS: Final = 3
LAST_MOMENT: Final = 1.0  # seconds after the first of a process's transactions may begin: time for several of them
# The kernel ends the processes that are named, for memory, and takes no other before them.
TAKE_THE_MEMORY_OF: Final = """
import os, sys
from pathlib import Path

def living():
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_other = process.name not in ("1", str(os.getpid()))
            if is_other and sys.argv[1].encode() in (process / "cmdline").read_bytes():
                yield process
        except OSError:
            pass

for process in living():
    (process / "oom_score_adj").write_text("1000")
taken = []
while any(living()):
    taken.append(b"x" * (8 << 20))
"""


@pytest.fixture
def in_image(image: Image, tmp_path: Path) -> Callable[..., Runtime]:
    """A task whose processes are containers, with the engine's options for them."""

    def runtime(**options: Any) -> Runtime:
        return Runtime(tmp_path, shards_share_state=True, launch=image.launch(**options))

    return runtime


def published(runtime: Runtime) -> Session:
    session = runtime.start(publish=True)
    session.opened()
    session.acknowledge()
    return session


def container(session: Session) -> Any:
    assert isinstance(session.connector.process, Container)
    return session.connector.process.container


def transactions_without_end(runtime: Runtime, session: Session) -> None:
    while True:
        session.flush()
        session.store({"id": runtime.checkpoint})
        session.send_start_commit()
        runtime.record(session.connector.expect("startedCommit"), checkpoint=runtime.checkpoint + 1)
        session.acknowledge()


def test_sigterm_ends_the_first_process_and_its_transaction_leaves_no_trace(
    in_image: Callable[..., Runtime], tmp_path: Path
) -> None:
    with published(in_image(user="12345:54321")) as session:
        session.transaction({"id": 1})
        session.flush()
        session.store({"id": 2})
        session.connector.process.send_signal(signal.SIGTERM)
        outcome = session.connector.wait()
    assert outcome.status == 143
    assert " error " not in outcome.log
    assert ledger_ids(tmp_path) == [1]


def test_the_first_process_leaves_no_zombie_while_it_runs(in_image: Callable[..., Runtime]) -> None:
    with published(in_image()) as session:
        for number in range(3):
            session.transaction({"id": number})
        states = [state for state, *_ in container(session).top(ps_args="-eo state,pid,args")["Processes"]]
        assert len(states) > 3  # a JVM, a daemon and its workers
        assert "Z" not in states


@pytest.mark.parametrize("victim", [pytest.param("java", marks=pytest.mark.slow), "pyspark.worker"])
def test_a_process_that_is_killed_for_memory_is_one_line_and_a_failure(
    in_image: Callable[..., Runtime], tmp_path: Path, victim: str
) -> None:
    with published(in_image(mem_limit="1g", memswap_limit="1g")) as session:
        session.transaction({"id": 1})
        container(session).exec_run(["python", "-c", TAKE_THE_MEMORY_OF, victim])
        session.flush()
        session.store({"id": 2})
        session.send_start_commit()
        outcome = session.connector.wait()
    assert outcome.status == 1
    assert "(out of memory, exit status 137): the memory of" in outcome.last_log_line
    assert "reached its limit of 1024 MB" in outcome.last_log_line
    assert ledger_ids(tmp_path) == [1]


@pytest.mark.slow  # tests/crash pauses processes
def test_a_container_that_wakes_up_after_its_successor_has_committed_is_refused(
    in_image: Callable[..., Runtime], tmp_path: Path
) -> None:
    runtime = in_image()
    with published(runtime) as frozen:
        frozen.flush()
        frozen.store({"id": 1})
        frozen.start_commit(commits=False)
        container(frozen).pause()
        with runtime.open() as successor:
            successor.transaction({"id": 1})
        container(frozen).unpause()
        frozen.send_acknowledge()
        outcome = frozen.connector.wait()
    assert outcome.status == 1
    assert "another process has taken over acmeCo/task" in outcome.last_log_line
    assert ledger_ids(tmp_path) == [1]


def test_containers_that_are_killed_at_every_step_of_a_transaction_land_every_row_once(
    in_image: Callable[..., Runtime], tmp_path: Path
) -> None:
    runtime = in_image()
    steps: Sequence[Callable[[Session], object]] = (
        lambda session: session.flush(),
        lambda session: session.store({"id": runtime.checkpoint}),
        lambda session: session.send_start_commit(),
        lambda session: runtime.record(session.connector.expect("startedCommit"), checkpoint=runtime.checkpoint + 1),
        lambda session: session.send_acknowledge(),
    )
    for last in range(2, len(steps) + 1):  # before the first store there is nothing to lose
        with published(runtime) as session:
            for step in steps[:last]:
                step(session)
            session.connector.kill()
    with runtime.open():
        assert ledger_ids(tmp_path) == list(range(runtime.checkpoint)) == [0, 1]


@pytest.mark.slow  # the test above kills at each step
@pytest.mark.parametrize("seed", range(1, 8))
def test_containers_that_are_killed_at_random_moments_land_every_row_once(
    in_image: Callable[..., Runtime], tmp_path: Path, seed: int
) -> None:
    """Whatever a moment hits: the runtime's log says which rows there must be."""
    runtime, moments = in_image(), Random(seed)
    for _ in range(KILLS):
        with published(runtime) as session:
            killer = Timer(moments.uniform(0, LAST_MOMENT), session.connector.process.kill)
            killer.start()
            with pytest.raises(ConnectorEndedError):
                transactions_without_end(runtime, session)
            killer.join()
    with runtime.open():
        assert ledger_ids(tmp_path) == list(range(runtime.checkpoint))


@pytest.mark.slow  # tests/process/test_key_ranges.py has two processes
def test_two_containers_append_to_one_table_side_by_side(in_image: Callable[..., Runtime], tmp_path: Path) -> None:
    runtime = in_image()
    with published(runtime):
        pass
    with runtime.open(HALVES[0]) as left, runtime.open(HALVES[1]) as right:
        left.transaction({"id": 1})
        right.transaction({"id": 2})
        left.transaction({"id": 3})
    assert ledger_ids(tmp_path) == [1, 2, 3]


def test_a_container_with_too_little_memory_says_so_at_once(in_image: Callable[..., Runtime]) -> None:
    session = in_image(mem_limit="300m", memswap_limit="300m").start(publish=True)
    outcome = session.connector.wait()
    assert (outcome.status, outcome.kinds) == (1, ["applied"])
    assert "has 300 MB of memory, and a session needs 704 MB" in outcome.last_log_line
