"""Standard updates: an initial load, transactions of changes, and what readers pay afterwards. Spark's own join and
`MERGE INTO`, warm and on an equal table, are the baseline."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import PeakMemory, cpu_seconds
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.parts.servers import lake
from benchmarks.publishing import publish_task
from fixtures.collection import Collection
from fixtures.conversation import Row, line, load, opening, store
from support.engines import spark_catalogs
from support.engines.readers import duckdb_connection, readers_catalog
from support.engines.spark_sql import SparkSql, spark_sql
from support.jars import jars

SEED: Final = 2
RUNS: Final = 5  # of a scan
WARM: Final = 2  # rounds of random changes before those that count, with the connector and with Spark
ROUNDS: Final = 3  # that count: their median
SCAN: Final = "SELECT sum(price), sum(account), max(note), sum(length(flow_document))"
BATCH: Final = 2000  # lines that are sent at once
KEPT: Final = replace(generated_rows.COLLECTION, settings={"delta_updates": False})
KEPT_IN_VERSION_3: Final = replace(KEPT, settings={**KEPT.settings, "format_version": 3})
ADDED: Final = replace(generated_rows.COLLECTION, name="acmeCo/log", table="log", settings={"delta_updates": True})


@dataclass(frozen=True)
class Cost:
    """What a transaction or a query took. CPU seconds are those of a process and its descendants."""

    seconds: float
    cpu: float
    megabytes: float  # at the peak


@dataclass(frozen=True)
class RandomChanges:
    """Random changes, and what readers pay after them. Seconds, but where the name says another unit."""

    seconds: float
    cpu: float
    megabytes: float
    later_seconds_median: float
    later_cpu_median: float
    later_cpu_most: float
    scan_after: float
    spark_scan_after: float
    data_files: int
    delete_files: int
    delete_megabytes_written: float

    @classmethod
    def of(cls, directory: Path, first: Sequence[Cost], later: Sequence[Cost]) -> "RandomChanges":
        """Measure what readers pay when these transactions are done."""
        counted = typical(first)
        data_files, delete_files = count_files(directory)
        return cls(
            counted.seconds,
            counted.cpu,
            counted.megabytes,
            later_seconds_median=median(each.seconds for each in later),
            later_cpu_median=median(each.cpu for each in later),
            later_cpu_most=max(each.cpu for each in later),
            scan_after=scan(directory),
            spark_scan_after=scan_with_spark(directory),
            data_files=data_files,
            delete_files=delete_files,
            delete_megabytes_written=measure_deletes(directory),
        )


@dataclass(frozen=True)
class Measurement:
    """Seconds, but where the name says another unit. Version 3 of the table's format has deletion vectors."""

    rows: int
    changes: int
    append: Cost
    initial: Cost
    recent: Cost
    few_random: Cost
    spark_join: Cost
    spark_merge: Cost
    scan_clean: float
    spark_scan_clean: float
    random: RandomChanges
    random_in_version_3: RandomChanges
    random_cpu_over_spark: float
    random_seconds_over_spark: float
    scan_after_over_clean: float
    spark_scan_after_over_clean: float


class Task:
    """A connector with one table, and the runtime's part of the conversation."""

    def __init__(self, connector: Connector, collection: Collection) -> None:
        self._connector = connector
        self._collection = collection

    def insert(self, path: Path) -> Cost:
        """One transaction of new rows."""

        def run() -> None:
            self._connector.send(line("flush", {}))
            self._connector.expect("flushed")
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    self._connector.send(block)
            self._commit()

        return self._measure(run)

    def change(self, keys: Sequence[list[Any]]) -> Cost:
        """One transaction that changes a field of these documents. What the runtime does meanwhile is not counted."""
        loads = [load(0, key, packed=False) for key in keys]
        found: list[bytes] = []

        def look_up() -> None:
            for batch in _batches(loads):
                self._connector.send(*batch)
            self._connector.send(line("flush", {}))
            found.extend(self._connector.receive_until("flushed"))

        loaded = self._measure(look_up)
        assert len(found) == len(keys), "each key is there"
        stores = list(self._reduce(found))

        def write() -> None:
            for batch in _batches(stores):
                self._connector.send(*batch)
            self._commit()

        stored = self._measure(write)
        return Cost(
            loaded.seconds + stored.seconds,
            loaded.cpu + stored.cpu,
            max(loaded.megabytes, stored.megabytes),
        )

    def _reduce(self, found: Sequence[bytes]) -> Iterator[bytes]:
        for document in sorted((json.loads(answer)["loaded"]["doc"] for answer in found), key=itemgetter("id")):
            yield store(
                self._collection, Row(0, {**document, "price": document["price"] + 1}, exists=True), packed=False
            )

    def _commit(self) -> None:
        self._connector.send(generated_rows.START_COMMIT)
        self._connector.expect("startedCommit")
        self._connector.send(line("acknowledge", {}))
        self._connector.expect("acknowledged")

    def _measure(self, run: Callable[[], object]) -> Cost:
        return measure_cost(self._connector.pid, run)


def measure_cost(pid: int, run: Callable[[], object]) -> Cost:
    """Run something that this process and its descendants work for."""
    before, began = cpu_seconds(pid), time.perf_counter()
    with PeakMemory(pid) as peak:
        run()
        seconds = time.perf_counter() - began
    return Cost(seconds, cpu_seconds(pid) - before, peak.peak.pss / MB)


def main() -> int:
    arguments = _arguments()
    before = conditions()
    publish("updates", before, [measure(arguments.rows, arguments.changes, arguments.transactions)])
    return 0


def measure(count: int, changes: int, transactions: int) -> Measurement:
    CACHE.mkdir(parents=True, exist_ok=True)
    path = generated_rows.store_lines(CACHE, count, packed=False)
    keys = [*keys_of(count)]
    random = Random(SEED)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        directory = Path(name)
        with open_task(directory, ADDED) as task:
            appended = task.insert(path)
        with open_task(directory, KEPT) as task:
            initial = task.insert(path)
            clean, clean_by_spark = scan(directory), scan_with_spark(directory)
            join, merge = measure_spark(directory, changes)
            first = [task.change(random.sample(keys, changes)) for _ in range(WARM + ROUNDS)]
            recent = task.change(keys[-changes:])
            few = task.change(random.sample(keys, max(1, changes // 20)))
            later = [task.change(random.sample(keys, changes)) for _ in range(transactions - WARM - ROUNDS)]
        changed = RandomChanges.of(directory, first, later)
    return Measurement(
        rows=count,
        changes=changes,
        append=appended,
        initial=initial,
        recent=recent,
        few_random=few,
        spark_join=join,
        spark_merge=merge,
        scan_clean=clean,
        spark_scan_clean=clean_by_spark,
        random=changed,
        random_in_version_3=measure_version_3(path, keys, changes, transactions),
        random_cpu_over_spark=changed.cpu / (join.cpu + merge.cpu),
        random_seconds_over_spark=changed.seconds / (join.seconds + merge.seconds),
        scan_after_over_clean=changed.scan_after / clean,
        spark_scan_after_over_clean=changed.spark_scan_after / clean_by_spark,
    )


def measure_version_3(path: Path, keys: Sequence[list[Any]], changes: int, transactions: int) -> RandomChanges:
    """Measure as many random changes of a table of format version 3."""
    random = Random(SEED)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        directory = Path(name)
        with open_task(directory, KEPT_IN_VERSION_3) as task:
            task.insert(path)
            costs = [task.change(random.sample(keys, changes)) for _ in range(transactions)]
        return RandomChanges.of(directory, costs[: WARM + ROUNDS], costs[WARM + ROUNDS :])


def count_files(directory: Path) -> tuple[int, int]:
    """Return how many data files and delete files the table has. Each deletion vector counts."""
    snapshot = readers_catalog(directory / "warehouse").load_table("shop.measurements").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    totals = snapshot.summary.additional_properties
    return int(totals["total-data-files"]), int(totals["total-delete-files"])


def measure_deletes(directory: Path) -> float:
    """Return the megabytes of all delete files that are on the disk, also of those that were replaced."""
    return sum(file.stat().st_size for file in directory.rglob("*-deletes.*")) / MB


def keys_of(count: int) -> Iterator[list[Any]]:
    """The keys of so many documents, in their order."""
    documents = ({"id": f"m-{number:012}", "account": number * 31 % 100_003} for number in range(count))
    return (generated_rows.COLLECTION.key_of(document) for document in documents)


@contextmanager
def open_task(directory: Path, collection: Collection) -> Iterator[Task]:
    """Publish the task to a new lake, and open a session."""
    with lake("local", directory) as place:
        publish_task(directory, [collection], place)
        *_, open_, acknowledge = opening("measurements", [collection], place.config)
    with Connector(directory) as connector:
        connector.send(open_, acknowledge)
        connector.expect("opened", "acknowledged")
        yield Task(connector, collection)
        connector.end()


def scan(directory: Path) -> float:
    """Seconds that DuckDB needs for a scan of some columns, the least of some runs. Each has read nothing before."""
    location = readers_catalog(directory / "warehouse").load_table("shop.measurements").metadata_location
    seconds = []
    for _ in range(RUNS):
        with duckdb_connection(directory / "extensions") as database:
            began = time.perf_counter()
            database.execute(f"{SCAN} FROM iceberg_scan('{location}')").fetchall()
            seconds.append(time.perf_counter() - began)
    return min(seconds)


@contextmanager
def _spark(directory: Path) -> Iterator[SparkSql]:
    settings = spark_catalogs.settings("local", spark_catalogs.sqlite(directory / "warehouse", "catalog.db"))
    with spark_sql(jars("spark-reader"), {**settings, "spark.master": "local[*]"}, directory) as spark:
        yield spark


def measure_spark(directory: Path, changes: int) -> tuple[Cost, Cost]:
    """Return the costs of Spark's join and of its `MERGE INTO`, merge-on-read, on a copy of the table."""
    joins: list[Cost] = []
    merges: list[Cost] = []
    with _spark(directory) as spark:
        spark.rows(
            "CREATE TABLE local.shop.copy USING iceberg TBLPROPERTIES ('format-version'='2', "
            "'write.merge.mode'='merge-on-read', 'write.parquet.row-group-size-bytes'='33554432') "
            "AS SELECT * FROM local.shop.measurements"
        )
        for number in range(WARM + ROUNDS):
            table = f"local.shop.changes_{number}"
            spark.rows(
                f"CREATE TABLE {table} USING iceberg AS SELECT * FROM local.shop.copy "
                f"ORDER BY xxhash64(id, {number}) LIMIT {changes}"
            )
            joins.append(
                _measure_sql(
                    spark,
                    "SELECT count(*), sum(length(copy.flow_document)) FROM local.shop.copy AS copy "
                    f"JOIN (SELECT id, account FROM {table}) AS keys USING (id, account)",
                )
            )
            merges.append(
                _measure_sql(
                    spark,
                    f"MERGE INTO local.shop.copy AS copy USING {table} AS changes "
                    "ON copy.id = changes.id AND copy.account = changes.account WHEN MATCHED THEN UPDATE SET *",
                )
            )
    return typical(joins), typical(merges)


def typical(rounds: Sequence[Cost]) -> Cost:
    """Return the medians of the rounds that count."""
    counted = rounds[WARM:]
    return Cost(*(median(getattr(each, part.name) for each in counted) for part in fields(Cost)))


def scan_with_spark(directory: Path) -> float:
    """Seconds that a warm Spark needs for the same, the least of some runs."""
    with _spark(directory) as spark:
        query = f"{SCAN} FROM local.shop.measurements"
        return min(_measure_sql(spark, query).seconds for _ in range(RUNS))


def _measure_sql(spark: SparkSql, query: str) -> Cost:
    return measure_cost(spark.pid, lambda: spark.rows(query))


def _batches(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (lines[first : first + BATCH] for first in range(0, len(lines), BATCH))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench updates", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--changes", type=int, default=20_000, help="of each transaction")
    parser.add_argument("--transactions", type=int, default=50, help="of random changes, before the last scan")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
