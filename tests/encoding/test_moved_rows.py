"""Where the rows of a compaction's sources are: by counts, and by the order of sorted rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from connector.encoding.live_rows.position_deletes import write_position_deletes
from connector.encoding.live_rows.source_rows import SourceFile
from connector.encoding.rewriting.file_groups import CompactedGroup, FileGroup
from connector.encoding.rewriting.moved_rows import find_moved
from connector.encoding.rewriting.row_order import RowOrderWriter
from connector.model.state import DataFile

IO = PyArrowFileIO()
FIRST, SECOND = "file:///data/first.parquet", "file:///data/second.parquet"


def new_file(name: str, rows: int) -> DataFile:
    return DataFile(f"file:///data/{name}.parquet", rows, 100, (4,), ())


def moved(compacted: CompactedGroup, rows: dict[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
    found = find_moved(IO, compacted, {path: np.array(positions, np.int64) for path, positions in rows.items()})
    return {path: [*zip(each.files.tolist(), each.positions.tolist(), strict=True)] for path, each in found.items()}


@pytest.fixture
def deletes(tmp_path: Path) -> str:
    paths, positions = pa.array([FIRST, FIRST, SECOND]), pa.array([0, 2, 1])
    return write_position_deletes(IO, f"file://{tmp_path}/deletes.parquet", paths, positions).path


def test_without_an_order_rows_follow_each_other_source_by_source(deletes: str) -> None:
    """The first source has five rows, three of them in the new files; the second has three and two."""
    group = FileGroup((SourceFile(FIRST, 100, (deletes,)), SourceFile(SECOND, 100, (deletes,))))
    compacted = CompactedGroup(group, (new_file("a", 2), new_file("b", 3)), (3, 2))

    assert moved(compacted, {SECOND: [2, 0, 1], FIRST: [4, 0, 1, 2, 3, 4]}) == {
        SECOND: [(1, 2), (1, 1), (-1, -1)],
        FIRST: [(1, 0), (-1, -1), (0, 0), (-1, -1), (0, 1), (1, 0)],
    }


def test_a_group_whose_rows_are_all_deleted_has_no_new_places(deletes: str) -> None:
    compacted = CompactedGroup(FileGroup((SourceFile(FIRST, 100, (deletes,)),)), (), (0,))
    assert moved(compacted, {FIRST: [0, 2]}) == {FIRST: [(-1, -1), (-1, -1)]}


def test_with_an_order_rows_are_where_it_says(tmp_path: Path) -> None:
    order = RowOrderWriter(IO, f"file://{tmp_path}/order.parquet")
    for source, position in [(1, 7), (0, 3), (1, 0), (0, 7), (0, 0)]:
        order.write(pa.array([source], pa.int32()), pa.array([position], pa.int64()))
    group = FileGroup((SourceFile(FIRST, 100), SourceFile(SECOND, 100)))
    compacted = CompactedGroup(group, (new_file("a", 2), new_file("b", 3)), (3, 2), order.finish())

    assert moved(compacted, {FIRST: [7, 1, 0, 7], SECOND: [0, 7]}) == {
        FIRST: [(1, 1), (-1, -1), (1, 2), (1, 1)],
        SECOND: [(1, 0), (0, 0)],
    }
    assert moved(compacted, {SECOND: []}) == {SECOND: []}
    assert moved(compacted, {}) == {}
