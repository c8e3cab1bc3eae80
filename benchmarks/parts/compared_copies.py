"""Compares a table with one that has the same rows, written in one transaction."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from duckdb import DuckDBPyConnection

from benchmarks.commits import open_session
from benchmarks.parts import generated_rows
from fixtures.collection import Collection, Json
from fixtures.conversation import Row, line, store
from support.engines.readers import duckdb_connection, readers_catalog
from support.engines.spark_sql import MetadataFiles, spark_sql
from support.jars import jars

RUNS: Final = 5
LOOKUPS: Final = 15
COLUMNS: Final = "sum(price), sum(account), max(note), sum(length(flow_document))"


@dataclass(frozen=True)
class Found:
    """What a reader finds in a table, as far as updates and lost or repeated rows change it."""

    rows: int
    keys: int
    sum_of_prices: float


@dataclass(frozen=True)
class Ratio:
    """The time of a full scan and of a point lookup, over that in the table that was written once: DuckDB's processor
    time, or Spark's time."""

    scan: float
    lookup: float


class Copies:
    """The same rows of some tables, written in one transaction to a warehouse beside theirs."""

    def __init__(self, directory: Path, collections: Sequence[Collection]) -> None:
        self._ours = directory
        self._collections = collections
        self.directory = Path(tempfile.mkdtemp(dir=directory, prefix="once-"))
        self._write()

    def _write(self) -> None:
        appending = [replace(each, settings={**each.settings, "delta_updates": True}) for each in self._collections]
        with open_session(self.directory, appending) as connector:
            connector.send(line("flush", {}))
            connector.expect("flushed")
            for binding, collection in enumerate(appending):
                for document in self._read(collection.table):
                    connector.send(store(collection, Row(binding, document), packed=False))
            connector.send(generated_rows.START_COMMIT, line("acknowledge", {}))
            connector.expect("startedCommit", "acknowledged")

    def _read(self, table: str) -> list[Json]:
        """Return the documents in the order of their keys, in which a runtime sends them."""
        with duckdb_connection(self._ours / "extensions") as duckdb:
            found = duckdb.execute(f"SELECT flow_document FROM {_scan_of(self._ours, table)}").fetchall()
        return sorted((json.loads(document) for (document,) in found), key=itemgetter("id"))

    def compare(self, table: str, random: Random) -> Ratio:
        """Compare DuckDB's processor times. Both tables are read in turn: other work on the machine slows both."""
        with duckdb_connection(self._ours / "extensions") as duckdb:
            duckdb.execute("SET enable_external_file_cache = false")
            duckdb.execute("SET threads = 1")  # this one, whose time is measured
            filters = self._choose_filters(duckdb, table, random)
            scans = [self._time_both(duckdb, COLUMNS, table, "") for _ in range(RUNS)]
            lookups = [self._time_both(duckdb, "flow_document", table, each) for each in filters]
        return Ratio(
            median(ours for ours, _ in scans) / median(once for _, once in scans),
            median(ours for ours, _ in lookups) / median(once for _, once in lookups),
        )

    def _time_both(self, duckdb: DuckDBPyConnection, columns: str, table: str, where: str) -> Sequence[float]:
        seconds = []
        for directory in (self._ours, self.directory):
            query = f"SELECT {columns} FROM {_scan_of(directory, table)} {where}"
            seconds.append(_time(partial(_fetch, duckdb, query), time.thread_time))
        return seconds

    def _choose_filters(self, duckdb: DuckDBPyConnection, table: str, random: Random) -> list[str]:
        """Return the conditions of the lookups, each of one row."""
        ids = duckdb.execute(f"SELECT id FROM {_scan_of(self._ours, table)} ORDER BY id").fetchall()
        return [f"WHERE id = '{id_}'" for (id_,) in random.sample(ids, min(LOOKUPS, len(ids)))]

    def compare_with_spark(self, tables: Sequence[str], random: Random) -> Sequence[Ratio]:
        """Compare the times of a warm Spark in each of these tables. Both are read in turn."""
        with duckdb_connection(self._ours / "extensions") as duckdb:
            filters = {table: self._choose_filters(duckdb, table, random) for table in tables}
        with spark_sql(jars("spark-reader"), {"spark.master": "local[*]"}, self._ours) as spark:
            files = MetadataFiles(spark, "scratch", self.directory, None)
            return [self._compare_in_spark(files, table, filters[table]) for table in tables]

    def _compare_in_spark(self, files: MetadataFiles, table: str, filters: Sequence[str]) -> Ratio:
        ours, once = (_locate(directory, table) for directory in (self._ours, self.directory))
        with files.table(ours) as ours_in_spark, files.table(once) as once_in_spark:

            def time_both(columns: str, where: str) -> Sequence[float]:
                queries = (f"SELECT {columns} FROM {name} {where}" for name in (ours_in_spark, once_in_spark))
                return [_time(partial(files.spark.rows, query)) for query in queries]

            scans = [time_both(COLUMNS, "") for _ in range(RUNS)]
            time_both("flow_document", filters[0])  # the first one is slower: its plan is compiled
            lookups = [time_both("flow_document", each) for each in filters]
        return Ratio(
            min(first for first, _ in scans) / min(second for _, second in scans),
            median(first for first, _ in lookups) / median(second for _, second in lookups),
        )


def find(directory: Path, table: str) -> Found:
    """Read a table with DuckDB."""
    with duckdb_connection(directory / "extensions") as duckdb:
        query = f"SELECT count(*), count(DISTINCT id), sum(price) FROM {_scan_of(directory, table)}"
        [found] = duckdb.execute(query).fetchall()
    return Found(*found)


def _scan_of(directory: Path, table: str) -> str:
    """Return DuckDB's expression for a table as it is now."""
    return f"iceberg_scan('{_locate(directory, table)}')"


def _locate(directory: Path, table: str) -> str:
    return readers_catalog(directory / "warehouse").load_table(f"shop.{table}").metadata_location


def _fetch(duckdb: DuckDBPyConnection, query: str) -> None:
    duckdb.execute(query).fetchall()


def _time(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    work()
    return clock() - began
