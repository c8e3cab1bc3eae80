"""What transactions cost by row, file, table and transaction, fitted to transactions of many sizes in one session; and
what a load needs by that."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import cpu_seconds
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.parts.servers import lake
from fixtures.conversation import Row, line, opening, store

TABLES: Final = 24
# Tables, and rows of each: each kind of cost is most of one of them.
SIZES: Final = ((1, 1), (8, 1), (24, 1), (1, 8000), (8, 1000), (2, 20_000))


@dataclass(frozen=True)
class Sample:
    """Transactions of one size: what one of them has taken, on one of the clocks."""

    tables: int
    rows: int  # of all tables
    files: int
    to_started_commit: float
    to_acknowledged: float


@dataclass(frozen=True)
class Model:
    """Milliseconds, but where the name says another unit. Staging is what lies before startedCommit, committing what
    lies after it. The error is in per cent of the largest sample."""

    clock: str
    staging_a_transaction: float
    staging_a_file: float
    staging_a_row_microseconds: float
    committing_a_transaction: float
    committing_a_table: float
    largest_error_percent: float
    tables: int
    rows_a_minute: int
    transactions_a_minute: int
    predicted_seconds_a_minute: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    with ExitStack() as resources:
        CACHE.mkdir(parents=True, exist_ok=True)
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=CACHE, prefix="run-")))
        config = resources.enter_context(lake(arguments.catalog, directory)).config
        samples = _measure(directory, config, arguments.count)
    models = [_fitted(clock, [sample[clock] for sample in samples], arguments) for clock in ("processor", "wall")]
    publish(f"model-{arguments.catalog}", before, models)
    return 0


def _measure(directory: Path, config: Any, count: int) -> list[dict[str, Sample]]:
    collections = [
        replace(generated_rows.COLLECTION, name=f"acmeCo/measurements-{number}", table=f"measurements_{number}")
        for number in range(TABLES)
    ]
    with Connector(directory) as connector:
        connector.send(*opening("measurements", collections, config))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        stores = {size: _stores(*size) for size in SIZES}
        for size in SIZES:  # what is needed is loaded by now
            _transaction(connector, stores[size])
        samples = [_sample(connector, size, stores[size], count) for size in SIZES]
        connector.end()
    return samples


def _stores(tables: int, rows_of_each: int) -> bytes:
    documents = list(generated_rows.documents(rows_of_each))
    return b"".join(
        store(generated_rows.COLLECTION, Row(index, document), packed=False)
        for index in range(tables)
        for document in documents
    )


def _sample(connector: Connector, size: tuple[int, int], stores: bytes, count: int) -> dict[str, Sample]:
    """On both clocks."""
    taken = [_transaction(connector, stores) for _ in range(count)]
    files = sum(files for files, _ in taken) // count
    spent = np.mean([seconds for _, seconds in taken], axis=0)
    tables, rows_of_each = size
    return {
        clock: Sample(tables, tables * rows_of_each, files, float(staging), float(committing))
        for clock, (staging, committing) in zip(("processor", "wall"), spent, strict=True)
    }


def _transaction(connector: Connector, stores: bytes) -> tuple[int, np.ndarray[Any, Any]]:
    """How many files it has staged, and the seconds of staging and of committing them, on both clocks."""
    connector.send(line("flush", {}))
    connector.expect("flushed")
    times = [_clocks(connector)]
    connector.send(stores, generated_rows.START_COMMIT)
    started = connector.expect("startedCommit")
    times.append(_clocks(connector))
    connector.send(line("acknowledge", {}))
    connector.expect("acknowledged")
    times.append(_clocks(connector))
    return _files(json.loads(started)), np.diff(np.array(times), axis=0).T


def _clocks(connector: Connector) -> tuple[float, float]:
    return cpu_seconds(connector.pid), time.perf_counter()


def _files(started: Any) -> int:
    ranges = started["startedCommit"]["state"]["updated"]["bindingStates"].values()
    return sum(len(entry["files"]) for entries in ranges for staged in entries.values() for entry in staged.values())


def _fitted(clock: str, samples: Sequence[Sample], arguments: argparse.Namespace) -> Model:
    staging = np.array([(1, sample.files, sample.rows) for sample in samples], float)
    committing = np.array([(1, sample.tables) for sample in samples], float)
    staged = np.array([sample.to_started_commit for sample in samples])
    committed = np.array([sample.to_acknowledged for sample in samples])
    of_staging, of_committing = _least_squares(staging, staged), _least_squares(committing, committed)
    error = np.abs(staging @ of_staging + committing @ of_committing - staged - committed)
    once = of_staging @ (1, arguments.tables, 0) + of_committing @ (1, arguments.tables)
    return Model(
        clock=clock,
        staging_a_transaction=of_staging[0] * 1e3,
        staging_a_file=of_staging[1] * 1e3,
        staging_a_row_microseconds=of_staging[2] * 1e6,
        committing_a_transaction=of_committing[0] * 1e3,
        committing_a_table=of_committing[1] * 1e3,
        largest_error_percent=float(error.max() / (staged + committed).max() * 100),
        tables=arguments.tables,
        rows_a_minute=arguments.rows,
        transactions_a_minute=arguments.transactions,
        predicted_seconds_a_minute=float(arguments.transactions * once + arguments.rows * of_staging[2]),
    )


def _least_squares(matrix: np.ndarray[Any, Any], seconds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    solution: np.ndarray[Any, Any] = np.linalg.lstsq(matrix, seconds, rcond=None)[0]
    return solution


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench model", description=__doc__)
    parser.add_argument("--count", type=int, default=4, help="transactions of each size")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local")
    parser.add_argument("--tables", type=int, default=100, help="of the load to be predicted")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all its tables, each minute: a gigabyte")
    parser.add_argument("--transactions", type=int, default=1, help="each minute")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
