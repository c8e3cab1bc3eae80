"""What happens in a lane of maintenance, in a process of its own: PySpark leaves sockets open.

`python lane_scenarios.py DIRECTORY` prints what each scenario gives, as JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import LongType
from pyspark import TaskContext

from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.file_groups import CompactedGroup, FailedGroup, FileGroup
from connector.host.refresh import Lease, Refreshed
from connector.host.tempdirs import make_directories
from connector.model.properties import Properties
from connector.spark.jobs.compaction_job import compact_in, compaction_jobs
from connector.spark.jvm.lanes import POOL, Lane
from connector.spark.jvm.spark_session import Spark

ACCESS: Final = Properties({})
LONGEST: Final = 60.0  # seconds that a job may take


def compact_beside_a_transaction(spark: Spark, directory: Path) -> Any:
    """Groups are compacted while a transaction's job holds all of its tasks."""
    groups = [make_group(directory, [1, 2], [3]), make_group(directory, [4], [5])]
    held = spark.run(partial(wait_for, directory / "finished"))
    outcomes = [*compact_in(spark)(compaction(directory), groups, access())]
    is_done = held.done()
    (directory / "finished").touch()
    held.result(LONGEST)
    return [*map(describe, outcomes), is_done]


def transact_beside_a_compaction(spark: Spark, directory: Path) -> Any:
    """A transaction's jobs run while a task of maintenance does."""
    maintained = spark.maintain(partial(wait_for, directory / "compacted"))
    found = [*spark.map(abs, [-1, -2]).result(LONGEST), len(spark.run(count).result(LONGEST)), maintained.done()]
    (directory / "compacted").touch()
    maintained.result(LONGEST)
    return found


def divide_among_tasks(spark: Spark, _: Path) -> Any:
    """The things of a job of transactions, with the numbers of their tasks: there is none for the slot beside them."""
    return spark.map(find_task, [*range(5)]).result(LONGEST)


def find_pools(spark: Spark, _: Path) -> Any:
    """The scheduler pools of the tasks of each kind of job."""
    jobs = (spark.run(find_pool), spark.map_shares(find_pool, [0]), spark.maintain(find_pool))
    return [[*set(job.result(LONGEST))] for job in jobs]


def find_watched(spark: Spark, _: Path) -> Any:
    """Whether each kind of job ends if it hangs."""
    jobs = (spark.run(is_watched), spark.map_shares(is_watched, [0]), spark.maintain(is_watched))
    return [all(job.result(LONGEST)) for job in jobs]


def find_policies(spark: Spark, place: Path) -> Any:
    """The scheduling policies of tasks of transactions after compactions: all idle workers run one."""
    for number in range(1, 4):
        outcome = next(compact_in(spark)(compaction(place), [make_group(place, [number])], access()))
        assert isinstance(outcome, CompactedGroup)
        assert outcome.processor_seconds > 0, "the session rests for it"
    held = spark.maintain(partial(wait_for, place / "later"))
    later = spark.map(find_policy, [*range(4)]).result(LONGEST)
    (place / "later").touch()
    return [*later, *held.result(LONGEST)]


def fail_some(spark: Spark, directory: Path) -> Any:
    """Two groups fail, the third does not."""
    missing = FileGroup((SourceFile(f"file://{directory}/missing.parquet", 100),))
    (directory / "broken.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    broken = FileGroup((SourceFile(f"file://{directory}/broken.parquet", 100),))
    groups = [missing, broken, make_group(directory, [1])]
    outcomes = [*compact_in(spark)(compaction(directory), groups, access())]
    assert all(outcome.processor_seconds > 0 for outcome in outcomes), "the session rests for it"
    return [*map(describe, outcomes)]


def end_early(_: Spark, directory: Path) -> Any:
    """A Spark of its own is killed after the first of three groups."""
    with compaction_jobs({"spark.master": "local[1]"}) as compact:
        outcomes = compact(compaction(directory), [make_group(directory, [n]) for n in range(1, 4)], access())
        first = describe(next(outcomes))
    return [first, *map(describe, outcomes)]


SCENARIOS: Final[tuple[Callable[[Spark, Path], Any], ...]] = (
    compact_beside_a_transaction,
    transact_beside_a_compaction,
    divide_among_tasks,
    find_pools,
    find_watched,
    find_policies,
    fail_some,
    end_early,
)


def access() -> Refreshed[Properties]:
    return Refreshed("the credentials", lambda: Lease.until(ACCESS, None))


def compaction(directory: Path) -> TargetFiles:
    column = TargetColumn(1, "id", LongType(), True, 1, LongType())
    return TargetFiles((column,), Destination(f"file://{directory}", Properties(), "compact-1"))


def make_group(directory: Path, *files: list[int]) -> FileGroup:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    sources = []
    for ids in files:
        path = directory / f"{ids[0]}.parquet"
        pq.write_table(pa.table([pa.array(ids)], schema=schema), path)
        sources.append(SourceFile(f"file://{path}", path.stat().st_size))
    return FileGroup(tuple(sources))


def describe(outcome: CompactedGroup | FailedGroup) -> Any:
    """The rows of the new files, or the error."""
    if isinstance(outcome, FailedGroup):
        return f"{type(outcome.error).__name__}: {outcome.error}"
    return [number for file in outcome.files for number in pq.read_table(file.path[7:])["id"].to_pylist()]


def wait_for(file: Path, partition: Iterable[int]) -> Iterable[int]:
    """A task that ends when the file is there. Gives the scheduling policy of its worker."""
    found = [find_policy() for _ in partition]
    deadline = time.monotonic() + LONGEST
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def count(partition: Iterable[int]) -> Iterable[int]:
    return [len([*partition])]


def find_task(number: int) -> tuple[int, int]:
    task = TaskContext.get()
    assert task
    return number, task.partitionId()


def find_pool(items: Iterable[int]) -> list[str | None]:
    task = TaskContext.get()
    assert task
    return [task.getLocalProperty(POOL) for _ in items]


def is_watched(items: Iterable[int]) -> list[bool]:
    return [any(thread.name == "work-watch" for thread in threading.enumerate()) for _ in items]


def find_policy(_: object = None) -> int:
    return os.sched_getscheduler(0)


def main(directory: Path) -> None:
    with make_directories() as directories:
        # Two tasks for transactions, and one beside them.
        settings = {"spark.master": "local[3]", "spark.default.parallelism": "2"}
        spark = Spark(settings, directories, lane=Lane.BESIDE)
        found = {}
        for scenario in SCENARIOS:
            place = directory / scenario.__name__
            (place / "data").mkdir(parents=True)
            found[scenario.__name__] = scenario(spark, place)
        spark.kill()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
