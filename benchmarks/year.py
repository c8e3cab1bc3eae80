"""A year in fast-forward: small transactions to three tables, which the session compacts and whose snapshots expire.

One table gets rows, one gets updates of random keys, and one gets new keys and updates of recent ones. What readers pay
is compared with tables that have the same rows, written in one transaction.

A transaction comes every few tenths of a second, and in production every few minutes. So the tables are measured when
compaction has done the work that was due, as a reader finds them in production.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from pyiceberg.table import Table

from benchmarks.commits import EARLY, LATE, LEAST, measure_baseline, open_session
from benchmarks.parts import generated_rows
from benchmarks.parts.compared_copies import Copies, Ratio
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import ProcessorTime
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.parts.sources import TABLES, Source, make_sources
from connector.evolution.property_changes import COMPACTION_PROPERTY
from connector.host.facts import COMPACT_DATA_FILES
from connector.iceberg.maintenance.background_compaction import COMMITS
from connector.iceberg.metadata.retention import MAX_AGE
from fixtures.collection import Json
from fixtures.conversation import CONFIG, line
from support.engines.readers import readers_catalog
from support.servers.server_process import free_address
from support.sessions.processes import wait_until
from support.sessions.scraping import Scraped, scrape

SEED: Final = 3
PROGRESS: Final = 500  # transactions
COMPACTION_PATIENCE: Final = 600.0  # seconds
MAINTENANCE_SECONDS: Final = "maintenance_duration_seconds_sum"


@dataclass(frozen=True)
class Files:
    """How many files the current snapshot of a table has."""

    data: int
    deletes: int
    manifests: int

    @classmethod
    def of(cls, table: Table) -> "Files":
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        totals = snapshot.summary.additional_properties
        manifests = len(snapshot.manifests(table.io))
        return cls(int(totals["total-data-files"]), int(totals["total-delete-files"]), manifests)


@dataclass(frozen=True)
class TableMeasurement:
    """One table after so many transactions. Ratios are to the table that was written once.

    Files in flight are those that the table had directly after the last transaction, while compaction still had work.
    """

    table: str
    transactions: int
    rows: int
    files: Files
    files_in_flight: Files
    snapshots: int
    metadata_json_kilobytes: float
    scan_ratio: float
    lookup_ratio: float
    spark_scan_ratio: float | None  # at the end only, as the next one
    spark_lookup_ratio: float | None
    compacted_over_written_bytes: float


@dataclass(frozen=True)
class Drift:
    """Medians of early transactions, the 50th to 100th, and of the last 50. The baseline divides the machine's load
    out."""

    ms_early: float
    ms_late: float
    ratio: float
    ratio_with_the_load_divided_out: float

    @classmethod
    def of(cls, part: str, transactions: "Sequence[Transaction]") -> "Drift":
        """Compare a part of the transactions."""
        windows = transactions[EARLY], transactions[LATE]
        early, late = (median(getattr(each, part) for each in window) for window in windows)
        before, after = (median(each.baseline for each in window) for window in windows)
        return cls(early * 1000, late * 1000, late / early, late / early * before / after)


@dataclass(frozen=True)
class SessionMeasurement:
    """The whole session."""

    transactions: int
    commits: int
    load: Drift
    acknowledge: Drift
    seconds: float
    cpu_seconds: float
    maintenance_seconds: float
    compaction_seconds: float
    compaction_cpu_seconds: float  # of the workers that rewrite files, without plans and commits
    compaction_share_of_cpu: float
    compacted_over_written_bytes: float


@dataclass(frozen=True)
class Transaction:
    """Seconds of its parts, and of a fixed piece of work directly afterwards."""

    load: float
    acknowledge: float
    baseline: float


class Year:
    """A session with three tables, and the runtime's part of the conversation."""

    def __init__(
        self,
        connector: Connector,
        directory: Path,
        sources: Sequence[Source],
        address: str,
        used: ProcessorTime,
        *,
        is_compacted: bool,
    ) -> None:
        self.transactions: list[Transaction] = []
        self._used = used
        self._connector = connector
        self._directory = directory
        self._sources = sources
        self._address = address
        self._is_compacted = is_compacted
        self._random = Random(SEED)

    def fill(self, count: int) -> None:
        """Write the rows that the tables with updates have at the beginning."""
        self._connector.send(line("flush", {}))
        self._connector.expect("flushed")
        for source in self._sources:
            if source.changed:
                self._connector.send(*source.add(count))
        self._connector.send(generated_rows.START_COMMIT, line("acknowledge", {}))
        self._connector.expect("startedCommit", "acknowledged")
        self._before = self._scrape()
        self._began, self._cpu = time.perf_counter(), self._used.seconds

    def transact(self) -> None:
        """Hold one transaction of all tables."""
        loads = [each for source in self._sources for each in source.choose_loads(self._random)]
        began = time.perf_counter()
        self._connector.send(*loads, line("flush", {}))
        answers = [json.loads(answer)["loaded"] for answer in self._connector.receive_until("flushed")]
        loaded = time.perf_counter() - began
        assert len(answers) == len(loads), "each key is there"
        documents: dict[int, list[Json]] = defaultdict(list)
        for answer in answers:
            documents[answer.get("binding", 0)].append(answer["doc"])
        for source in self._sources:
            self._connector.send(*source.change(documents[source.binding]), *source.add(source.added))
        self._connector.send(generated_rows.START_COMMIT)
        self._connector.expect("startedCommit")
        began = time.perf_counter()
        self._connector.send(line("acknowledge", {}))
        self._connector.expect("acknowledged")
        acknowledged = time.perf_counter() - began
        self.transactions.append(Transaction(loaded, acknowledged, measure_baseline(self._directory / "baseline")))

    def show_progress(self) -> None:
        """Print the medians of the last transactions."""
        last = self.transactions[-PROGRESS:]
        milliseconds = {
            part: round(median(getattr(each, part) for each in last) * 1000, 1)
            for part in ("load", "acknowledge", "baseline")
        }
        print(len(self.transactions), "transactions; of the last, ms:", milliseconds, file=sys.stderr, flush=True)

    def wait_for_compaction(self) -> None:
        """Wait until compaction has no work that is due: it looks at a table's files after some commits."""
        self._in_flight = {source: Files.of(self._load_table(source)) for source in TABLES}
        if self._is_compacted and not wait_until(lambda: not self._is_compaction_due(), COMPACTION_PATIENCE):
            sys.exit(f"compaction still has work after {COMPACTION_PATIENCE:.0f} s: nothing is reported")

    def _is_compaction_due(self) -> bool:
        metrics = self._scrape()
        return any(
            metrics.value("compaction_debt_bytes", table=table) > 0
            or metrics.value("commits_total", table=table)
            >= metrics.value("compaction_checked_commits_total", table=table) + COMMITS
            for table in (f"shop.{name}" for name in TABLES)
        )

    def _load_table(self, name: str) -> Table:
        return readers_catalog(self._directory / "warehouse").load_table(f"shop.{name}")

    def measure_tables(self, *, with_spark: bool) -> list[TableMeasurement]:
        """Compare each table with its copy, and look at its files."""
        copies = Copies(self._directory, [source.collection for source in self._sources])
        by_spark = copies.compare_with_spark(TABLES, Random(SEED)) if with_spark else [None] * len(TABLES)
        metrics = self._scrape()
        return [
            self._measure_table(source, copies, ratio, metrics)
            for source, ratio in zip(self._sources, by_spark, strict=True)
        ]

    def _measure_table(
        self, source: Source, copies: Copies, by_spark: Ratio | None, metrics: Scraped
    ) -> TableMeasurement:
        name = source.collection.table
        source.check(self._directory)
        table = self._load_table(name)
        ratio = copies.compare(name, Random(SEED))
        return TableMeasurement(
            table=name,
            transactions=len(self.transactions),
            rows=len(source.prices),
            files=Files.of(table),
            files_in_flight=self._in_flight[name],
            snapshots=len(table.snapshots()),
            metadata_json_kilobytes=len(table.io.new_input(table.metadata_location)) / 1e3,
            scan_ratio=ratio.scan,
            lookup_ratio=ratio.lookup,
            spark_scan_ratio=by_spark.scan if by_spark else None,
            spark_lookup_ratio=by_spark.lookup if by_spark else None,
            compacted_over_written_bytes=self._amplify(metrics, table=f"shop.{name}"),
        )

    def measure_session(self) -> SessionMeasurement:
        """Compare its last transactions with early ones, and its maintenance with all of its work."""
        cpu, seconds = self._used.seconds - self._cpu, time.perf_counter() - self._began
        metrics = self._scrape()
        maintenance = self._count(metrics, MAINTENANCE_SECONDS)
        return SessionMeasurement(
            transactions=len(self.transactions),
            commits=len(self.transactions) * len(self._sources),
            load=Drift.of("load", self.transactions),
            acknowledge=Drift.of("acknowledge", self.transactions),
            seconds=seconds,
            cpu_seconds=cpu,
            maintenance_seconds=maintenance,
            compaction_seconds=self._count(metrics, MAINTENANCE_SECONDS, action=COMPACT_DATA_FILES),
            compaction_cpu_seconds=self._used.seconds_when_idle,
            compaction_share_of_cpu=self._used.seconds_when_idle / cpu,
            compacted_over_written_bytes=self._amplify(metrics),
        )

    def _amplify(self, metrics: Scraped, **labels: str) -> float:
        """Return the bytes that compaction has rewritten, for each byte that transactions have written."""
        written = [self._count(metrics, f"{kind}_file_bytes_total", **labels) for kind in ("data", "delete")]
        return self._count(metrics, "maintenance_file_bytes_total", action=COMPACT_DATA_FILES, **labels) / sum(written)

    def _count(self, metrics: Scraped, name: str, **labels: str) -> float:
        return metrics.value(name, **labels) - self._before.value(name, **labels)

    def _scrape(self) -> Scraped:
        return scrape(self._address)


def main() -> int:
    arguments = _arguments()
    before = conditions()
    tables, session = measure(arguments)
    publish("year", before, tables)
    publish("year-session", before, [session])
    return 0


def measure(arguments: argparse.Namespace) -> tuple[list[TableMeasurement], SessionMeasurement]:
    properties = {
        MAX_AGE: str(arguments.age * 1000),
        "write.target-file-size-bytes": str(arguments.target_size),
        COMPACTION_PROPERTY: str(not arguments.without_compaction).lower(),
    }
    sources = make_sources(properties)
    address = free_address()
    config = {**CONFIG, "advanced": {"metrics": {"listen": address}}}
    count = -(-arguments.commits // len(TABLES))
    reports = {count * number // arguments.reports for number in range(1, arguments.reports)}
    measured: list[TableMeasurement] = []
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        directory = Path(name)
        with (
            open_session(directory, [source.collection for source in sources], config) as connector,
            ProcessorTime(connector.pid) as used,
        ):
            year = Year(connector, directory, sources, address, used, is_compacted=not arguments.without_compaction)
            year.fill(arguments.rows)
            for number in range(1, count + 1):
                year.transact()
                if number % PROGRESS == 0:
                    year.show_progress()
                if number in reports:
                    year.wait_for_compaction()
                    measured += year.measure_tables(with_spark=False)
                    print(*measured[-len(TABLES) :], sep="\n", flush=True)
            year.wait_for_compaction()
            session = year.measure_session()
            measured += year.measure_tables(with_spark=not arguments.without_spark)
    return measured, session


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench year", description=__doc__)
    parser.add_argument("--commits", type=int, default=50_000, help="of all tables together")
    parser.add_argument("--rows", type=int, default=20_000, help="of the tables with updates, at the beginning")
    parser.add_argument("--age", type=int, default=60, help="seconds that a snapshot is kept after it was replaced")
    parser.add_argument("--target-size", type=int, default=8 << 20, help="bytes of a data file, about")
    parser.add_argument("--reports", type=int, default=4, help="how often the tables are compared with copies")
    parser.add_argument("--without-compaction", action="store_true", help="to see what it is good for")
    parser.add_argument("--without-spark", action="store_true", help="as a reader of the tables")
    arguments = parser.parse_args()
    if arguments.commits < LEAST * len(TABLES):
        parser.error(f"--commits: at least {LEAST * len(TABLES)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
