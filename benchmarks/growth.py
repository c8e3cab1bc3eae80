"""How the cost of standard updates grows with the table: the same changes in a small table and in a large one."""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pyarrow.parquet as pq

from benchmarks.parts import generated_rows
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.updates import ADDED, KEPT, SEED, Cost, keys_of, open_task
from support.engines.readers import readers_catalog

KEY_COLUMNS: Final = ["id", "account"]
RECENT, FEW = 20_000, 1_000  # changes of a transaction


@dataclass(frozen=True)
class Growth:
    """What the transactions took in a table of so many rows. Processor time in seconds."""

    rows: int
    append: Cost  # of all rows, with delta updates
    initial: Cost  # of all rows, with standard updates
    recent_changes: int
    recent: Cost
    few_changes: int
    few: Cost
    key_columns_cpu: float  # of one process that reads the key columns of all files
    many_changes: int
    many: Cost
    many_seconds_per_row_over_append: float
    many_megabytes_over_append: float


def main() -> int:
    arguments = _arguments()
    before = conditions()
    publish("growth", before, [measure(count, arguments.many) for count in arguments.rows])
    return 0


def measure(count: int, many_changes: int) -> Growth:
    CACHE.mkdir(parents=True, exist_ok=True)
    path, keys, random = generated_rows.store_lines(CACHE, count, packed=False), [*keys_of(count)], Random(SEED)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="growth-") as name:
        directory = Path(name)
        with open_task(directory, ADDED) as task:
            appended = task.insert(path)
        with open_task(directory, KEPT) as task:
            initial = task.insert(path)
            reading = read_key_columns(directory)
            task.change(keys[:1])  # the session's first search also starts processes and reads manifests
            recent = task.change(keys[-RECENT:])
            few = task.change(random.sample(keys, FEW))
            many = task.change(random.sample(keys, many_changes))
    return Growth(
        rows=count,
        append=appended,
        initial=initial,
        recent_changes=RECENT,
        recent=recent,
        few_changes=FEW,
        few=few,
        key_columns_cpu=reading,
        many_changes=many_changes,
        many=many,
        many_seconds_per_row_over_append=many.seconds / many_changes / (appended.seconds / count),
        many_megabytes_over_append=many.megabytes / appended.megabytes,
    )


def read_key_columns(directory: Path) -> float:
    """Processor seconds that one thread needs to read the key columns of all data files."""
    table = readers_catalog(directory / "warehouse").load_table("shop.measurements")
    began = time.process_time()
    for task in table.scan().plan_files():
        pq.read_table(task.file.file_path.removeprefix("file://"), columns=KEY_COLUMNS, use_threads=False)
    return time.process_time() - began


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench growth", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="of each table")
    parser.add_argument("--many", type=int, default=500_000, help="changes of the largest transaction")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
