"""Large transactions to tables with partitions and sort orders, against the same ones to a table without."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.parts import generated_rows
from benchmarks.parts.report import conditions, publish
from benchmarks.stores import Measurement, inputs, measure
from fixtures.collection import Json

LAYOUTS: Final[Mapping[str, Json]] = {
    "plain": {},
    "24 hours": {"partition_by": "hour(created_at)"},
    "24 buckets": {"partition_by": "bucket(24, id)"},
    "1,000 buckets": {"partition_by": "bucket(1000, id)"},
    "sorted": {"sort_by": "account"},
}


@dataclass(frozen=True)
class Arranged:
    """The last transaction of a session, and what it takes in comparison with the table that is not arranged."""

    layout: str
    rows: int
    seconds: float
    seconds_ratio: float
    stores_cpu_seconds: float
    stores_cpu_ratio: float
    peak_pss_megabytes: float
    peak_pss_ratio: float
    rows_per_second: float
    commit_seconds: float
    files: int


def main() -> int:
    arguments = _arguments()
    before = conditions()
    # All rows of the input are within a day, in the order of time.
    [given] = inputs([arguments.form], arguments.rows, step=generated_rows.DAY // arguments.rows)
    last = {}
    for name in ["plain", *(each for each in LAYOUTS if each in arguments.layouts and each != "plain")]:
        collection = replace(
            generated_rows.COLLECTION, settings={**generated_rows.COLLECTION.settings, **LAYOUTS[name]}
        )
        last[name] = measure(given, arguments.catalog, arguments.transactions, collection=collection)[-1]
    publish("layout", before, [_compare(name, measured, last["plain"]) for name, measured in last.items()])
    return 0


def _compare(name: str, measured: Measurement, plain: Measurement) -> Arranged:
    return Arranged(
        layout=name,
        rows=measured.rows,
        seconds=measured.seconds,
        seconds_ratio=measured.seconds / plain.seconds,
        stores_cpu_seconds=measured.stores_cpu_seconds,
        stores_cpu_ratio=measured.stores_cpu_seconds / plain.stores_cpu_seconds,
        peak_pss_megabytes=measured.peak_pss_megabytes,
        peak_pss_ratio=measured.peak_pss_megabytes / plain.peak_pss_megabytes,
        rows_per_second=measured.rows_per_second,
        commit_seconds=measured.commit_seconds,
        files=measured.files,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench layout", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the input")
    parser.add_argument("--transactions", type=int, default=2, help="of each session; the last one is shown")
    parser.add_argument("--catalog", choices=("local", "rest"), default="local", help="rest: with an S3 server")
    parser.add_argument("--form", choices=("plain", "packed"), default="plain", help="of the lines")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="to measure")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
