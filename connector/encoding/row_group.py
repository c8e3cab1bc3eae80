"""The rows of a row group while they are gathered: copied into one piece of memory that only they use.

Decoding frees its memory after each batch. If the batches themselves were kept until a row group is full, they would
lie scattered among what is freed, and a worker would grow by another half of a row group.
"""

import mmap

import pyarrow as pa


class RowGroup:
    """Record batches of one schema, as many as there is room for."""

    def __init__(self, capacity: int) -> None:
        """`capacity` is in bytes, which take no memory before they are written to."""
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch if there is room for it, and say whether there was."""
        end = self._size + _size(batch)
        if end > len(self._memory):
            return False
        place = pa.py_buffer(self._memory[self._size : end])
        _write(pa.FixedSizeBufferWriter(place), batch)
        self._batches.append(pa.ipc.open_stream(place).read_next_batch())
        self._size = end
        return True

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return all batches; they are valid until the next one is added."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


def _size(batch: pa.RecordBatch) -> int:
    """Bytes that the batch takes when it is copied."""
    counted = pa.MockOutputStream()
    _write(counted, batch)
    return int(counted.size())


def _write(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
