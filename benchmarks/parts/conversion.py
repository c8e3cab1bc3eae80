"""R, the baseline: the same Store lines made the same Parquet by msgspec and PyArrow, in one process on one core.

Run as a process of its own: `python -m benchmarks.parts.conversion FILE PARQUET` prints the seconds and the
processor seconds that it took.
"""

import os
import sys
import time
from binascii import a2b_base64
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BLOCK: Final = 4 << 20
ROW_GROUP: Final = 64 << 20
INSTANT: Final = pa.timestamp("us", "UTC")


class Store(msgspec.Struct, gc=False):
    """A Store with the columns of `benchmarks.parts.generated_rows`."""

    key: tuple[str, int]
    values: tuple[str, str, bool, msgspec.Raw, str, str | None, str | None, str, float, int | str]
    doc: msgspec.Raw


class Line(msgspec.Struct, gc=False):
    """A line's only message."""

    store: Store


def convert(source: Path, target: Path) -> None:
    decoder = msgspec.json.Decoder(Line)
    writer: pq.ParquetWriter | None = None
    pending: list[pa.RecordBatch] = []
    with source.open("rb") as file:
        while lines := file.readlines(BLOCK):
            pending.append(_columns([decoder.decode(line).store for line in lines]))
            writer = writer or pq.ParquetWriter(target, pending[0].schema, compression="zstd")
            if sum(batch.nbytes for batch in pending) >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(pending))
                pending.clear()
    if writer is not None:
        with writer:
            writer.write_table(pa.Table.from_batches(pending, writer.schema))


def _columns(stores: list[Store]) -> pa.RecordBatch:
    identifier, account = zip(*(store.key for store in stores), strict=True)
    op, published, active, attributes, created, day, note, payload, price, quantity = zip(
        *(store.values for store in stores), strict=True
    )
    columns = {
        "id": pa.array(identifier, pa.string()),
        "account": pa.array(account, pa.int64()),
        "op": pa.array(op, pa.string()),
        "flow_published_at": pc.cast(pa.array(published, pa.string()), INSTANT),
        "active": pa.array(active, pa.bool_()),
        "attributes": pa.array(map(bytes, attributes), pa.string()),
        "created_at": pc.cast(pa.array(created, pa.string()), INSTANT),
        "day": pc.cast(pa.array(day, pa.string()), pa.date32()),
        "note": pa.array(note, pa.string()),
        "payload": pa.array(map(a2b_base64, payload), pa.binary()),
        "price": pa.array(price, pa.float64()),
        "quantity": pa.array(map(int, quantity), pa.int64()),
        "flow_document": pa.array((bytes(store.doc) for store in stores), pa.string()),
    }
    return pa.record_batch(columns)


def main(source: str, target: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    began, cpu_began = time.perf_counter(), time.process_time()
    convert(Path(source), Path(target))
    print(time.perf_counter() - began, time.process_time() - cpu_began)


if __name__ == "__main__":
    main(*sys.argv[1:])
