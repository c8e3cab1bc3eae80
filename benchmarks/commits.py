"""Thousands of small transactions of one table: what the last commits cost, as a ratio to what early ones cost."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import memory, own_cpu_seconds
from benchmarks.parts.report import CACHE, MB, conditions, publish
from connector.iceberg.catalogs.local import open_local
from connector.iceberg.metadata.retention import MAX_AGE
from fixtures.collection import NAMESPACE, Collection, Json
from fixtures.conversation import CONFIG, Row, line, opening, store

EARLY: Final = slice(50, 100)
LATE: Final = slice(-50, None)
LEAST: Final = 200  # transactions: fewer have no early and no late ones
YARDSTICK: Final = json.dumps(list(generated_rows.documents(200)))


@dataclass(frozen=True)
class Commit:
    """Seconds from acknowledge to acknowledged, and of it on the connector's processor; and what a fixed piece of work
    took directly afterwards, on the same machine with the same load."""

    seconds: float
    cpu_seconds: float
    baseline_seconds: float


@dataclass(frozen=True)
class TableSize:
    """How large its commits have left a table."""

    metadata_json_megabytes: float
    metadata_json_files: int
    other_metadata_files: int
    snapshots: int
    manifests: int


@dataclass(frozen=True)
class Measurement(TableSize):
    """Milliseconds are medians, those of processor time means: it is counted in hundredths of a second."""

    transactions: int
    rows_of_each: int
    max_snapshot_age_seconds: int
    commit_ms_50_to_100: float
    commit_ms_last_50: float
    baseline_ms_50_to_100: float
    baseline_ms_last_50: float
    cpu_ms_50_to_100: float
    cpu_ms_last_50: float
    ratio: float
    ratio_with_the_load_divided_out: float
    ratio_of_cpu: float
    pss_megabytes_after_100: float
    pss_megabytes_at_the_end: float
    transactions_per_second: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    publish("commits", before, [measure(arguments.count, arguments.rows, arguments.age)])
    return 0


def measure(count: int, rows_of_each: int = 10, age: int = 10) -> Measurement:
    """So many transactions, each a commit, of a table whose snapshots are kept for `age` seconds after they were
    replaced."""
    properties = {MAX_AGE: str(age * 1000)}
    collection = replace(generated_rows.COLLECTION, settings={"additional_table_properties": properties})
    stores = [store(collection, Row(0, document), packed=False) for document in generated_rows.documents(rows_of_each)]
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        directory = Path(name)
        with open_session(directory, [collection]) as connector:
            began = time.perf_counter()
            commits, pss = [], []
            for _ in range(count):
                commits.append(_transaction(connector, stores, directory / "baseline"))
                if len(commits) in (EARLY.stop, count):
                    pss.append(memory(connector.pid).pss / MB)
            seconds = time.perf_counter() - began
        size = _size(directory / "warehouse", collection.table)
    return _measurement(rows_of_each, age, commits, seconds, pss, size)


@contextmanager
def open_session(directory: Path, collections: Sequence[Collection], config: Json = CONFIG) -> Iterator[Connector]:
    """Publish a task and open its session, in one process. At the end, wait for the process."""
    requests = list(opening("commits", collections, config))
    with Connector(directory) as connector:
        for request, answer in zip(requests, ("spec", "validated", "applied", "opened", "acknowledged"), strict=True):
            connector.send(request)
            connector.expect(answer)
        yield connector
        connector.end()


def _transaction(connector: Connector, stores: Sequence[bytes], scratch: Path) -> Commit:
    connector.send(line("flush", {}))
    connector.expect("flushed")
    connector.send(*stores, generated_rows.START_COMMIT)
    connector.expect("startedCommit")
    cpu, began = own_cpu_seconds(connector.pid), time.perf_counter()
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")
    ended = time.perf_counter()
    return Commit(ended - began, own_cpu_seconds(connector.pid) - cpu, measure_baseline(scratch))


def measure_baseline(scratch: Path) -> float:
    """Return the seconds of a fixed piece of work. Like a commit, it parses and writes JSON, and waits for the disk."""
    began = time.perf_counter()
    with scratch.open("w") as file:
        json.dump(json.loads(YARDSTICK), file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began


def _size(warehouse: Path, name: str) -> TableSize:
    table = open_local(warehouse, {}).load_table((NAMESPACE, name))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = list(Path(table.location().removeprefix("file://"), "metadata").iterdir())
    json_files = [file for file in files if file.suffix == ".json"]
    return TableSize(
        metadata_json_megabytes=len(table.io.new_input(table.metadata_location)) / MB,
        metadata_json_files=len(json_files),
        other_metadata_files=len(files) - len(json_files),
        snapshots=len(table.snapshots()),
        manifests=len(snapshot.manifests(table.io)),
    )


def _measurement(
    rows_of_each: int, age: int, commits: Sequence[Commit], seconds: float, pss: Sequence[float], size: TableSize
) -> Measurement:
    early, late = commits[EARLY], commits[LATE]
    commit = [median(each.seconds for each in window) for window in (early, late)]
    baseline = [median(each.baseline_seconds for each in window) for window in (early, late)]
    cpu = [sum(each.cpu_seconds for each in window) / len(window) for window in (early, late)]
    return Measurement(
        **vars(size),
        transactions=len(commits),
        rows_of_each=rows_of_each,
        max_snapshot_age_seconds=age,
        commit_ms_50_to_100=commit[0] * 1000,
        commit_ms_last_50=commit[1] * 1000,
        baseline_ms_50_to_100=baseline[0] * 1000,
        baseline_ms_last_50=baseline[1] * 1000,
        cpu_ms_50_to_100=cpu[0] * 1000,
        cpu_ms_last_50=cpu[1] * 1000,
        ratio=commit[1] / commit[0],
        ratio_with_the_load_divided_out=commit[1] / commit[0] * baseline[0] / baseline[1],
        ratio_of_cpu=cpu[1] / cpu[0],
        pss_megabytes_after_100=pss[0],
        pss_megabytes_at_the_end=pss[1],
        transactions_per_second=len(commits) / seconds,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench commits", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="transactions, each a commit")
    parser.add_argument("--rows", type=int, default=10, help="of each transaction")
    parser.add_argument("--age", type=int, default=10, help="seconds that a snapshot is kept after it was replaced")
    arguments = parser.parse_args()
    if arguments.count < LEAST:
        parser.error(f"--count: at least {LEAST}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
