"""Small transactions of many tables: publishing them, opening the task, and every transaction after."""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import rows
from benchmarks.connector import Connector
from benchmarks.process_tree import PeakMemory
from benchmarks.publishing import many_collections, publish_task
from benchmarks.report import conditions, publish
from benchmarks.servers import lake
from benchmarks.stores import CACHE, FORMS, MB
from fixtures.collection import Collection
from fixtures.conversation import Row, line, opening, store


@dataclass(frozen=True)
class Load:
    form: str
    tables: int
    rows: int  # of each table, in each transaction
    transactions: int  # after the first


@dataclass(frozen=True)
class Measurement:
    """Seconds, but where the name says another unit; the first transaction is not among the medians."""

    catalog: str
    form: str
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
    load = Load(arguments.form, arguments.tables, arguments.rows, arguments.count)
    before = conditions()
    publish(f"transactions-{arguments.catalog}-{arguments.tables}", before, [measure(load, arguments.catalog)])
    return 0


def measure(load: Load, catalog: str) -> Measurement:
    collections = many_collections(load.tables, "measurements")
    stores = [_stores(index, collection, load) for index, collection in enumerate(collections)]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name, lake(catalog, Path(name)) as place:
        validated, applied = publish_task(Path(name), collections, place)
        *_, open_, acknowledge = opening("measurements", collections, place.config)
        began = time.perf_counter()
        with Connector(Path(name)) as connector, PeakMemory(connector.pid) as peak:
            connector.send(open_)
            connector.expect("opened")
            opened = time.perf_counter() - began
            connector.send(acknowledge)
            connector.expect("acknowledged")
            (_, _, first_started), *rest = [_transaction(connector, stores) for _ in range(load.transactions + 1)]
            connector.end()
    return Measurement(
        catalog=catalog,
        form=load.form,
        tables=load.tables,
        rows_of_each=load.rows,
        transactions=load.transactions,
        validate=validated,
        apply=applied,
        process_start_to_opened=opened,
        process_start_to_first_started_commit=first_started - began,
        first_store_to_started_commit_median=median(staged for staged, _, _ in rest),
        acknowledge_median=median(committed for _, committed, _ in rest),
        peak_pss_megabytes=peak.peak.pss / MB,
    )


def _stores(index: int, collection: Collection, load: Load) -> bytes:
    packed = load.form == "packed"
    return b"".join(store(collection, Row(index, document), packed=packed) for document in rows.documents(load.rows))


def _transaction(connector: Connector, stores: Sequence[bytes]) -> tuple[float, float, float]:
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench transactions", description=__doc__)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1000, help="of each table, in each transaction")
    parser.add_argument("--count", type=int, default=30, help="transactions after the first")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local", help="rest: with an S3 server")
    parser.add_argument("--form", choices=FORMS, default="plain")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
