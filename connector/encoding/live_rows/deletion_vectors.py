"""Deletion vectors: which rows of one data file are deleted, as a bitmap in a Puffin file.

A Puffin file has any number of vectors, one after the other, and a footer that names them. The manifest entry of a
vector says where it is, so a reader of manifests does not need the footer.
"""

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from zlib import crc32

import msgspec
import numpy as np
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from connector.encoding.values.arrays import Positions
from connector.host.errors import BACKFILL, UnreadableFileError
from connector.storage.file_io import WriteFile, write_small_file
from connector.storage.storage_errors import translate_errors

_PUFFIN_MAGIC: Final = b"PFA1"
_NO_FLAGS: Final = bytes(4)  # the footer is not compressed
_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
_FRAME: Final = struct.Struct(">I")  # the length before a vector, and the checksum after it
_FOOTER_SIZE: Final = struct.Struct("<i")
_ROW_POSITION_ID: Final = 2147483645  # Iceberg's, of `_pos`: the position of a row in its data file
_UNKNOWN: Final = -1  # the snapshot of a vector, while its file is written


@dataclass(frozen=True, order=True)
class DeletionVector:
    """Where a deletion vector is."""

    path: str  # of the Puffin file
    offset: int
    size: int  # bytes
    data_path: str  # of the data file, exactly as its manifest has it


# What tells a file of a table from others: its location, or the vector, since a Puffin file has many of them.
FileId: TypeAlias = str | DeletionVector


@dataclass(frozen=True)
class WrittenVector:
    """A vector that was written, and what its manifest entry says about it."""

    vector: DeletionVector
    rows: int
    file_size: int  # bytes of the Puffin file

    @property
    def path(self) -> str:
        """The location of the Puffin file."""
        return self.vector.path

    @property
    def size(self) -> int:
        """Bytes of the vector."""
        return self.vector.size


def write_deletion_vectors(
    io: FileIO, location: str, deleted: Mapping[str, Positions], write_file: WriteFile = write_small_file
) -> list[WrittenVector]:
    """Write a Puffin file with a vector for each data file, with `write_file`.

    `deleted` are the positions of all deleted rows of each data file: a data file has one vector at most.
    """
    bitmaps = {data_path: _make_bitmap(positions) for data_path, positions in deleted.items()}
    pieces, end = [_PUFFIN_MAGIC], len(_PUFFIN_MAGIC)
    vectors = []
    for data_path, bitmap in bitmaps.items():
        pieces.append(_encode(bitmap))
        vectors.append(DeletionVector(location, end, len(pieces[-1]), data_path))
        end += len(pieces[-1])
    described = [_describe(vector, len(bitmaps[vector.data_path])) for vector in vectors]
    footer = msgspec.json.encode({"blobs": described})
    pieces += [_PUFFIN_MAGIC, footer, _FOOTER_SIZE.pack(len(footer)), _NO_FLAGS, _PUFFIN_MAGIC]
    file = b"".join(pieces)
    with translate_errors(location):
        write_file(io, location, file)
    return [WrittenVector(vector, len(bitmaps[vector.data_path]), len(file)) for vector in vectors]


def read_deletion_vector(io: FileIO, vector: DeletionVector) -> Positions:
    """Return the positions of the deleted rows, in order. UnreadableFileError if the vector is damaged."""
    with translate_errors(vector.path), io.new_input(vector.path).open() as stream:
        stream.seek(vector.offset)
        blob = stream.read(vector.size)
    content = blob[_FRAME.size : -_FRAME.size]
    if blob != _frame(content) or not content.startswith(_VECTOR_MAGIC):
        raise _explain_broken(vector)
    try:
        bitmap = BitMap64.deserialize(content[len(_VECTOR_MAGIC) :])
    except ValueError as error:
        raise _explain_broken(vector) from error
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def _make_bitmap(positions: Positions) -> BitMap64:
    """BitMap64 reads an array("Q") at once, but the numbers of a NumPy array one after the other."""
    values = array("Q")
    values.frombytes(positions.astype(np.uint64).tobytes())
    return BitMap64(values)


def _encode(bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    return _frame(_VECTOR_MAGIC + bitmap.serialize())


def _frame(content: bytes) -> bytes:
    return _FRAME.pack(len(content)) + content + _FRAME.pack(crc32(content))


def _describe(vector: DeletionVector, rows: int) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_ID],
        "snapshot-id": _UNKNOWN,
        "sequence-number": _UNKNOWN,
        "offset": vector.offset,
        "length": vector.size,
        "properties": {"referenced-data-file": vector.data_path, "cardinality": str(rows)},
    }


def _explain_broken(vector: DeletionVector) -> UnreadableFileError:
    return UnreadableFileError(
        vector.data_path,
        f"{vector.path}: the deletion vector at byte {vector.offset} is damaged. It says which rows of "
        f"{vector.data_path} are deleted. Restore the file, or {BACKFILL}.",
    )
