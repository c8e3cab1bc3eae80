"""Position delete files: what is written, what its statistics say, and files of other writers."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from signal import SIGTERM
from threading import Barrier, BrokenBarrierError, Lock, Semaphore, Thread
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from connector.encoding.live_rows import deleted_rows
from connector.encoding.live_rows.deleted_rows import find_deleted_rows
from connector.encoding.live_rows.deletion_vectors import FileId
from connector.encoding.live_rows.position_deletes import (
    group_by_file,
    join_positions,
    read_position_deletes,
    write_position_deletes,
)
from connector.encoding.values.arrays import Positions
from connector.host.errors import RetryableError, UserError
from connector.host.signals import Stopped
from connector.host.threads import map_in_threads
from connector.model.state import DataFile
from connector.storage import file_io
from support.snapshots import check_text

LONG = "file:///warehouse/shop/orders/data/" + "x" * 100
IDS = {"file_path": b"2147483546", "pos": b"2147483545"}


def write(tmp_path: Path, rows: list[tuple[str, int]]) -> DataFile:
    paths, positions = zip(*rows, strict=True)
    location = f"file://{tmp_path}/deletes.parquet"
    return write_position_deletes(PyArrowFileIO(), location, pa.array(paths), pa.array(positions, pa.int64()))


def read(path: str) -> list[tuple[str, int]]:
    rows = read_position_deletes(PyArrowFileIO(), path)
    return [(row["file_path"], row["pos"]) for row in rows.to_pylist()]


def test_rows_are_sorted_by_path_and_position_and_occur_once(tmp_path: Path) -> None:
    file = write(tmp_path, [("b", 7), ("a", 9), ("b", 7), ("b", 2), ("a\U0001f600", 1), ("aé", 10)])

    assert read(file.path) == [("a", 9), ("aé", 10), ("a\U0001f600", 1), ("b", 2), ("b", 7)]
    assert file.rows == 5


def test_a_dictionary_with_unused_and_equal_paths_is_sorted_by_its_strings(tmp_path: Path) -> None:
    paths = pa.DictionaryArray.from_arrays(pa.array([2, 1, 3, 2], pa.int32()), pa.array(["z", "b", "a", "a"]))
    positions = pa.array([4, 1, 3, 4], pa.int64())
    file = write_position_deletes(PyArrowFileIO(), f"file://{tmp_path}/deletes.parquet", paths, positions)

    assert read(file.path) == [("a", 3), ("a", 4), ("b", 1)]


def test_the_same_position_of_two_data_files_is_written_for_both(tmp_path: Path) -> None:
    assert read(write(tmp_path, [("a", 3), ("b", 3)]).path) == [("a", 3), ("b", 3)]


def test_a_file_that_several_threads_need_is_read_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read_file, reads = write(tmp_path, [("a", 1), ("b", 2)]).path, deleted_rows.read_deleted_rows, list[str]()
    both = Barrier(2)

    def wait_for_another(io: FileIO, path: FileId) -> Mapping[str, Positions]:
        reads.append(str(path))
        with suppress(BrokenBarrierError):
            both.wait(0.2)
        return read_file(io, path)

    monkeypatch.setattr(deleted_rows, "read_deleted_rows", wait_for_another)
    found = map_in_threads(lambda name: find_deleted_rows(PyArrowFileIO(), name, (path,)).tolist(), "ab", "search")
    assert found == [[1], [2]]
    assert reads == [path]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Semaphore:
    """Has one for each thread that waits for what another one reads."""
    threads = Semaphore(0)

    class Turn:
        def __init__(self) -> None:
            self._lock = Lock()

        def __enter__(self) -> None:
            if self._lock.locked():
                threads.release()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    monkeypatch.setattr(deleted_rows, "Lock", Turn)
    return threads


def test_a_file_that_cannot_be_read_is_tried_once_for_all_threads_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: Semaphore
) -> None:
    """Each would wait until a store that hangs has used up its time."""
    path, read_file, reads = write(tmp_path, [("a", 1), ("b", 2)]).path, deleted_rows.read_deleted_rows, list[str]()

    def fail(_: FileIO, path: FileId) -> Mapping[str, Positions]:
        reads.append(str(path))
        assert [waiting.acquire(timeout=20) for _ in range(3)] == [True] * 3
        raise RetryableError("the store hangs")

    def find(name: str) -> str:
        try:
            return str(find_deleted_rows(PyArrowFileIO(), name, (path,)).tolist())
        except RetryableError as error:
            return str(error)

    monkeypatch.setattr(deleted_rows, "read_deleted_rows", fail)
    assert map_in_threads(find, "aabb", "search") == ["the store hangs"] * 4
    assert reads == [path]
    monkeypatch.setattr(deleted_rows, "read_deleted_rows", read_file)
    assert find_deleted_rows(PyArrowFileIO(), "a", (path,)).tolist() == [1], "a later search tries again"


def test_a_file_that_is_too_large_to_be_remembered_is_read_once_for_all_threads_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: Semaphore
) -> None:
    path, read_file, reads = write(tmp_path, [("a", 1), ("b", 2)]).path, deleted_rows.read_deleted_rows, list[str]()

    def read_while_another_waits(io: FileIO, path: FileId) -> Mapping[str, Positions]:
        reads.append(str(path))
        assert waiting.acquire(timeout=20)
        return read_file(io, path)

    monkeypatch.setattr(deleted_rows, "_read", LRUCache(1, getsizeof=deleted_rows._size_of))
    monkeypatch.setattr(deleted_rows, "read_deleted_rows", read_while_another_waits)
    found = map_in_threads(lambda name: find_deleted_rows(PyArrowFileIO(), name, (path,)).tolist(), "ab", "search")
    assert found == [[1], [2]]
    assert reads == [path]


@contextmanager
def stopped_at(number: int) -> Iterator[None]:
    """Raise Stopped at one of the places, counted from 0, where Python takes signals in the code of deleted rows: where
    functions begin, and after calls."""
    places = count()

    def stop(frame: FrameType, event: str, _: Any) -> None:
        is_place = event in ("call", "c_return") and frame.f_code.co_filename == deleted_rows.__file__
        if is_place and next(places) == number:
            raise Stopped(SIGTERM)

    sys.setprofile(stop)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_no_thread_waits_for_one_that_a_signal_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, [("a", 1)]).path
    found: list[list[int]] = []

    def find() -> None:
        found.append(find_deleted_rows(PyArrowFileIO(), "a", (path,)).tolist())

    for place in count():
        monkeypatch.setattr(deleted_rows, "_read", LRUCache(1000))
        stopped = False
        try:
            with stopped_at(place):
                find()
        except Stopped:
            stopped = True
        other = Thread(target=find, daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive(), f"a signal at place {place}"
        if not stopped:
            break
    assert place > 5
    assert found == [[1]] * (place + 2)


def test_the_file_has_icebergs_ids_and_encodings(tmp_path: Path) -> None:
    file = pq.ParquetFile(write(tmp_path, [(LONG, position) for position in range(0, 3000, 3)]).path[7:])

    assert {field.name: field.metadata[b"PARQUET:field_id"] for field in file.schema_arrow} == IDS
    assert [(field.type, field.nullable) for field in file.schema_arrow] == [(pa.string(), False), (pa.int64(), False)]
    paths, positions = (file.metadata.row_group(0).column(place) for place in range(2))
    assert paths.compression == "ZSTD"
    assert "RLE_DICTIONARY" in paths.encodings
    assert "DELTA_BINARY_PACKED" in positions.encodings


def test_statistics_have_whole_bounds_so_that_a_file_about_one_data_file_is_known(tmp_path: Path) -> None:
    file = write(tmp_path, [(LONG, 5), (LONG, 300)])
    paths, positions = file.columns

    assert paths.lower == paths.upper == LONG.encode()
    assert (positions.lower, positions.upper) == ((5).to_bytes(8, "little"), (300).to_bytes(8, "little"))
    assert [(column.values, column.nulls) for column in file.columns] == [(2, 0), (2, 0)]
    assert file.size == Path(file.path[7:]).stat().st_size
    assert file.splits == (4,)


def test_bounds_of_positions_are_those_of_all_data_files(tmp_path: Path) -> None:
    paths, positions = write(tmp_path, [("a", 5), ("a", 300), ("b", 1), ("b", 20)]).columns

    assert (paths.lower, paths.upper) == (b"a", b"b")
    assert (positions.lower, positions.upper) == ((1).to_bytes(8, "little"), (300).to_bytes(8, "little"))


@pytest.mark.parametrize("with_ids", [True, False])
def test_files_of_other_writers_are_read(tmp_path: Path, with_ids: bool) -> None:
    """Spark and Flink may write the deleted row as a third column, and Arrow large strings."""
    rows = {
        "pos": pa.array([3, 1], pa.int32()),
        "row": [{"id": 1}, None],
        "file_path": pa.array(["b", "a"]).cast("large_string"),
    }
    fields = [
        pa.field(name, array.type, metadata={b"PARQUET:field_id": IDS[name]} if with_ids and name in IDS else None)
        for name, array in zip(rows, pa.table(rows).columns, strict=True)
    ]
    pq.write_table(pa.table(rows).cast(pa.schema(fields)), tmp_path / "other.parquet")

    assert read(f"file://{tmp_path}/other.parquet") == [("b", 3), ("a", 1)]


def test_columns_with_ids_are_found_by_them_whatever_their_names(tmp_path: Path) -> None:
    rows = {"pos": [7], "file_path": ["b"], "where": [3], "which": ["a"]}
    ids = [b"1", b"2", IDS["pos"], IDS["file_path"]]
    fields = [
        field.with_metadata({b"PARQUET:field_id": number})
        for field, number in zip(pa.table(rows).schema, ids, strict=True)
    ]
    pq.write_table(pa.table(rows, pa.schema(fields)), tmp_path / "other.parquet")

    assert read(f"file://{tmp_path}/other.parquet") == [("a", 3)]


def test_positions_are_grouped_by_their_data_files(tmp_path: Path) -> None:
    rows = read_position_deletes(PyArrowFileIO(), write(tmp_path, [("b", 7), ("a", 9), ("b", 2)]).path)
    assert {path: positions.tolist() for path, positions in group_by_file(rows)} == {"a": [9], "b": [2, 7]}


@given(st.lists(st.lists(st.integers(0, 8)), min_size=1))
def test_positions_of_several_files_are_joined_in_order_without_duplicates(parts: list[list[int]]) -> None:
    joined = join_positions([np.array(part, np.int64) for part in parts])
    assert joined.tolist() == sorted({position for part in parts for position in part})


def test_a_file_of_another_writer_may_have_no_rows(tmp_path: Path) -> None:
    empty = pa.table({"file_path": pa.array([], pa.string()), "pos": pa.array([], pa.int64())})
    pq.write_table(empty, tmp_path / "empty.parquet")
    assert list(group_by_file(read_position_deletes(PyArrowFileIO(), f"file://{tmp_path}/empty.parquet"))) == []


def test_a_file_without_positions_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"file_path": ["a"], "id": [1]}), tmp_path / "other.parquet")

    with pytest.raises(UserError) as error:
        read(f"file://{tmp_path}/other.parquet")

    check_text("value_errors", "a delete file without positions", str(error.value), {f"file://{tmp_path}": "…"})


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("a row without a path", {"file_path": ["a", None], "pos": [1, 2]}),
        ("a row without a position", {"file_path": ["a", "b"], "pos": [1, None]}),
        ("positions that are texts", {"file_path": ["a"], "pos": ["one"]}),
    ],
)
def test_a_file_with_wrong_rows_is_refused(tmp_path: Path, name: str, rows: dict[str, list[object]]) -> None:
    pq.write_table(pa.table(rows), tmp_path / "other.parquet")
    check_refusal(tmp_path, name)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(b"PAR1 nothing PAR1")
    check_refusal(tmp_path, "no Parquet")


def check_refusal(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as error:
        read(f"file://{tmp_path}/other.parquet")

    check_text("value_errors", f"a delete file: {name}", str(error.value), {f"file://{tmp_path}": "…"})


def test_a_file_that_the_store_refuses_when_it_grows_is_not_written_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileIO, location: str) -> OutputFile:
        raise RetryableError(f"{location}: the store refuses this")

    monkeypatch.setattr(PyArrowFileIO, "new_output", refuse)
    monkeypatch.setattr(file_io, "LARGEST_HELD", 100)
    written = list[str]()
    with pytest.raises(RetryableError, match="the store refuses this"):
        write_position_deletes(
            PyArrowFileIO(),
            f"file://{tmp_path}/deletes.parquet",
            pa.array(["a"]),
            pa.array([1]),
            lambda _, path, __: written.append(path),
        )
    assert not written
