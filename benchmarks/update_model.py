"""What transactions of changes cost by data file, row, page of documents and change, fitted to tables of some sizes;
and how well that predicts tables of other sizes."""

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyarrow import parquet

from benchmarks.parts import generated_rows
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.updates import KEPT, SEED, Task, keys_of, open_task
from support.engines.readers import readers_catalog

RANDOM: Final = (0.0001, 0.001, 0.01, 0.1, 0.5)  # shares of a table's rows that a transaction changes
RECENT: Final = (0.001, 0.01)  # the same, of the newest rows
INSERTS: Final = (1, 40)  # transactions that fill a table: the second table has many small files
RUNS: Final = 3
PAGE: Final = 1 << 20  # bytes of documents
UNCOMPACTED: Final = replace(
    KEPT, settings={**KEPT.settings, "additional_table_properties": {"flow.compaction.enabled": "false"}}
)


@dataclass(frozen=True)
class Reached:
    """What a search of a transaction's keys may read: the files and row groups whose bounds allow one."""

    files: int
    rows: int
    pages: float  # of about 1 MB of documents: those that are expected to have a changed row


@dataclass(frozen=True)
class Sample:
    """Transactions of one size. Processor time in seconds, the median of some runs."""

    table_rows: int
    order: str
    changes: int
    reached: Reached
    cpu: float

    @property
    def terms(self) -> tuple[float, ...]:
        """What each part of the cost is multiplied by."""
        return 1, self.reached.files, self.reached.rows, self.reached.pages, self.changes


@dataclass(frozen=True)
class Prediction:
    """What the model says of transactions that it was not fitted to."""

    sample: Sample
    predicted_cpu: float
    predicted_over_measured: float


@dataclass(frozen=True)
class Model:
    """Processor time of a transaction."""

    transaction_milliseconds: float
    file_milliseconds: float
    row_microseconds: float
    page_milliseconds: float
    change_microseconds: float
    fitted: tuple[Sample, ...]
    checked: tuple[Prediction, ...]


def main() -> int:
    arguments = _arguments()
    before = conditions()
    fitted = [sample for count in arguments.fitted for sample in _measure_tables(count)]
    costs = fit(fitted)
    checked = [predict(costs, sample) for count in arguments.checked for sample in _measure_tables(count)]
    transaction, file, row, page, change = costs
    model = Model(transaction * 1e3, file * 1e3, row * 1e6, page * 1e3, change * 1e6, (*fitted,), (*checked,))
    publish("update-model", before, [model])
    return 0


def _measure_tables(count: int) -> Iterator[Sample]:
    for inserts in INSERTS:
        yield from measure(count, inserts)


def measure(count: int, inserts: int) -> Iterator[Sample]:
    """Measure transactions in a table of so many rows. No compaction changes its files meanwhile."""
    CACHE.mkdir(parents=True, exist_ok=True)
    keys, random = [*keys_of(count)], Random(SEED)
    path = generated_rows.store_lines(CACHE, count, packed=False)
    with (
        tempfile.TemporaryDirectory(dir=CACHE, prefix="update-model-") as name,
        open_task(directory := Path(name), UNCOMPACTED) as task,
    ):
        for part in _split(path, count, inserts, directory / "part.jsonl"):
            task.insert(part)
        task.change(keys[:1])  # the session's first search also starts processes and reads manifests
        # Random changes come last: their files may have any key.
        for changes in _count_changes(count, RECENT):
            yield _measure_changes(directory, task, count, "recent", [keys[-changes:]] * RUNS)
        for changes in _count_changes(count, RANDOM):
            drawn = [random.sample(keys, changes) for _ in range(RUNS)]
            yield _measure_changes(directory, task, count, "random", drawn)


def _count_changes(count: int, shares: Sequence[float]) -> list[int]:
    return [max(1, round(count * share)) for share in shares]


def _measure_changes(
    directory: Path, task: Task, count: int, order: str, runs: Sequence[Sequence[list[Any]]]
) -> Sample:
    reached = find_reached(directory, runs[0])
    return Sample(count, order, len(runs[0]), reached, median(task.change(keys).cpu for keys in runs))


def _split(path: Path, count: int, parts: int, part: Path) -> Iterator[Path]:
    """Yield a file with each part of the lines, one after the other."""
    with path.open("rb") as lines:
        while some := [*islice(lines, -(-count // parts))]:
            part.write_bytes(b"".join(some))
            yield part


def find_reached(directory: Path, keys: Sequence[Sequence[Any]]) -> Reached:
    """Look at the footers of the table's files."""
    wanted = np.array(sorted(_number_of(key[0]) for key in keys))
    table = readers_catalog(directory / "warehouse").load_table("shop.measurements")
    files, row_count, pages = 0, 0, 0.0
    for task in table.scan().plan_files():
        metadata = parquet.read_metadata(task.file.file_path.removeprefix("file://"))
        allowed = [
            (group, count)
            for group in map(metadata.row_group, range(metadata.num_row_groups))
            if (count := _count_within(wanted, group))
        ]
        files += bool(allowed)
        row_count += sum(group.num_rows for group, _ in allowed)
        pages += sum(_expect_pages(group, count) for group, count in allowed)
    return Reached(files, row_count, pages)


def _count_within(wanted: npt.NDArray[np.int64], group: parquet.RowGroupMetaData) -> float:
    """Return how many of the keys a row group is expected to have: its rows are anywhere between its bounds."""
    least, greatest = _bounds(group)
    first, end = np.searchsorted(wanted, [least, greatest + 1])
    return int(end - first) * int(group.num_rows) / (greatest - least + 1)


def _expect_pages(group: parquet.RowGroupMetaData, count: float) -> float:
    """Return how many of its pages have one of so many rows that may be anywhere."""
    pages = int(_column(group, "flow_document").total_uncompressed_size) / PAGE
    return pages * (1 - math.pow(1 - 1 / pages, count)) if pages > 1 else min(pages, count)


def _bounds(group: parquet.RowGroupMetaData) -> tuple[int, int]:
    statistics = _column(group, "id").statistics
    return _number_of(statistics.min), _number_of(statistics.max)


def _column(group: parquet.RowGroupMetaData, name: str) -> parquet.ColumnChunkMetaData:
    columns = map(group.column, range(group.num_columns))
    return next(column for column in columns if column.path_in_schema == name)


def _number_of(key: str) -> int:
    return int(key.removeprefix("m-"))


def fit(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return the seconds of each term, so that the relative errors are small. No term is negative."""
    cpu = np.array([sample.cpu for sample in samples])
    terms = np.array([sample.terms for sample in samples], float) / cpu[:, None]
    scale = terms.max(axis=0)
    used = [*range(terms.shape[1])]
    while True:
        solved, *_ = np.linalg.lstsq(terms[:, used] / scale[used], np.ones(len(cpu)), rcond=None)
        if solved.min() >= 0:
            break
        used.pop(int(solved.argmin()))
    costs = dict(zip(used, (solved / scale[used]).tolist(), strict=True))
    return tuple(costs.get(term, 0.0) for term in range(terms.shape[1]))


def predict(costs: Sequence[float], sample: Sample) -> Prediction:
    """Return what the model says of a sample."""
    predicted = sum(cost * term for cost, term in zip(costs, sample.terms, strict=True))
    return Prediction(sample, predicted, predicted / sample.cpu)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench update_model", description=__doc__)
    parser.add_argument("--fitted", type=int, nargs="+", default=[60_000, 400_000], help="rows of the tables")
    parser.add_argument("--checked", type=int, nargs="+", default=[200_000, 1_000_000], help="rows of others")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
