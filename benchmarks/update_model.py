"""What transactions of random changes cost by row of the table and by change, fitted to tables of some
sizes; and how well that predicts tables of other sizes."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import numpy as np

from benchmarks.parts import generated_rows
from benchmarks.parts.report import CACHE, conditions, publish
from benchmarks.updates import KEPT, SEED, keys_of, open_task

SHARES: Final = (0.01, 0.1, 0.5)  # of a table's rows that a transaction changes
RUNS: Final = 3


@dataclass(frozen=True)
class Sample:
    """Transactions of one size. Processor time in seconds, the median of some runs."""

    rows: int
    changes: int
    cpu: float


@dataclass(frozen=True)
class Prediction:
    """What the model says of transactions that it was not fitted to."""

    rows: int
    changes: int
    measured_cpu: float
    predicted_cpu: float
    predicted_over_measured: float


@dataclass(frozen=True)
class Model:
    """Processor time of a transaction whose changes are all over the table."""

    transaction_milliseconds: float
    row_microseconds: float  # of the row groups that have a changed row
    change_microseconds: float
    fitted: tuple[Sample, ...]
    checked: tuple[Prediction, ...]


def main() -> int:
    arguments = _arguments()
    before = conditions()
    fitted = [sample for count in arguments.fitted for sample in measure(count)]
    costs = fit(fitted)
    checked = [predict(costs, sample) for count in arguments.checked for sample in measure(count)]
    transaction, row, change = costs
    publish("update-model", before, [Model(transaction * 1e3, row * 1e6, change * 1e6, (*fitted,), (*checked,))])
    return 0


def measure(count: int) -> Iterator[Sample]:
    """Measure transactions in a table of so many rows. Compaction runs beside them, as it always does."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path, keys, random = generated_rows.store_lines(CACHE, count, packed=False), [*keys_of(count)], Random(SEED)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="update-model-") as name, open_task(Path(name), KEPT) as task:
        task.insert(path)
        task.change(keys[:1])  # the session's first search also starts processes and reads manifests
        for changes in (round(count * share) for share in SHARES):
            costs = [task.change(random.sample(keys, changes)).cpu for _ in range(RUNS)]
            yield Sample(count, changes, median(costs))


def fit(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Return the seconds of a transaction, of a row of the table and of a change, so that the relative errors are
    small."""
    cpu = np.array([sample.cpu for sample in samples])
    terms = np.array([(1, sample.rows, sample.changes) for sample in samples], float)
    scale = terms.max(axis=0)
    solved, *_ = np.linalg.lstsq(terms / scale / cpu[:, None], np.ones(len(cpu)), rcond=None)
    transaction, row, change = (solved / scale).tolist()
    return transaction, row, change


def predict(costs: tuple[float, float, float], sample: Sample) -> Prediction:
    """Return what the model says of a sample."""
    transaction, row, change = costs
    predicted = transaction + row * sample.rows + change * sample.changes
    return Prediction(sample.rows, sample.changes, sample.cpu, predicted, predicted / sample.cpu)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench update_model", description=__doc__)
    parser.add_argument("--fitted", type=int, nargs="+", default=[60_000, 400_000], help="rows of the tables")
    parser.add_argument("--checked", type=int, nargs="+", default=[200_000, 1_000_000], help="rows of others")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
