"""The baseline of a type change: the same Parquet files written again with one column cast to another type, by
pyarrow, in one process on one core.

Run as a process of its own: `python -m benchmarks.parts.casting COLUMN TYPE TARGET FILE…` prints the
seconds that it took.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

BATCH: Final = 1 << 14  # rows


def rewrite(source: Path, target: Path, column: str, arrow_type: pa.DataType) -> None:
    file = pq.ParquetFile(source)
    place = file.schema_arrow.get_field_index(column)
    schema = file.schema_arrow.set(place, pa.field(column, arrow_type))
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for group in range(file.num_row_groups):
            batches = [
                batch.set_column(place, schema.field(place), batch.column(place).cast(arrow_type))
                for batch in file.iter_batches(BATCH, row_groups=[group])
            ]
            writer.write_table(pa.Table.from_batches(batches, schema))


def type_called(name: str) -> pa.DataType:
    """Arrow knows its types by their names, but for decimals."""
    name, _, digits = name.removesuffix(")").partition("(")
    return pa.decimal128(*map(int, digits.split(","))) if digits else pa.type_for_alias(name)


def main(column: str, arrow_type: str, target: str, *sources: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    began = time.perf_counter()
    for number, source in enumerate(sources):
        rewrite(Path(source), Path(target) / f"{number}.parquet", column, type_called(arrow_type))
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
