"""Small transactions of many tables: publishing them, opening the task, and every transaction after."""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import rows
from benchmarks.connector import Connector
from benchmarks.process_tree import PeakMemory
from benchmarks.report import REPOSITORY, conditions, publish
from benchmarks.servers import rest_endpoint
from fixtures.collection import Collection
from fixtures.conversation import CONFIG, Row, line, opening, store

CACHE: Final = REPOSITORY / ".cache" / "bench"
MB: Final = 1e6


@dataclass(frozen=True)
class Measurement:
    """Seconds, but where the name says another unit; the first transaction is not among the medians."""

    catalog: str
    tables: int
    rows_of_each: int
    transactions: int
    validate: float
    apply: float
    process_start_to_opened: float
    process_start_to_first_started_commit: float
    first_store_to_started_commit_median: float
    acknowledge_median: float
    peak_pss_megabytes: float


def main() -> int:
    arguments = _arguments()
    collections = [
        replace(rows.COLLECTION, name=f"acmeCo/measurements-{number}", table=f"measurements_{number}")
        for number in range(arguments.tables)
    ]
    before = conditions()
    with ExitStack() as resources:
        CACHE.mkdir(parents=True, exist_ok=True)
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=CACHE, prefix="run-")))
        config = CONFIG
        if arguments.catalog == "rest":
            config = resources.enter_context(rest_endpoint(directory))
        measured = _measure(directory, arguments, collections, config)
    publish(f"transactions-{arguments.catalog}-{arguments.tables}", before, [measured])
    return 0


def _measure(directory: Path, arguments: argparse.Namespace, collections: list[Collection], config: Any) -> Measurement:
    spec, validate, apply, open_, acknowledge = opening("measurements", collections, config)
    with Connector(directory) as connector:
        connector.send(spec)
        connector.expect("spec")
        published = [_timed(connector, validate, "validated"), _timed(connector, apply, "applied")]
        connector.end()
    stores = [
        b"".join(store(collection, Row(index, document), packed=False) for document in rows.documents(arguments.rows))
        for index, collection in enumerate(collections)
    ]
    began = time.perf_counter()
    with Connector(directory) as connector, PeakMemory(connector.pid) as peak:
        connector.send(open_)
        connector.expect("opened")
        opened = time.perf_counter() - began
        connector.send(acknowledge)
        connector.expect("acknowledged")
        transactions = [_transaction(connector, stores) for _ in range(arguments.count + 1)]
        connector.end()
    (_, _, first_started), *rest = transactions
    return Measurement(
        catalog=arguments.catalog,
        tables=len(collections),
        rows_of_each=arguments.rows,
        transactions=arguments.count,
        validate=published[0],
        apply=published[1],
        process_start_to_opened=opened,
        process_start_to_first_started_commit=first_started - began,
        first_store_to_started_commit_median=median(staged for staged, _, _ in rest),
        acknowledge_median=median(committed for _, committed, _ in rest),
        peak_pss_megabytes=peak.peak.pss / MB,
    )


def _transaction(connector: Connector, stores: list[bytes]) -> tuple[float, float, float]:
    """Seconds to startedCommit, seconds from there to acknowledged, and when it was staged."""
    connector.send(line("flush", {}))
    connector.expect("flushed")
    began = time.perf_counter()
    connector.send(*stores, rows.START_COMMIT)
    connector.expect("startedCommit")
    staged = time.perf_counter()
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")
    return staged - began, time.perf_counter() - staged, staged


def _timed(connector: Connector, request: bytes, kind: str) -> float:
    began = time.perf_counter()
    connector.send(request)
    connector.expect(kind)
    return time.perf_counter() - began


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench transactions", description=__doc__)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1000, help="of each table, in each transaction")
    parser.add_argument("--count", type=int, default=30, help="transactions after the first")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
