"""The rows of a row group while they are gathered: copied to one piece of memory that only they use.

What decoding takes for a batch it gives back before the next one. If the batches themselves were kept until a row group is
full, they would lie among what is given back, and a worker would grow by half of a row group again.
"""

import mmap

import pyarrow as pa


class RowGroup:
    """Record batches of one schema, as many as there is room for."""

    def __init__(self, capacity: int) -> None:
        """Bytes, which are not taken before they are written to."""
        self._memory = memoryview(mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Whether there was room for the batch."""
        end = self._size + _size(batch)
        if end > len(self._memory):
            return False
        place = pa.py_buffer(self._memory[self._size : end])
        _write(pa.FixedSizeBufferWriter(place), batch)
        self._batches.append(pa.ipc.open_stream(place).read_next_batch())
        self._size = end
        return True

    def take(self) -> list[pa.RecordBatch]:
        """All the batches, which hold until the next one is added."""
        batches, self._batches, self._size = self._batches, [], 0
        return batches


def _size(batch: pa.RecordBatch) -> int:
    """What it takes, dictionaries and all."""
    counted = pa.MockOutputStream()
    _write(counted, batch)
    return int(counted.size())


def _write(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
