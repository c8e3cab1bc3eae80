"""Compaction: many small files, files with deleted rows, and files of an older partition spec, against Spark's own
`rewrite_data_files`, warm and on the same files. What counts is the processor time of all processes of each."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from pyiceberg.table import Table

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import PeakMemory, children, cpu_seconds, own_cpu_seconds
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.parts.servers import lake
from benchmarks.publishing import publish_task
from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet.file_options import Destination
from connector.encoding.rewriting.file_groups import Compact, CompactedGroup, FileGroup
from connector.host.refresh import Lease, Refreshed
from connector.host.tempdirs import make_directories
from connector.iceberg.metadata.table_arrangement import find_arrangement_of_all
from connector.model.properties import Properties
from connector.spark.jobs.compaction_job import compact_in
from connector.spark.jvm.lanes import Lane
from connector.spark.jvm.spark_session import Spark
from fixtures.conversation import line, opening
from support.engines import spark_catalogs
from support.engines.readers import readers_catalog
from support.engines.spark_sql import SparkSql, spark_sql
from support.jars import jars

T = TypeVar("T")

WARM: Final = 2  # rounds before those that count
SPARK_WARM: Final = 6  # until the JVM has compiled nearly all
# With its best compiler, unlike in the tests.
COMPILED: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
TABLE: Final = "shop.measurements"
# What another engine does before: every fourth row is deleted, or the table is partitioned.
DELETE: Final = (
    f"ALTER TABLE local.{TABLE} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
    f"DELETE FROM local.{TABLE} WHERE account % 4 = 0",
)
PARTITION: Final = (f"ALTER TABLE local.{TABLE} ADD PARTITION FIELD hours(created_at)",)


@dataclass(frozen=True)
class Cost:
    """What one compaction took, when all is warm, and the first one."""

    seconds: float
    cpu: float
    first_cpu: float
    peak_megabytes: float


@dataclass(frozen=True)
class Measurement:
    """MB are millions of bytes of the source files, rows those of the new files."""

    files: str
    source_files: int
    megabytes: float
    rows: int
    new_files: int
    seconds: float
    cpu_seconds: float
    peak_pss_megabytes: float
    megabytes_per_cpu_second: float
    rows_per_cpu_second: float
    spark_seconds: float
    spark_cpu_seconds: float
    spark_peak_pss_megabytes: float
    spark_megabytes_per_cpu_second: float
    spark_rows_per_cpu_second: float
    times_as_many_per_cpu_second: float
    first_cpu_seconds: float  # of the first compaction after the start of Spark
    spark_first_cpu_seconds: float
    times_as_many_per_cpu_second_in_the_first: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    CACHE.mkdir(parents=True, exist_ok=True)
    measured = [
        measure("small", arguments.rows, arguments.files),
        measure("with deletes", arguments.rows, max(arguments.files // 10, 1), DELETE),
        measure("of an older partition spec", arguments.rows, max(arguments.files // 10, 1), PARTITION),
    ]
    publish("compaction", before, measured)
    return 0


def measure(name: str, count: int, files: int, statements: Sequence[str] = ()) -> Measurement:
    """Compact a table that so many transactions have written, and that these statements have changed."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as place:
        directory = Path(place)
        _fill(directory, count, files)
        if statements:
            with _spark(directory) as spark:
                spark.rows(*statements)
        table = readers_catalog(directory / "warehouse").load_table(TABLE)
        group = _group(table)
        ours, compacted = _measure_ours(table, group)
        with _spark(directory) as spark:
            theirs = _measure_spark(spark, table)
            [[kept]] = spark.rows(f"SELECT count(*) AS n FROM local.{TABLE}")
    live = sum(compacted.kept)
    if live != kept["n"] or live != sum(file.rows for file in compacted.files):
        sys.exit(f"{live} rows are in the new files, and {kept['n']} in those of Spark: nothing is reported")
    size = sum(source.size for source in group.sources) / MB
    return Measurement(
        files=name,
        source_files=len(group.sources),
        megabytes=size,
        rows=live,
        new_files=len(compacted.files),
        seconds=ours.seconds,
        cpu_seconds=ours.cpu,
        peak_pss_megabytes=ours.peak_megabytes,
        megabytes_per_cpu_second=size / ours.cpu,
        rows_per_cpu_second=live / ours.cpu,
        spark_seconds=theirs.seconds,
        spark_cpu_seconds=theirs.cpu,
        spark_peak_pss_megabytes=theirs.peak_megabytes,
        spark_megabytes_per_cpu_second=size / theirs.cpu,
        spark_rows_per_cpu_second=live / theirs.cpu,
        times_as_many_per_cpu_second=theirs.cpu / ours.cpu,
        first_cpu_seconds=ours.first_cpu,
        spark_first_cpu_seconds=theirs.first_cpu,
        times_as_many_per_cpu_second_in_the_first=theirs.first_cpu / ours.first_cpu,
    )


def _fill(directory: Path, count: int, transactions: int) -> None:
    """Send the rows in so many transactions, with one task, so that each writes one file."""
    path = generated_rows.store_lines(CACHE, count, packed=False)
    with lake("local", directory) as place:
        config = {**place.config, "advanced": {"spark": {"spark.master": "local[1]"}}}
        publish_task(directory, [generated_rows.COLLECTION], place)
        *_, open_, acknowledge = opening("measurements", [generated_rows.COLLECTION], config)
    table = readers_catalog(directory / "warehouse").load_table(TABLE)
    with table.transaction() as transaction:
        transaction.set_properties({"flow.compaction.enabled": "false"})
    with Connector(directory) as connector, path.open("rb") as lines:
        connector.send(open_, acknowledge)
        connector.expect("opened", "acknowledged")
        for number in range(transactions):
            some = count * (number + 1) // transactions - count * number // transactions
            connector.send(line("flush", {}))
            connector.expect("flushed")
            connector.send(*islice(lines, some), generated_rows.START_COMMIT)
            connector.expect("startedCommit")
            connector.send(line("acknowledge", {}))
            connector.expect("acknowledged")
        connector.end()


def _group(table: Table) -> FileGroup:
    return FileGroup(
        tuple(
            SourceFile(
                task.file.file_path,
                task.file.file_size_in_bytes,
                tuple(sorted(each.file_path for each in task.delete_files)),
            )
            for task in table.scan().plan_files()
        )
    )


def _measure_ours(table: Table, group: FileGroup) -> tuple[Cost, CompactedGroup]:
    columns = tuple(TargetColumn.of(column, column) for column in table.schema().fields)
    destination = Destination.of_table(table, "compact-bench")
    target = TargetFiles(columns, destination, find_arrangement_of_all(table))
    groups = [*_split(group, len(os.sched_getaffinity(0)))]
    with make_directories() as directories:
        spark = Spark({}, directories, lane=Lane.ALONE)
        jobs = TimedJobs(spark)
        compact = partial(_compact, compact_in(jobs), target, groups)
        assert jobs.maintenance_tasks, "Spark has started"
        first_cpu, _ = _count_cpu(jobs, compact)
        for _ in range(WARM - 1):
            compact()
        with PeakMemory(os.getpid()) as peak:
            compact()
        began = time.perf_counter()
        cpu, compacted = _count_cpu(jobs, compact)
        seconds = time.perf_counter() - began
        spark.kill()
    files = tuple(file for each in compacted for file in each.files)
    kept = tuple(kept for each in compacted for kept in each.kept)
    return Cost(seconds, cpu, first_cpu, peak.peak.pss / MB), CompactedGroup(group, files, kept)


def _count_cpu(jobs: "TimedJobs", compact: Callable[[], T]) -> tuple[float, T]:
    """Return the processor seconds of a compaction, and its result."""
    jobs.cpu_seconds = 0.0
    lasting = {pid: own_cpu_seconds(pid) for pid in _lasting_processes()}
    compacted = compact()
    # A process that was not there before has started for the compaction.
    of_lasting = sum(own_cpu_seconds(pid) - lasting.get(pid, 0.0) for pid in _lasting_processes())
    return jobs.cpu_seconds + of_lasting, compacted


class TimedJobs:
    """Jobs whose tasks report the processor time of their workers. These end with their tasks, and Spark's daemon does
    not count what they took."""

    def __init__(self, jobs: Spark) -> None:
        self.cpu_seconds = 0.0
        self._jobs = jobs

    @property
    def maintenance_tasks(self) -> int:
        return self._jobs.maintenance_tasks

    def maintain(self, task: Callable[[Iterable[int]], Iterable[T]]) -> "Future[list[T]]":
        # A nested function goes to the worker by value. By its name, the worker would import this module.
        def measure_task(partition: Iterable[int]) -> Iterator[Any]:
            yield from task(partition)
            yield time.process_time()

        job = self._jobs.maintain(measure_task)
        timed: Future[list[T]] = Future()

        def report(done: "Future[list[Any]]") -> None:
            *results, seconds = done.result()
            self.cpu_seconds += seconds
            timed.set_result(results)

        job.add_done_callback(report)
        return timed


def _lasting_processes() -> Iterator[int]:
    """Yield this process, the JVM, and the parent of the workers."""
    yield os.getpid()
    jvm = children(os.getpid())["java"]
    yield jvm
    yield from children(jvm).values()


def _compact(compact: Compact, target: TargetFiles, groups: Sequence[FileGroup]) -> list[CompactedGroup]:
    access = Refreshed("the files", lambda: Lease.until(Properties({}), None))
    outcomes = [*compact(target, groups, access)]
    done = [outcome for outcome in outcomes if isinstance(outcome, CompactedGroup)]
    if len(done) < len(groups):
        sys.exit(f"{outcomes}: nothing is reported")
    return done


def _split(group: FileGroup, pieces: int) -> Iterator[FileGroup]:
    """Yield as many groups as there are cores, as Spark has tasks."""
    for piece in range(pieces):
        if sources := group.sources[piece::pieces]:
            yield FileGroup(sources)


def _measure_spark(spark: SparkSql, table: Table) -> Cost:
    """Compact the table with Spark, each time from the snapshot that is there before."""
    snapshot = table.metadata.current_snapshot_id

    def compact() -> None:
        spark.rows(f"CALL local.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))")

    started = cpu_seconds(spark.pid)
    compact()
    first_cpu = cpu_seconds(spark.pid) - started
    spark.rows(f"CALL local.system.rollback_to_snapshot('{TABLE}', {snapshot})")
    for _ in range(SPARK_WARM - 1):
        compact()
        spark.rows(f"CALL local.system.rollback_to_snapshot('{TABLE}', {snapshot})")
    with PeakMemory(spark.pid) as peak:
        compact()
    spark.rows(f"CALL local.system.rollback_to_snapshot('{TABLE}', {snapshot})")
    before, began = cpu_seconds(spark.pid), time.perf_counter()
    compact()
    return Cost(time.perf_counter() - began, cpu_seconds(spark.pid) - before, first_cpu, peak.peak.pss / MB)


@contextmanager
def _spark(directory: Path) -> Iterator[SparkSql]:
    settings = spark_catalogs.settings("local", spark_catalogs.sqlite(directory / "warehouse", "catalog.db"))
    with spark_sql(jars("spark-reader"), {**settings, **COMPILED, "spark.master": "local[*]"}, directory) as spark:
        yield spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench compaction", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="of the table")
    parser.add_argument("--files", type=int, default=80, help="small ones; a tenth of them in the other cases")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
