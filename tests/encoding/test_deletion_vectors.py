"""Deletion vectors: PyIceberg reads what is written, damaged ones are refused, and the bytes are Iceberg's."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.deletion_vectors import (
    DeletionVector,
    WrittenVector,
    read_deletion_vector,
    write_deletion_vectors,
)
from connector.host.errors import UserError
from support.snapshots import check_text

IO = PyArrowFileIO()
ROW_POSITION = 2147483645  # Iceberg's id of `_pos`, the position of a row in its data file
DELETED = {
    "file:///data/a.parquet": [5],
    "file:///data/é.parquet": list(range(10, 100_000)),
    "file:///data/c.parquet": [0, 65_535, 65_536, 2**32 - 1, 2**32, 3 * 2**32 + 7],
}


@pytest.fixture
def written(tmp_path: Path) -> list[WrittenVector]:
    deleted = {path: np.array(rows, np.int64) for path, rows in DELETED.items()}
    return write_deletion_vectors(IO, f"file://{tmp_path}/deletes.puffin", deleted)


def stored(tmp_path: Path) -> bytes:
    return (tmp_path / "deletes.puffin").read_bytes()


def test_pyiceberg_reads_the_same_positions(tmp_path: Path, written: list[WrittenVector]) -> None:
    file = PuffinFile(stored(tmp_path))
    read = {each.referenced_data_file: each.to_vector() for each in deletion_vectors_from_puffin_file(file)}
    assert {path: rows.to_pylist() for path, rows in read.items()} == DELETED
    assert [(blob.offset, blob.length) for blob in file.footer.blobs] == [
        (each.vector.offset, each.vector.size) for each in written
    ]
    assert {(blob.type, blob.snapshot_id, blob.sequence_number) for blob in file.footer.blobs} == {
        ("deletion-vector-v1", -1, -1)
    }
    assert {tuple(blob.fields) for blob in file.footer.blobs} == {(ROW_POSITION,)}
    assert [int(blob.properties["cardinality"]) for blob in file.footer.blobs] == [each.rows for each in written]
    assert [each.rows for each in written] == [len(rows) for rows in DELETED.values()]
    assert {each.file_size for each in written} == {len(stored(tmp_path))}


def test_each_vector_is_read_alone(written: list[WrittenVector]) -> None:
    for each in written:
        path = each.vector.data_path
        assert read_deletion_vector(IO, each.vector).tolist() == DELETED[path]
        assert find_deleted_rows(IO, path, (each.vector,), np.array([3])).tolist() == sorted([3, *DELETED[path]])
        assert find_deleted_rows(IO, "another", (each.vector,)).tolist() == []


def test_the_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    """A vector with the row 5, byte by byte: it holds one bitmap of 32 bits with one array of 16-bit numbers."""
    [only] = write_deletion_vectors(IO, f"file://{tmp_path}/deletes.puffin", {"x": np.array([5])})
    content = bytes.fromhex("d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0000 10000000 0500")
    blob = len(content).to_bytes(4, "big") + content + crc32(content).to_bytes(4, "big")
    file = stored(tmp_path)
    assert (only.vector.offset, only.vector.size) == (4, len(blob))
    assert file[: 4 + len(blob) + 4] == b"PFA1" + blob + b"PFA1"
    footer = len(file) - (4 + len(blob) + 4) - 12
    assert file[-12:] == footer.to_bytes(4, "little") + bytes(4) + b"PFA1"


def test_consecutive_rows_take_few_bytes(written: list[WrittenVector]) -> None:
    assert written[1].size < 100


@pytest.mark.parametrize("damage", ["truncated", "changed", "another length", "no magic", "no bitmap"])
def test_a_damaged_vector_is_refused(tmp_path: Path, written: list[WrittenVector], damage: str) -> None:
    vector, file = written[0].vector, stored(tmp_path)
    content = file[vector.offset + 4 : vector.offset + vector.size - 4]
    other = {
        "truncated": None,
        "changed": content[:-1] + b"\xff",
        "another length": content,
        "no magic": b"none" + content[4:],
        "no bitmap": content[:12] + b"\xff" * (len(content) - 12),
    }[damage]
    if other is None:
        damaged = file[: vector.offset + vector.size - 1]
    else:
        check = crc32(content if damage == "changed" else other)
        blob = (len(other) + (damage == "another length")).to_bytes(4, "big") + other + check.to_bytes(4, "big")
        damaged = file[: vector.offset] + blob + file[vector.offset + vector.size :]
    (tmp_path / "deletes.puffin").write_bytes(damaged)
    with pytest.raises(UserError) as error:
        read_deletion_vector(IO, DeletionVector(vector.path, vector.offset, vector.size, vector.data_path))
    check_text("update_errors", "a damaged deletion vector", str(error.value), {str(tmp_path): "<warehouse>"})
