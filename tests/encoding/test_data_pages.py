"""A few values of a column chunk: the same as Arrow reads, up to where Arrow has to read them."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connector.encoding.parquet.data_pages import are_few, read_texts

ROWS = 5_000


def texts() -> list[str]:
    """Different texts, some of them empty, some longer than a small page."""
    return ["" if n % 97 == 0 else f"{n} ü " * (1 + n % 5) + "x" * (n % 701 == 0) * 3_000 for n in range(ROWS)]


def write(path: Path, values: list[str | None], *, nullable: bool = True, **options: Any) -> Path:
    schema = pa.schema([("n", pa.int64()), pa.field("text", pa.string(), nullable=nullable)])
    table = pa.table([pa.array(range(len(values))), values], schema)
    small_pages = {"data_page_size": 4096, "write_batch_size": 64}
    pq.write_table(table, path, **{"compression": "zstd", "use_dictionary": False, **small_pages, **options})
    return path


def read(path: Path, rows: list[int], group: int = 0) -> list[str]:
    footer = pq.read_metadata(path)
    chunk, column = footer.row_group(group).column(1), footer.schema.column(1)
    with path.open("rb") as stream:
        return read_from(stream, chunk, column, rows)


def read_from(stream: Any, chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema, rows: list[int]) -> list[str]:
    found = read_texts(stream, chunk, column, np.array(rows, np.int64), at_once=1)
    return [text for part in found for text in part.to_pylist()]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pages") / "rows.parquet", [*texts()], row_group_size=ROWS // 2)


@given(st.sets(st.integers(0, ROWS // 2 - 1)).map(sorted), st.integers(0, 1))
@settings(max_examples=50)
def test_any_rows_are_read_as_arrow_reads_them(file: Path, rows: list[int], group: int) -> None:
    expected = texts()[group * ROWS // 2 :]
    assert read(file, rows, group) == [expected[row] for row in rows]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "brotli", "none"])
@pytest.mark.parametrize("nullable", [True, False])
def test_every_codec_is_read(tmp_path: Path, codec: str, nullable: bool) -> None:
    path = write(tmp_path / "rows.parquet", [*texts()], nullable=nullable, compression=codec)
    assert read(path, [0, 1, 2_000, ROWS - 1]) == [texts()[row] for row in (0, 1, 2_000, ROWS - 1)]


def test_pages_without_wanted_rows_are_not_decompressed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decompressed = []

    codec = pa.Codec

    class Codec:
        def __init__(self, name: str) -> None:
            self._codec = codec(name)

        def decompress(self, content: memoryview, size: int) -> pa.Buffer:
            decompressed.append(size)
            return self._codec.decompress(content, size)

    monkeypatch.setattr(pa, "Codec", Codec)
    read(file, [1, 2, 2_000])
    assert len(decompressed) == 2
    assert sum(decompressed) < pq.read_metadata(file).row_group(0).column(1).total_uncompressed_size / 5


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": True},
        {"data_page_version": "2.0"},
        {"compression": "lz4"},
        {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_other_column_chunks_are_left_to_arrow(tmp_path: Path, options: dict[str, Any]) -> None:
    assert read(write(tmp_path / "rows.parquet", [*texts()], **options), [1]) == []


def test_a_page_with_nulls_is_left_to_arrow(tmp_path: Path) -> None:
    values: list[str | None] = [*texts()]
    values[3] = None
    assert read(write(tmp_path / "rows.parquet", values), [1]) == []


def test_values_before_a_page_with_nulls_are_read(tmp_path: Path) -> None:
    values: list[str | None] = [*texts()]
    values[3_000] = None
    assert read(write(tmp_path / "rows.parquet", values), [1, 2, 3_001]) == texts()[1:3]


@given(place=st.integers(0, 200), byte=st.integers(0, 255), row=st.integers(0, 100))
@example(place=54, byte=160, row=0)  # a length of more bytes than there are numbers for
def test_a_damaged_page_is_left_to_arrow_or_read_as_it_is(file: Path, place: int, byte: int, row: int) -> None:
    """Headers, lengths and compressed bytes that make no sense are not what the connector reports: Arrow does."""
    chunk = pq.read_metadata(file).row_group(0).column(1)
    content = bytearray(file.read_bytes())
    content[chunk.data_page_offset + place] = byte
    column = pq.read_metadata(file).schema.column(1)
    assert len(read_from(BytesIO(content), chunk, column, [row])) <= 1


@pytest.mark.parametrize("kept", [0, 10, 100, 1_000])
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_pages_of_a_truncated_file_are_left_to_arrow(tmp_path: Path, kept: int, codec: str) -> None:
    path = write(tmp_path / "rows.parquet", [*texts()], compression=codec)
    footer = pq.read_metadata(path)
    chunk = footer.row_group(0).column(1)
    stream = BytesIO(path.read_bytes()[: chunk.data_page_offset + kept])
    assert read_from(stream, chunk, footer.schema.column(1), [0, ROWS - 1]) in ([], texts()[:1])


def test_numbers_are_left_to_arrow(file: Path) -> None:
    footer = pq.read_metadata(file)
    with file.open("rb") as stream:
        assert read_from(stream, footer.row_group(0).column(0), footer.schema.column(0), [1]) == []


def test_few_rows_are_those_that_most_pages_do_not_have(tmp_path: Path) -> None:
    chunk = pq.read_metadata(write(tmp_path / "rows.parquet", ["x" * 1_000] * 8_500)).row_group(0).column(1)
    assert are_few(np.arange(4), chunk)  # eight pages of the usual size
    assert not are_few(np.arange(5), chunk)
