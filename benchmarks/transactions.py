"""Small transactions of many tables: publishing them, opening the task, and every transaction after; where there is a
catalog's server, once it is warm."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import PeakMemory, cpu_seconds
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.parts.servers import REST_CATALOG, S3_SERVER, Lake, lake
from benchmarks.publishing import many_collections, publish_task
from benchmarks.stores import FORMS
from fixtures.collection import Collection
from fixtures.conversation import Row, line, opening, store

CONNECTOR: Final = "connector"


@dataclass(frozen=True)
class Load:
    form: str
    tables: int
    rows: int  # of each table, in each transaction
    transactions: int  # after the first


# A catalog that people use has been up for long; one that has just been started compiles its code for half a thousand
# commits.
WARM_UP: Final = Load("plain", tables=8, rows=1, transactions=60)


@dataclass(frozen=True)
class Measurement:
    """Seconds, but where the name says another unit; the first transaction is not among the medians and means. CPU
    seconds are those of a process and its descendants. `own` is the median without the servers' part: their CPU
    seconds, divided by the cores that they share with the connector."""

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
    first_store_to_started_commit_own: float
    first_store_to_started_commit_cpu_of_connector: float
    first_store_to_started_commit_cpu_of_servers: float
    acknowledge_median: float
    acknowledge_own: float
    acknowledge_cpu: float
    acknowledge_cpu_of_connector: float
    acknowledge_cpu_of_s3_server: float
    acknowledge_cpu_of_rest_catalog: float
    acknowledge_cpu_share_of_servers: float
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
        if place.servers:
            _warm_up(Path(name), place)
        validated, applied = publish_task(Path(name), collections, place)
        *_, open_, acknowledgement = opening("measurements", collections, place.config)
        began = time.perf_counter()
        with Connector(Path(name)) as connector, PeakMemory(connector.pid) as peak:
            connector.send(open_)
            connector.expect("opened")
            opened = time.perf_counter() - began
            connector.send(acknowledgement)
            connector.expect("acknowledged")
            clock = partial(_cpu_seconds, {CONNECTOR: connector.pid, **place.servers})
            first, *rest = [_transaction(connector, stores, clock) for _ in range(load.transactions + 1)]
            connector.end()
    staging = _means([each.staging_cpu for each in rest])
    cpu = _means([each.acknowledge_cpu for each in rest])
    to_started_commit = median(each.to_started_commit for each in rest)
    acknowledge, cores = median(each.acknowledge for each in rest), conditions()["cores"]
    return Measurement(
        catalog=catalog,
        form=load.form,
        tables=load.tables,
        rows_of_each=load.rows,
        transactions=load.transactions,
        validate=validated,
        apply=applied,
        process_start_to_opened=opened,
        process_start_to_first_started_commit=first.started_commit_at - began,
        first_store_to_started_commit_median=to_started_commit,
        first_store_to_started_commit_own=to_started_commit - _of_servers(staging) / cores,
        first_store_to_started_commit_cpu_of_connector=staging[CONNECTOR],
        first_store_to_started_commit_cpu_of_servers=_of_servers(staging),
        acknowledge_median=acknowledge,
        acknowledge_own=acknowledge - _of_servers(cpu) / cores,
        acknowledge_cpu=sum(cpu.values()),
        acknowledge_cpu_of_connector=cpu[CONNECTOR],
        acknowledge_cpu_of_s3_server=cpu[S3_SERVER],
        acknowledge_cpu_of_rest_catalog=cpu[REST_CATALOG],
        acknowledge_cpu_share_of_servers=_of_servers(cpu) / sum(cpu.values()),
        peak_pss_megabytes=peak.peak.pss / MB,
    )


def _means(cpu: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The means by process; 0 for a server that there is not."""
    return {name: mean(seconds.get(name, 0.0) for seconds in cpu) for name in (CONNECTOR, S3_SERVER, REST_CATALOG)}


def _of_servers(cpu: Mapping[str, float]) -> float:
    return cpu[S3_SERVER] + cpu[REST_CATALOG]


def _warm_up(directory: Path, place: Lake) -> None:
    """Transactions of other tables, by a session of its own."""
    collections = many_collections(WARM_UP.tables, "warm_up")
    publish_task(directory, collections, place)
    stores = [_stores(index, collection, WARM_UP) for index, collection in enumerate(collections)]
    *_, open_, acknowledge = opening("measurements", collections, place.config)
    with Connector(directory) as connector:
        connector.send(open_, acknowledge)
        connector.expect("opened", "acknowledged")
        for _ in range(WARM_UP.transactions):
            _transaction(connector, stores, dict)
        connector.end()


def _stores(index: int, collection: Collection, load: Load) -> bytes:
    packed = load.form == "packed"
    return b"".join(
        store(collection, Row(index, document), packed=packed) for document in generated_rows.documents(load.rows)
    )


@dataclass(frozen=True)
class _Transaction:
    to_started_commit: float
    started_commit_at: float
    staging_cpu: Mapping[str, float]  # by process
    acknowledge: float
    acknowledge_cpu: Mapping[str, float]  # by process


def _transaction(
    connector: Connector, stores: Sequence[bytes], cpu_seconds_by_process: Callable[[], Mapping[str, float]]
) -> _Transaction:
    connector.send(line("flush", {}))
    connector.expect("flushed")
    idle, began = cpu_seconds_by_process(), time.perf_counter()
    connector.send(*stores, generated_rows.START_COMMIT)
    connector.expect("startedCommit")
    started, staged = time.perf_counter(), cpu_seconds_by_process()
    asked = time.perf_counter()
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")
    acknowledged, committed = time.perf_counter(), cpu_seconds_by_process()
    return _Transaction(
        started - began, started, _difference(staged, idle), acknowledged - asked, _difference(committed, staged)
    )


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> Mapping[str, float]:
    return {name: seconds - before[name] for name, seconds in after.items()}


def _cpu_seconds(processes: Mapping[str, int]) -> Mapping[str, float]:
    return {name: cpu_seconds(pid) for name, pid in processes.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench transactions", description=__doc__)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1000, help="of each table, in each transaction")
    parser.add_argument("--count", type=int, default=30, help="transactions after the first")
    parser.add_argument(
        "--catalog", choices=("local", "rest"), default="local", help="rest: with an S3 server, both warm"
    )
    parser.add_argument("--form", choices=FORMS, default="plain")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
