"""A column of a large table that gets another type, its history kept: from the apply request to its answer."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks.parts import generated_rows
from benchmarks.parts.connector import Connector
from benchmarks.parts.process_tree import Kind, PeakMemory
from benchmarks.parts.report import CACHE, MB, conditions, publish
from benchmarks.stores import feed
from fixtures.collection import Field
from fixtures.conversation import line, opening


@dataclass(frozen=True)
class TypeChange:
    """A field as it becomes, and Arrow's name for the type of its column then."""

    field: Field
    arrow_type: str


_FIELDS: Final[Mapping[str, Field]] = {field.name: field for field in generated_rows.COLLECTION.fields}


def _as_text(name: str) -> TypeChange:
    return TypeChange(replace(_FIELDS[name], config={"castToString": True}), "string")


CHANGES: Final[Mapping[str, TypeChange]] = {
    "long-to-string": _as_text("quantity"),
    "long-to-double": TypeChange(
        replace(_FIELDS["quantity"], types=("number", "string"), string={"format": "number"}), "double"
    ),
    "double-to-decimal": TypeChange(
        replace(_FIELDS["price"], config={"decimal": {"precision": 12, "scale": 2}}), "decimal128(12, 2)"
    ),
    "double-to-string": _as_text("price"),
    "timestamptz-to-string": _as_text("created_at"),
    "date-to-string": _as_text("day"),
}


@dataclass(frozen=True)
class Measurement:
    """Of a whole apply, Spark's start included; the memory is that of the moment when all processes together had
    most."""

    change: str
    rows: int
    files_megabytes: float
    seconds: float
    rows_per_second: float
    baseline_rows_per_second: float
    ratio: float
    peak_pss_megabytes: float
    of_it_connector: float
    of_it_jvm: float
    of_it_python_workers: float


def main() -> int:
    arguments = _arguments()
    lines = generated_rows.store_lines(CACHE, arguments.rows, packed=False)
    before = conditions()
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as directory:
        publish("migrate", before, [_measure(lines, arguments.rows, arguments.change, Path(directory))])
    return 0


def _measure(lines: Path, count: int, name: str, directory: Path) -> Measurement:
    change = CHANGES[name]
    _fill(lines, directory)
    old = _table(directory)
    files = [Path(task.file.file_path.removeprefix("file://")) for task in old.scan().plan_files()]
    baseline = _rewrite(change, files, directory)
    with Connector(directory) as connector, PeakMemory(connector.pid) as peak:
        began = time.perf_counter()
        connector.send(_apply(change))
        connector.expect("applied")
        seconds = time.perf_counter() - began
        connector.end()
    _check(change.field.name, old, _table(directory), count)
    shares = {kind: peak.shares.get(kind, 0) / MB for kind in Kind}
    return Measurement(
        change=name,
        rows=count,
        files_megabytes=sum(file.stat().st_size for file in files) / MB,
        seconds=seconds,
        rows_per_second=count / seconds,
        baseline_rows_per_second=count / baseline,
        ratio=baseline / seconds,
        peak_pss_megabytes=sum(shares.values()),
        of_it_connector=shares[Kind.CONNECTOR],
        of_it_jvm=shares[Kind.JVM],
        of_it_python_workers=shares[Kind.PYTHON_WORKERS],
    )


def _fill(lines: Path, directory: Path) -> None:
    with Connector(directory) as connector:
        connector.send(*opening("measurements", [generated_rows.COLLECTION]))
        connector.expect("spec", "validated", "applied", "opened", "acknowledged")
        connector.send(line("flush", {}))
        connector.expect("flushed")
        feed(lines, connector.input)
        connector.send(generated_rows.START_COMMIT, line("acknowledge", {}))
        connector.expect("startedCommit", "acknowledged")
        connector.end()


def _rewrite(change: TypeChange, files: Sequence[Path], directory: Path) -> float:
    column = (change.field.name, change.arrow_type)
    command = [sys.executable, "-m", "benchmarks.parts.casting", *column, str(directory), *map(str, files)]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)


def _apply(change: TypeChange) -> bytes:
    fields = tuple(
        change.field if field.name == change.field.name else field for field in generated_rows.COLLECTION.fields
    )
    _, _, apply, _, _ = opening("measurements", [replace(generated_rows.COLLECTION, fields=fields)])
    return apply


def _table(directory: Path) -> Table:
    warehouse = directory / "warehouse"
    return SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse)).load_table(
        "shop.measurements"
    )


def _check(name: str, old: Table, new: Table, count: int) -> None:
    """Every value is there, as one of another type."""
    before, after = (table.scan(selected_fields=("id", name)).to_arrow().sort_by("id")[name] for table in (old, new))
    if pa.types.is_decimal(
        after.type
    ):  # Arrow makes doubles of decimals that are off by one bit, but not the other way
        before, after = after, before
    if len(after) != count or after.type == before.type or after.cast(before.type) != before:
        sys.exit("the table has lost values: nothing is reported")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench migrate", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--change", choices=CHANGES, default="long-to-string")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
