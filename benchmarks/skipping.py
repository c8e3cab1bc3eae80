"""What readers skip with partitions and a sort order: the files and the bytes that a query with a filter reads.

Each table has the same rows, from several transactions. A file counts as read if the system has noted an access to it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import children
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.parts.servers import lake
from benchmarks.stores import feed, inputs
from fixtures.collection import NAMESPACE, Json
from fixtures.conversation import line, opening
from support.engines import spark_catalogs
from support.engines.spark_sql import spark_sql
from support.jars import jars

LAYOUTS: Final[Mapping[str, Json]] = {
    "plain": {},
    "by hour": {"partition_by": "hour(created_at)"},
    "by hour, sorted": {"partition_by": "hour(created_at)", "sort_by": "account"},
    "sorted": {"sort_by": "account"},
}
# A range of one hour, and one account of 100,003.
FILTERS: Final[Mapping[str, str]] = {
    "one hour": "created_at >= '2026-01-01T05:00:00+00:00' AND created_at < '2026-01-01T06:00:00+00:00'",
    "one account": "account = 31000",
}
ENGINES: Final = ("PyIceberg", "DuckDB", "Spark")

Query = Callable[[str], int]  # the filter; returns the number of rows that fit it


@dataclass(frozen=True)
class Skipped:
    """One query. Megabytes are those of all reads, the metadata among them."""

    layout: str
    filter: str
    engine: str
    rows: int
    files: int
    files_read: int
    megabytes: float
    megabytes_read: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    measured: list[Skipped] = []
    for name, settings in LAYOUTS.items():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="skipping-") as directory:
            _write(Path(directory), settings, arguments.rows, arguments.transactions)
            measured += _measure(name, Path(directory))
    found = {(each.filter, each.rows) for each in measured}
    if len(found) != len(FILTERS):
        sys.exit(f"tables or engines differ in their rows: {sorted(found)}; nothing is reported")
    publish("skipping", before, measured)
    return 0


def _write(directory: Path, settings: Json, count: int, transactions: int) -> None:
    """Write a table of these settings. All rows of a transaction are within a day, in the order of time."""
    [given] = inputs(["plain"], count // transactions, step=generated_rows.DAY // (count // transactions))
    collection = replace(generated_rows.COLLECTION, settings={**generated_rows.COLLECTION.settings, **settings})
    with lake("local", directory) as place, Connector(directory) as connector:
        connector.send(*opening("measurements", [collection], place.config))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        for _ in range(transactions):
            connector.send(line("flush", {}))
            connector.expect("flushed")
            feed(given.path, connector.input)
            connector.send(generated_rows.START_COMMIT)
            connector.expect("startedCommit")
            connector.send(line("acknowledge", {}))
            connector.expect("acknowledged")
        connector.end()


def _measure(layout: str, directory: Path) -> Iterator[Skipped]:
    warehouse = directory / "warehouse"
    files = [*warehouse.rglob("*.parquet")]
    for engine in ENGINES:
        with _engine(engine, warehouse, directory) as (query, pid):
            query("account = -1")  # loads what the engine needs for any query
            for name, condition in FILTERS.items():
                for file in files:
                    os.utime(file, (0, file.stat().st_mtime))
                began = _bytes_read(pid)
                found = query(condition)
                read = _bytes_read(pid) - began
                opened = sum(file.stat().st_atime > 0 for file in files)
                size = sum(file.stat().st_size for file in files)
                yield Skipped(layout, name, engine, found, len(files), opened, size / MB, read / MB)


@contextmanager
def _engine(engine: str, warehouse: Path, directory: Path) -> Iterator[tuple[Query, int]]:
    if engine == "Spark":
        local = spark_catalogs.settings("local", spark_catalogs.sqlite(warehouse, "catalog.db"))
        with spark_sql(jars("spark-reader"), local, directory) as spark:
            select = f"SELECT count(price) FROM local.{NAMESPACE}.measurements WHERE "

            def ask(condition: str) -> int:
                [[row]] = spark.rows(select + condition)
                return int(next(iter(row.values())))

            spark.rows("SELECT 1")
            yield ask, children(spark.pid)["java"]
        return
    command = [sys.executable, "-m", "benchmarks.parts.reader", engine, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        stdin, stdout = reader.stdin, reader.stdout

        def send(condition: str) -> int:
            print(json.dumps(condition), file=stdin, flush=True)
            return int(stdout.readline())

        yield send, reader.pid
        stdin.close()


def _bytes_read(pid: int) -> int:
    """Return the bytes that a process has read so far, by all calls of the system."""
    fields = dict(each.split(": ") for each in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench skipping", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each table")
    parser.add_argument("--transactions", type=int, default=4, help="that write a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
