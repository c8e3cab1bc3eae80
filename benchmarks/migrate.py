"""A column of a large table that gets another type, its history kept: from the apply request to its answer."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks import rows
from benchmarks.connector import Connector
from benchmarks.process_tree import PeakMemory
from benchmarks.report import conditions, publish
from benchmarks.stores import CACHE, MB, feed
from fixtures.conversation import line, opening

FIELD: Final = "quantity"  # a long, that becomes text


@dataclass(frozen=True)
class Measurement:
    """Of a whole apply, Spark's start included."""

    rows: int
    files_megabytes: float
    seconds: float
    rows_per_second: float
    yardstick_rows_per_second: float
    ratio: float
    peak_pss_megabytes: float


def main() -> int:
    arguments = _arguments()
    lines = rows.store_lines(CACHE, arguments.rows, packed=False)
    before = conditions()
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as directory:
        publish("migrate", before, [_measure(lines, arguments.rows, Path(directory))])
    return 0


def _measure(lines: Path, count: int, directory: Path) -> Measurement:
    _fill(lines, directory)
    old = _table(directory)
    files = [Path(task.file.file_path.removeprefix("file://")) for task in old.scan().plan_files()]
    yardstick = _rewrite(files, directory)
    with Connector(directory) as connector, PeakMemory(connector.pid) as peak:
        began = time.perf_counter()
        connector.send(_apply())
        connector.expect("applied")
        seconds = time.perf_counter() - began
        connector.end()
    _check(old, _table(directory), count)
    return Measurement(
        rows=count,
        files_megabytes=sum(file.stat().st_size for file in files) / MB,
        seconds=seconds,
        rows_per_second=count / seconds,
        yardstick_rows_per_second=count / yardstick,
        ratio=yardstick / seconds,
        peak_pss_megabytes=peak.peak.pss / MB,
    )


def _fill(lines: Path, directory: Path) -> None:
    with Connector(directory) as connector:
        connector.send(*opening("measurements", [rows.COLLECTION]))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        connector.send(line("flush", {}))
        connector.expect("flushed")
        feed(lines, connector.input)
        connector.send(rows.START_COMMIT, line("acknowledge", {}))
        connector.expect("startedCommit", "acknowledged")
        connector.end()


def _rewrite(files: Sequence[Path], directory: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.rewriting", FIELD, str(directory), *map(str, files)]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)


def _apply() -> bytes:
    fields = tuple(
        replace(field, config={"castToString": True}) if field.name == FIELD else field
        for field in rows.COLLECTION.fields
    )
    _, _, apply, _, _ = opening("measurements", [replace(rows.COLLECTION, fields=fields)])
    return apply


def _table(directory: Path) -> Table:
    warehouse = directory / "warehouse"
    return SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse)).load_table(
        "shop.measurements"
    )


def _check(old: Table, new: Table, count: int) -> None:
    """Every number is there, as text."""
    before, after = (table.scan(selected_fields=("id", FIELD)).to_arrow().sort_by("id") for table in (old, new))
    column = after[FIELD]
    if after.num_rows != count or column.type == before[FIELD].type or column.cast(pa.int64()) != before[FIELD]:
        sys.exit("the table has lost values: nothing is reported")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench migrate", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
