"""Compacted groups: the rows, their order and their moved positions, against a model that has all rows in memory."""

import errno
import io
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.io import S3_ENDPOINT, S3_REGION, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import (
    DoubleType,
    FixedType,
    IcebergType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connector.encoding.live_rows import source_rows
from connector.encoding.live_rows.position_deletes import write_position_deletes
from connector.encoding.live_rows.source_rows import OpenSource, SourceFile, read_live_rows
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.encoding.parquet import assembled_writer
from connector.encoding.parquet.assembled_files import AssembledFile, ColumnChunk
from connector.encoding.parquet.data_files import NewFiles
from connector.encoding.parquet.file_options import Destination, FileOptions
from connector.encoding.parquet.statistics import upper_bound_of_text
from connector.encoding.rewriting import arranged_compaction, copied_row_groups, group_compaction
from connector.encoding.rewriting.file_groups import CompactedGroup, FileGroup
from connector.encoding.rewriting.group_compaction import compact_group
from connector.encoding.rewriting.moved_rows import find_moved
from connector.encoding.rewriting.row_order import RowOrderWriter
from connector.encoding.runs import sorted_runs
from connector.host.errors import ConnectorError, RetryableError, UnreadableFileError, UserError
from connector.model.binding import Arrangement, Column, SortField
from connector.model.properties import Properties
from connector.storage.file_io import open_file_io
from support.snapshots import check_text

IO = PyArrowFileIO()
Row = tuple[Any, ...]  # id, number, text, pair
PLAIN: Final[Any] = {"compression": "zstd", "use_dictionary": False}  # pages that can be copied

PAIR = StructType(NestedField(5, "left", LongType(), required=False), NestedField(6, "right", StringType()))
COLUMNS: list[tuple[int, str, IcebergType]] = [
    (4, "pair", PAIR),
    (1, "id", LongType()),
    (2, "number", DoubleType()),
    (3, "text", StringType()),
]
USUAL_BATCH_SIZE: Final = source_rows._BATCH_SIZE
NUMBERS = [0.0, -0.0, 1.5, -1.5, math.inf, math.nan]
ROWS = st.tuples(
    st.none() | st.sampled_from(NUMBERS),
    st.none() | st.sampled_from(["", "a", "é", "x" * 40]),
    st.none() | st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from(["l", "r"])),
)


@dataclass(frozen=True)
class Source:
    """A source as the test draws it."""

    rows: tuple[Row, ...]
    deleted: frozenset[int]
    lacks_text: bool  # written before the column was added
    has_dropped: bool  # written before a column was dropped
    is_narrow: bool  # written before a column was widened
    row_group: int
    is_plain: bool  # its texts can be copied
    has_pairs: bool  # nested columns
    has_views: bool  # its schema asks for Arrow's views of texts

    @property
    def kept(self) -> list[tuple[int, Row]]:
        """The live rows, as readers see them, with their positions."""
        return [
            (position, (row[0], row[1], None if self.lacks_text else row[2], row[3]))
            for position, row in enumerate(self.rows)
            if position not in self.deleted
        ]

    def write(self, directory: Path, number: int) -> SourceFile:
        ids, numbers, texts, pairs = ([row[place] for row in self.rows] for place in range(4))
        plain_type = pa.string_view() if self.has_views else pa.string()
        # Arrow does not divide nested views into row groups.
        right_type = plain_type if self.row_group >= len(self.rows) else pa.string()
        pair_type = pa.struct([_field("left", pa.int64(), 5), _field("right", right_type, 6)])
        structs = [None if pair is None else {"left": pair[0], "right": pair[1]} for pair in pairs]
        text_type = plain_type if self.is_plain else pa.large_string()
        columns = [
            (_field("old name", pa.int32() if self.is_narrow else pa.int64(), 1), ids),
            *([(_field("pair", pair_type, 4), structs)] if self.has_pairs else []),
            *([(_field("dropped", pa.string(), 9), ["gone"] * len(ids))] if self.has_dropped else []),
            *([] if self.lacks_text else [(_field("text", text_type, 3), texts)]),
            (_field("number", pa.float32() if self.is_narrow else pa.float64(), 2), numbers),
        ]
        schema = pa.schema([field for field, _ in columns])
        path = directory / f"{number}.parquet"
        table = pa.table([pa.array(values, field.type) for field, values in columns], schema=schema)
        pq.write_table(table, path, row_group_size=self.row_group, compression="zstd", use_dictionary=not self.is_plain)
        deletes = []
        if self.deleted:
            paths = pa.array([f"file://{path}"] * len(self.deleted))
            positions = pa.array(sorted(self.deleted), pa.int64())
            deletes = [
                write_position_deletes(IO, f"file://{directory}/{number}-deletes.parquet", paths, positions).path
            ]
        return SourceFile(f"file://{path}", path.stat().st_size, tuple(deletes))


def _field(name: str, arrow_type: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(number)})


@st.composite
def sources(draw: st.DrawFn) -> list[Source]:
    found: list[Source] = []
    has_pairs = draw(st.sampled_from([False, False, False, True]))
    first = 0
    for count in draw(st.lists(st.integers(1, 30), min_size=1, max_size=6)):
        values = [draw(ROWS) for _ in range(count)]
        rows = [(first + n, number, text, pair if has_pairs else None) for n, (number, text, pair) in enumerate(values)]
        some = st.frozensets(st.integers(0, count - 1))
        deleted = draw(st.just(frozenset()) | some | st.just(frozenset(range(count))))
        flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
        found.append(
            Source(
                tuple(rows),
                deleted,
                *flags,
                draw(st.integers(1, 20)),
                draw(st.booleans()),
                has_pairs,
                draw(st.booleans()),
            )
        )
        first += count
    return found


ORDERS = st.lists(
    st.builds(SortField, st.sampled_from([1, 2, 3]), st.just("identity"), st.booleans(), st.booleans()),
    unique_by=lambda field: field.source_id,
    max_size=3,
).map(tuple)


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> Iterator[None]:
    """Batches, row groups and runs of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_rows, "_BATCH_SIZE", 200)
        for module in (assembled_writer, group_compaction):
            patch.setattr(module, "ROW_GROUP_SIZE", 700)
        patch.setattr(copied_row_groups, "LEAST_SIZE", 0)
        patch.setattr(arranged_compaction, "RUN_SIZE", 400)
        patch.setattr(arranged_compaction, "MOST_RUNS", 2)
        patch.setattr(sorted_runs, "PART_SIZE", 200)
        patch.setattr("connector.encoding.parquet.statistics._SAMPLE", 10)
        yield


@pytest.fixture
def _usual_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "_BATCH_SIZE", USUAL_BATCH_SIZE)


def compact(
    directory: Path,
    group: FileGroup,
    order: tuple[SortField, ...],
    target_size: int,
    required: Sequence[str] = ("id",),
) -> CompactedGroup:
    for name in ("data", "metadata"):
        (directory / name).mkdir()
    columns = tuple(TargetColumn(id_, name, type_, name in required, id_, type_) for id_, name, type_ in COLUMNS)
    properties = Properties({"write.target-file-size-bytes": str(target_size)})
    destination = Destination(f"file://{directory}", properties, "compact-1")
    return compact_group(IO, TargetFiles(columns, destination, Arrangement(sort=order)), group)


def read(path: str) -> list[Row]:
    table = pq.read_table(path.removeprefix("file://"))
    ids = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in table.schema}
    assert [*ids] in ([1, 2, 3, 4], [1, 2, 3]), "nested columns come last"
    columns = [table[ids[number]].to_pylist() if number in ids else [None] * len(table) for number in (1, 2, 3, 4)]
    return [(*row[:3], row[3] and (row[3]["left"], row[3]["right"])) for row in zip(*columns, strict=True)]


def same(rows: Sequence[Row]) -> list[str]:
    return [repr(row) for row in rows]  # NaN is not equal to itself


def sort_key(row: Row, order: Sequence[SortField]) -> list[Any]:
    key: list[Any] = []
    for field in order:
        value = row[field.source_id - 1]
        nulls = -1 if field.nulls_first else 1
        if value is None:
            key.append((nulls, _Descending(0) if field.is_descending else 0))
            continue
        if isinstance(value, float):
            value = (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
        if isinstance(value, str):
            value = value.encode()
        key.append((0, _Descending(value) if field.is_descending else value))
    return key


@dataclass(frozen=True)
class _Descending:
    value: Any

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.value < self.value)


@settings(max_examples=60)
@given(sources(), st.just(()) | ORDERS, st.sampled_from([1, 2000, 1 << 30]))
def test_new_files_have_the_live_rows_in_order_and_moved_rows_are_found(
    drawn: list[Source], order: tuple[SortField, ...], target_size: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        group = FileGroup(tuple(source.write(directory, number) for number, source in enumerate(drawn)))
        compacted = compact(directory, group, order, target_size)
        files = [read(file.path) for file in compacted.files]
        rows = [row for file in files for row in file]

        expected = [row for source in drawn for _, row in source.kept]
        if order:
            assert sorted(same(rows)) == sorted(same(expected))
            for of_file in files:
                keys = [sort_key(row, order) for row in of_file]
                assert all(not after < before for before, after in pairwise(keys))
        else:
            assert same(rows) == same(expected)
        assert compacted.kept == tuple(len(source.kept) for source in drawn)
        assert [file.rows for file in compacted.files] == [*map(len, files)]
        assert all(files)
        for of_file, file in zip(files, compacted.files, strict=True):
            texts = [row[2] for row in of_file if row[2] is not None]
            [statistics] = [column for column in file.columns if column.field_id == 3]
            assert (statistics.values, statistics.nulls) == (len(of_file), len(of_file) - len(texts))
            assert statistics.lower == (min(texts).encode()[:16] if texts else None)
            assert statistics.upper == ((upper_bound_of_text(max(texts)) or "").encode() if texts else None)
        written = [*(file.path for file in compacted.files), *([compacted.order] if compacted.order else [])]
        assert {Path(location[7:]) for location in written} == {*(directory / "data").iterdir()}

        asked = {
            each.path: np.arange(len(source.rows))[::-1] for each, source in zip(group.sources, drawn, strict=True)
        }
        moved = find_moved(IO, compacted, asked)
        for each, source in zip(group.sources, drawn, strict=True):
            found = moved[each.path]
            assert (np.flatnonzero(~found.are_kept[::-1])).tolist() == sorted(source.deleted)
            for position, row in source.kept:
                place = len(source.rows) - 1 - position
                assert same([files[found.files[place]][found.positions[place]]]) == same([row])


def source(*rows: Row, **changes: Any) -> Source:
    usual = {
        "deleted": frozenset(),
        "lacks_text": False,
        "has_dropped": False,
        "is_narrow": False,
        "row_group": 10,
        "is_plain": True,
        "has_pairs": False,
        "has_views": False,
    }
    return Source(rows, **{**usual, **changes})


def test_long_texts_are_copied_without_decoding_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of both sources follow each other in one row group."""
    monkeypatch.setattr(assembled_writer, "ROW_GROUP_SIZE", 10_000)
    texts = ["é" * 50, None, "a", "z"]
    rows = [(number, 1.5, text, None) for number, text in enumerate(texts)]
    group = FileGroup((source(*rows[:2]).write(tmp_path, 1), source(*rows[2:]).write(tmp_path, 2)))
    [file] = compact(tmp_path, group, (), target_size=1 << 30).files
    assert pages(file.path, "text") == b"".join(pages(each.path, "text") for each in group.sources)
    assert [row[2] for row in read(file.path)] == texts
    assert pq.read_table(file.path[7:], filters=[("text", ">=", "z")])["id"].to_pylist() == [0, 3]
    with duckdb.connect() as database:
        found = database.execute(f"SELECT id, text FROM '{file.path[7:]}' WHERE text >= 'z' ORDER BY id").fetchall()
    assert found == [(0, texts[0]), (3, "z")]


def test_rows_that_are_larger_than_a_row_group_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembled_writer, "ROW_GROUP_SIZE", 1)
    rows = [(number, 1.5, "text", None) for number in range(3)]
    group = FileGroup((source(*rows, is_plain=False).write(tmp_path, 1),))
    [file] = compact(tmp_path, group, (), target_size=1 << 30).files
    assert [row[0] for row in read(file.path)] == [0, 1, 2]


LISTS_OF_VIEWS = [
    pa.list_(pa.string_view()),
    pa.large_list(pa.string_view()),
    pa.list_(pa.string_view(), 2),
    pa.list_view(pa.string_view()),
    pa.large_list_view(pa.string_view()),
]


@pytest.mark.parametrize(
    ("of_source", "plain"),
    [
        (pa.binary_view(), pa.binary()),
        *((each, pa.list_(pa.string())) for each in LISTS_OF_VIEWS),
        (pa.map_(pa.string_view(), pa.binary_view()), pa.map_(pa.string(), pa.binary())),
    ],
    ids=str,
)
def test_all_lists_become_plain_ones_and_so_do_views_within_lists_and_maps(
    of_source: pa.DataType, plain: pa.DataType
) -> None:
    assert source_rows.plain_type(of_source) == plain


def pages(path: str, column: str) -> bytes:
    """The bytes of a column's only chunk."""
    file = pq.ParquetFile(path[7:])
    assert file.num_row_groups == 1
    chunk = file.metadata.row_group(0).column(file.schema_arrow.get_field_index(column))
    return Path(path[7:]).read_bytes()[chunk.data_page_offset :][: chunk.total_compressed_size]


@pytest.mark.parametrize("decoded", [0, 1, 2])
def test_copied_and_decoded_rows_keep_their_order(tmp_path: Path, decoded: int) -> None:
    rows = [(number, 1.5, "text", None) for number in range(6)]
    sources = [
        source(*rows[place * 2 : place * 2 + 2], is_plain=place != decoded).write(tmp_path, place) for place in range(3)
    ]
    files = compact(tmp_path, FileGroup(tuple(sources)), (), target_size=1 << 30).files
    assert [row[0] for file in files for row in read(file.path)] == [*range(6)]


def test_bounds_are_those_of_all_copied_chunks_or_there_are_none(tmp_path: Path) -> None:
    columns = [Column("text", "text", 3, StringType(), required=False)]
    rows = pa.table([pa.array(["", ""])], schema=pa.schema([_field("text", pa.string(), 3)]))
    known, unknown, null = (b"a", b"b"), None, None
    bounds = []
    for place, second in enumerate([(known, 0), ((b"c", b"d"), 0), (unknown, 0), (null, 1)]):
        new_location = partial(str, f"file://{tmp_path}/{place}.parquet")
        file = AssembledFile(NewFiles(IO, new_location, columns, rows.schema, FileOptions(1, "none", None)))
        chunks = [ColumnChunk(b"", 1, nulls, 10, bound) for bound, nulls in ((known, 0), second)]
        file.write(rows, {0: chunks})
        [statistics] = file.close().columns
        bounds.append((statistics.lower, statistics.upper))
    assert bounds == [(b"a", b"b"), (b"a", b"d"), (None, None), (b"a", b"b")]


@pytest.mark.parametrize("is_required", [True, False])
def test_texts_that_may_be_null_elsewhere_only_are_not_copied(tmp_path: Path, is_required: bool) -> None:
    """Their pages say of each value whether it is null, and pages of required values do not."""
    texts = ["a", "é" * 50, "", "z"]
    field = _field("text", pa.string(), 3).with_nullable(is_required)
    schema = pa.schema([_field("id", pa.int64(), 1), field])
    pq.write_table(pa.table([pa.array(range(4)), pa.array(texts)], schema=schema), tmp_path / "1", **PLAIN)
    group = FileGroup((SourceFile(f"file://{tmp_path}/1", 100),))
    required = ("id", "text") if is_required else ("id",)
    [file] = compact(tmp_path, group, (), 1 << 30, required).files
    assert pq.read_schema(file.path[7:]).field("text").nullable is not is_required
    assert [row[2] for row in read(file.path)] == texts
    with duckdb.connect() as database:
        assert database.execute(f"SELECT text FROM '{file.path[7:]}' ORDER BY id").fetchall() == [(t,) for t in texts]


def test_values_of_another_type_are_not_copied_into_a_column_of_texts(tmp_path: Path) -> None:
    """Their pages look alike, and have no lengths of texts."""
    schema = pa.schema([_field("id", pa.int64(), 1), _field("text", pa.int64(), 3)])
    pq.write_table(pa.table([pa.array(range(2)), pa.array([7, 8])], schema=schema), tmp_path / "1", **PLAIN)
    [file] = compact(tmp_path, FileGroup((SourceFile(f"file://{tmp_path}/1", 100),)), (), target_size=1 << 30).files
    assert [row[2] for row in read(file.path)] == ["7", "8"]


@pytest.mark.parametrize("order", [(), (SortField(2, "identity", False, True),)], ids=["copied", "sorted"])
def test_rows_that_are_older_than_a_column_get_its_default(tmp_path: Path, order: tuple[SortField, ...]) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "data").mkdir()
    schema = pa.schema([_field("id", pa.int64(), 1), _field("text", pa.string(), 3)])
    pq.write_table(pa.table([pa.array(range(4)), pa.array(["x" * 50] * 4)], schema=schema), tmp_path / "1", **PLAIN)
    group = FileGroup((SourceFile(f"file://{tmp_path}/1", 100),))
    columns = tuple(
        TargetColumn(id_, name, type_, False, id_, type_, 0.5 if name == "number" else None)
        for id_, name, type_ in COLUMNS
    )
    destination = Destination(f"file://{tmp_path}", Properties(), "compact-1")
    target = TargetFiles(columns, destination, Arrangement(sort=order))
    [file] = compact_group(IO, target, group).files
    assert [row[:2] for row in read(file.path)] == [(number, 0.5) for number in range(4)]
    assert (pages(file.path, "text") == pages(group.sources[0].path, "text")) is not bool(order)


def test_a_row_group_with_a_deleted_row_is_not_copied(tmp_path: Path) -> None:
    rows = [(number, 1.5, "text", None) for number in range(4)]
    group = FileGroup((source(*rows, deleted=frozenset([1])).write(tmp_path, 1),))
    [file] = compact(tmp_path, group, (), target_size=1 << 30).files
    assert pages(file.path, "text") != pages(group.sources[0].path, "text")
    assert [row[0] for row in read(file.path)] == [0, 2, 3]


def opened(path: Path) -> OpenSource:
    file = pq.ParquetFile(path)
    return OpenSource(str(path), file, file.schema_arrow, None)


@pytest.mark.usefixtures("_usual_steps")
def test_long_texts_that_repeat_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """In the file they take a few bits each."""
    pq.write_table(pa.table({"text": pa.repeat("x" * 1000, 30_000)}), tmp_path / "1")
    batches = [rows.batch for rows in read_live_rows(opened(tmp_path / "1"), np.empty(0, np.int64))]
    assert sum(batch.num_rows for batch in batches) == 30_000
    assert max(batch.nbytes for batch in batches) < 10 << 20


@pytest.mark.usefixtures("_usual_steps")
def test_a_row_group_of_large_rows_is_read_a_few_at_a_time_beside_one_of_small_rows(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "1", pa.schema([("text", pa.string())]), use_dictionary=False) as writer:
        for size, rows in ((1, 60_000), (1 << 20, 40)):
            writer.write_table(pa.table({"text": pa.repeat("x" * size, rows)}))
    deleted = np.array([0, 60_001])
    found = [*read_live_rows(opened(tmp_path / "1"), deleted)]
    assert max(rows.batch.nbytes for rows in found) < 5 << 20
    assert np.concatenate([rows.positions for rows in found]).tolist() == [*range(1, 60_001), *range(60_002, 60_040)]


@pytest.mark.usefixtures("_usual_steps")
def test_large_rows_among_small_ones_of_a_row_group_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    texts = pa.chunked_array([pa.repeat("x", 100_000), pa.repeat("x" * 10_000, 4000)])
    pq.write_table(pa.table({"text": texts}), tmp_path / "1", use_dictionary=False)
    found = [*read_live_rows(opened(tmp_path / "1"), np.array([5]))]
    assert pq.read_metadata(tmp_path / "1").num_row_groups == 1
    assert max(rows.batch.nbytes for rows in found) < 11 << 20
    assert len(found) < 16
    assert np.concatenate([rows.positions for rows in found]).tolist() == [*range(5), *range(6, 104_000)]


@pytest.mark.parametrize("order", [(), (SortField(3, "identity", False, True),)], ids=["plain", "sorted"])
def test_views_of_other_engines_become_texts_and_bytes(tmp_path: Path, order: tuple[SortField, ...]) -> None:
    """Also within nested columns, and beside a deleted row: few of Arrow's functions take them."""
    rows = [(number, 1.5, f"text {number}", (number, f"right {number}")) for number in range(4)]
    written = source(*rows, deleted=frozenset([1]), has_pairs=True, has_views=True).write(tmp_path, 1)
    assert "string_view" in str(pq.read_schema(written.path[7:]))
    [file] = compact(tmp_path, FileGroup((written,)), order, target_size=1 << 30).files
    assert read(file.path) == [rows[place] for place in (0, 2, 3)]
    assert "string_view" not in str(pq.read_schema(file.path[7:]))


@pytest.mark.parametrize("is_copied", [True, False])
def test_strings_of_other_engines_that_are_not_utf8_are_kept_and_have_no_bounds(
    tmp_path: Path, is_copied: bool
) -> None:
    """Spark casts any bytes to a string."""
    contents = [b"\xff\xfe", b"a"]
    texts = pa.StringArray.from_buffers(2, *pa.array(contents).buffers()[1:])
    schema = pa.schema([_field("id", pa.int64(), 1), _field("text", pa.string(), 3)])
    options = {**PLAIN, "use_dictionary": not is_copied}
    pq.write_table(pa.table([pa.array(range(2)), texts], schema=schema), tmp_path / "1", **options)
    [file] = compact(tmp_path, FileGroup((SourceFile(f"file://{tmp_path}/1", 100),)), (), target_size=1 << 30).files
    assert pq.read_table(file.path[7:])["text"].cast(pa.binary()).to_pylist() == contents
    [statistics] = [column for column in file.columns if column.field_id == 3]
    assert (statistics.lower, statistics.upper, statistics.nulls) == (None, None, 0)


def test_a_group_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """The second source is gone. The first fills files, and is in the row order."""
    first = source(*((number, 1.5, "x" * 40, None) for number in range(50))).write(tmp_path, 1)
    group = FileGroup((first, SourceFile(f"file://{tmp_path}/gone.parquet", 100)))
    with pytest.raises(ConnectorError, match=r"gone\.parquet"):
        compact(tmp_path, group, (), target_size=1)
    assert [*(tmp_path / "data").iterdir()] == []


def test_a_sorted_group_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the third run is written. By then, two runs have become a file and its order."""
    orders, begin = list[RowOrderWriter](), RowOrderWriter.__init__

    def note(order: RowOrderWriter, io: FileIO, location: str) -> None:
        begin(order, io, location)
        orders.append(order)

    monkeypatch.setattr(RowOrderWriter, "__init__", note)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: FullAfterTwoRuns())
    group = FileGroup((source(*((number, 1.5, "x" * 40, None) for number in range(50))).write(tmp_path, 1),))
    with pytest.raises(RetryableError) as raised:
        compact(tmp_path, group, (SortField(2, "identity", False, False),), target_size=1)
    check_text("value_errors", "a disk that takes no sorted rows of a compaction", str(raised.value))
    assert [*(tmp_path / "data").iterdir()] == []
    [order] = orders
    assert order._stream.closed  # otherwise a store would complete it later


def test_a_place_for_temporary_files_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    group = FileGroup((source((1, 1.5, "x", None)).write(tmp_path, 1),))
    with pytest.raises(UserError, match=r"no temporary file can be made: No such file or directory\. .*TMPDIR"):
        compact(tmp_path, group, (SortField(2, "identity", False, False),), target_size=1)


class FullAfterTwoRuns(io.BytesIO):
    """A disk that is full when it was emptied once."""

    is_full = False

    def truncate(self, size: int | None = None) -> int:
        self.is_full = True
        return super().truncate(size)

    def write(self, content: Any) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content)


def test_a_source_without_a_required_column_is_not_compacted(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    pq.write_table(pa.table([pa.array([1.5])], schema=pa.schema([_field("number", pa.float64(), 2)])), path)
    with pytest.raises(UserError) as raised:
        compact(tmp_path, FileGroup((SourceFile(f"file://{path}", 100),)), (), target_size=1)
    check_text(
        "value_errors", "a source of a compaction without a required column", str(raised.value), {str(tmp_path): "…"}
    )


def test_a_source_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UserError) as raised:
        compact(tmp_path, FileGroup((SourceFile(f"file://{tmp_path}/broken.parquet", 17),)), (), target_size=1)
    check_text("value_errors", "a data file that is no Parquet", str(raised.value), {str(tmp_path): "…"})


def test_a_source_whose_path_pyarrow_refuses_is_named(tmp_path: Path) -> None:
    """So the other files are compacted without it."""
    source = SourceFile("s3://lake/data//0.parquet", 100)
    io = open_file_io({S3_ENDPOINT: "http://127.0.0.1:1", S3_REGION: "eu-west-1"})  # no request is sent
    target = TargetFiles((), Destination(f"file://{tmp_path}", Properties(), "compact-1"), Arrangement())
    with pytest.raises(UnreadableFileError, match="whose path has an empty part") as raised:
        compact_group(io, target, FileGroup((source,)))
    assert raised.value.path == source.path


NANOS: Final = 1_700_000_000_123_456_000


@pytest.mark.parametrize("order", [(), (SortField(1, "identity", False, True),)], ids=["plain", "sorted"])
def test_nanoseconds_in_a_column_of_microseconds_are_read_if_none_is_lost(
    tmp_path: Path, order: tuple[SortField, ...]
) -> None:
    assert compact_nanoseconds(tmp_path, [NANOS, None, -1000], order) == [NANOS // 1000, None, -1]


def test_nanoseconds_that_a_column_of_microseconds_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError) as raised:
        compact_nanoseconds(tmp_path, [NANOS, NANOS + 1], ())
    assert raised.value.path == f"file://{tmp_path}/1"
    check_text("value_errors", "nanoseconds in a source of a compaction", str(raised.value), {str(tmp_path): "…"})


def compact_nanoseconds(directory: Path, values: list[int | None], order: tuple[SortField, ...]) -> list[int | None]:
    """Compact a file of another engine. Return what its column has afterwards."""
    for name in ("data", "metadata"):
        (directory / name).mkdir()
    schema = pa.schema([_field("id", pa.int64(), 1), _field("at", pa.timestamp("ns", "UTC"), 2)])
    pq.write_table(
        pa.table([pa.array(range(len(values))), pa.array(values, schema.types[1])], schema=schema), directory / "1"
    )
    types: list[tuple[int, str, IcebergType]] = [(1, "id", LongType()), (2, "at", TimestamptzType())]
    columns = tuple(TargetColumn(id_, name, type_, False, id_, type_) for id_, name, type_ in types)
    destination = Destination(f"file://{directory}", Properties(), "compact-1")
    target = TargetFiles(columns, destination, Arrangement(sort=order))
    [file] = compact_group(IO, target, FileGroup((SourceFile(f"file://{directory}/1", 100),))).files
    written = pq.read_table(file.path[7:])["at"]
    assert written.type == pa.timestamp("us", "UTC")
    return written.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]  # Arrow's


def test_rows_are_sorted_by_uuids(tmp_path: Path) -> None:
    """The connector writes none, but other engines do. Arrow itself does not sort them."""
    numbers = [7 << 120, 1, 255 << 120, 128, 3]
    path = tmp_path / "source.parquet"
    uuids = pa.array([UUID(int=number).bytes for number in numbers], pa.uuid())
    pq.write_table(pa.table([uuids], schema=pa.schema([_field("u", pa.uuid(), 1)])), path, store_schema=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "metadata").mkdir()
    column = TargetColumn(1, "u", UUIDType(), False, 1, UUIDType())
    order = (SortField(1, "identity", False, True),)
    destination = Destination(f"file://{tmp_path}", Properties(), "compact-1")
    target = TargetFiles((column,), destination, Arrangement(sort=order))
    [file] = compact_group(IO, target, FileGroup((SourceFile(f"file://{path}", path.stat().st_size),))).files
    written = pq.read_table(file.path.removeprefix("file://"))["u"].to_pylist()
    assert [each.int for each in written] == sorted(numbers)


OF_OTHER_ENGINES: Final[list[tuple[PrimitiveType, pa.DataType, list[Any], Any]]] = [
    (TimestampType(), pa.timestamp("us"), [-1, 1], (-1, 1)),
    (TimestampNanoType(), pa.timestamp("ns"), [NANOS + 1, NANOS], (NANOS, NANOS + 1)),
    (TimeType(), pa.time64("us"), [86_399_999_999, 0], (0, 86_399_999_999)),
    (FixedType(20), pa.binary(20), [b"a" * 20, b"\xff" * 20], (b"a" * 20, b"\xff" * 20)),
    # Iceberg for Java orders UUIDs by signed numbers: with bounds in the order of their bytes, it would skip the file.
    (UUIDType(), pa.uuid(), [UUID(int=255 << 120).bytes, UUID(int=1).bytes], (None, None)),
]


@pytest.mark.parametrize(("type_", "arrow_type", "values", "bounds"), OF_OTHER_ENGINES, ids=str)
def test_columns_that_only_other_engines_write_keep_their_bounds(
    type_: PrimitiveType, arrow_type: pa.DataType, values: list[Any], bounds: Any, tmp_path: Path
) -> None:
    schema = pa.schema([_field("x", arrow_type, 1)])
    pq.write_table(pa.table([pa.array([*values, None], arrow_type)], schema=schema), tmp_path / "1", store_schema=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "metadata").mkdir()
    column = TargetColumn(1, "x", type_, False, 1, type_)
    target = TargetFiles((column,), Destination(f"file://{tmp_path}", Properties(), "compact-1"))
    [file] = compact_group(IO, target, FileGroup((SourceFile(f"file://{tmp_path}/1", 100),))).files
    [of_column] = file.columns
    assert of_column.nulls == 1
    assert tuple(bound and from_bytes(type_, bound) for bound in (of_column.lower, of_column.upper)) == bounds


def test_nested_columns_of_another_form_go_to_another_file(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    for path, inner in ((old, [_field("left", pa.int64(), 5)]), (new, [_field("right", pa.string(), 6)])):
        schema = pa.schema([_field("id", pa.int64(), 1), _field("pair", pa.struct(inner), 4)])
        pq.write_table(pa.table([pa.array([1]), pa.array([{}], schema.field(1).type)], schema=schema), path)
    group = FileGroup(tuple(SourceFile(f"file://{path}", 100) for path in (old, old, new)))
    compacted = compact(tmp_path, group, (), target_size=1 << 30)
    assert [file.rows for file in compacted.files] == [2, 1]


def test_rows_of_a_large_group_become_files_of_similar_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nearly two and a half times the target: not two full files and a small one."""
    monkeypatch.setattr(assembled_writer, "ROW_GROUP_SIZE", 30_000)
    rows = [(number, 1.5, os.urandom(1000).hex(), None) for number in range(400)]
    sources = [source(*rows[first : first + 100], row_group=20).write(tmp_path, first) for first in range(0, 400, 100)]
    target = int(sum(each.size for each in sources) / 2.4)
    compacted = compact(tmp_path, FileGroup(tuple(sources)), (), target)
    sizes = [file.size for file in compacted.files]
    assert len(sizes) == 2
    assert min(sizes) > 0.5 * max(sizes)


PEAK: Final = """
import sys
import pyarrow as pa
from pathlib import Path
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import BinaryType, LongType
from connector.encoding.parquet.assembled_files import AssembledFile, ColumnChunk
from connector.encoding.parquet.file_options import Destination, FileOptions
from connector.encoding.rewriting.file_groups import FileGroup
from connector.encoding.rewriting.group_compaction import compact_group
from connector.encoding.live_rows.source_rows import OpenSource, SourceFile
from connector.encoding.live_rows.target_columns import TargetColumn, TargetFiles
from connector.model.binding import Arrangement, Column, SortField
from connector.model.properties import Properties

directory, times, is_sorted = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "sorted"
types = [(1, "id", LongType()), (2, "b", BinaryType())]
columns = [TargetColumn(number, name, type_, False, number, type_) for number, name, type_ in types]
source = SourceFile(f"file://{directory}/source.parquet", 100)
order = (SortField(1, "identity", True, False),) if is_sorted else ()
properties = Properties({"write.parquet.compression-codec": "uncompressed"})
destination = Destination(f"file://{directory}/table", properties, "compact-1")
target = TargetFiles(tuple(columns), destination, Arrangement(sort=order))
compacted = compact_group(PyArrowFileIO(), target, FileGroup((source,) * times))
print(sum(compacted.kept), pa.default_memory_pool().max_memory() >> 20)
"""


@pytest.mark.long
@pytest.mark.parametrize("order", [pytest.param("unsorted", marks=pytest.mark.slow), "sorted"])
def test_the_memory_of_a_large_group_is_that_of_a_small_one(tmp_path: Path, order: str) -> None:
    """32 MB of Arrow data for each source."""
    schema = pa.schema([_field("id", pa.int64(), 1), _field("b", pa.binary(), 2)])
    rows = 1 << 15
    table = pa.table([pa.array(range(rows)), pa.array([os.urandom(1000)] * rows)], schema=schema)
    pq.write_table(table, tmp_path / "source.parquet", compression="none", use_dictionary=False)
    for name in ("data", "metadata"):
        (tmp_path / "table" / name).mkdir(parents=True)

    def peak(times: int) -> int:
        command = [sys.executable, "-c", PEAK, str(tmp_path), str(times), order]
        counted, most = map(int, subprocess.run(command, check=True, capture_output=True).stdout.split())
        assert counted == times * rows
        return most

    small, large = peak(2), peak(10)
    assert large < small + 16, f"{large} MB for 320 MB, {small} MB for 64 MB"
