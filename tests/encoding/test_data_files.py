"""Data files: what a reader finds in them, what their descriptors say, and what is left of them after an abort."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from connector.encoding.lines.decoder import RowDecoder
from connector.encoding.parquet.data_files import ROW_GROUP_SIZE, DataFileWriter, NewFiles, abort_on_failure
from connector.encoding.parquet.file_options import CODECS, FileOptions
from connector.encoding.parquet.statistics import upper_bound_of_bytes, upper_bound_of_text
from connector.host.errors import RetryableError
from connector.model.binding import Binding
from connector.model.state import DataFile
from connector.storage import file_io
from encoding.store_lines import binding, json_line, numbered, plain

NewWriter = Callable[..., DataFileWriter]


@pytest.fixture
def new_writer(tmp_path: Path) -> NewWriter:
    numbers = itertools.count()

    def make(of: Binding, **properties: str) -> DataFileWriter:
        def new_location() -> str:
            return f"file://{tmp_path}/data/{next(numbers)}.parquet"

        options = FileOptions.of_table(properties)
        return DataFileWriter(NewFiles(PyArrowFileIO(), new_location, of.columns, RowDecoder(of).schema, options))

    return make


def batch(of: Binding, *lines: bytes) -> pa.RecordBatch:
    return RowDecoder(of).decode(numbered(b"".join(lines))).batch


def read(file: DataFile) -> pa.Table:
    return pq.read_table(file.path.removeprefix("file://"))


def metadata(file: DataFile) -> pq.FileMetaData:
    return pq.read_metadata(file.path.removeprefix("file://"))


def bounds(file: DataFile, type_: PrimitiveType, place: int = 1) -> tuple[Any, Any]:
    column = file.columns[place]
    lower, upper = (None if bound is None else from_bytes(type_, bound) for bound in (column.lower, column.upper))
    return lower, upper


def test_a_file_holds_the_rows_under_the_tables_field_ids(new_writer: NewWriter) -> None:
    of = binding(StringType(), TimestamptzType())
    rows = batch(of, plain(1, "a", "2024-01-01T00:00:00Z"), plain(2, None, None))
    writer = new_writer(of)
    writer.write(rows)
    (file,) = writer.finish()

    assert read(file).to_pylist() == rows.to_pylist()
    assert [field.metadata[b"PARQUET:field_id"] for field in read(file).schema] == [b"1", b"2", b"3"]
    assert read(file).schema.field(2).type == pa.timestamp("us", "UTC")
    assert (file.rows, file.size) == (2, Path(file.path.removeprefix("file://")).stat().st_size)
    assert file.splits == (4,)


def test_without_rows_there_is_no_file(new_writer: NewWriter, tmp_path: Path) -> None:
    of = binding(StringType())
    writer = new_writer(of)
    writer.write(batch(of, b'{"store":{"binding":4}}\n'))

    assert writer.finish() == []
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_has_reached_the_target_size_is_followed_by_another(new_writer: NewWriter) -> None:
    of = binding(StringType())
    writer = new_writer(of, **{"write.target-file-size-bytes": "1000"})
    rows = batch(of, *(plain(n, f"{n:010}" * 100) for n in range(15_000)))
    for _ in range(4):
        writer.write(rows)
    files = writer.finish()

    assert [file.rows for file in files] == [30_000, 30_000]
    assert all(file.size > 1000 for file in files)


def test_rows_are_written_in_groups_as_they_come(new_writer: NewWriter, tmp_path: Path) -> None:
    of = binding(StringType())
    writer = new_writer(of)
    random = Random(1)
    rows = batch(of, *(plain(n, random.randbytes(500).hex()) for n in range(15_000)))
    for _ in range(5):
        writer.write(rows)
    begun = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    (file,) = writer.finish()

    assert begun > file.size / 2
    assert [metadata(file).row_group(group).num_rows for group in range(3)] == [30_000, 30_000, 15_000]
    assert len(file.splits) == 3
    assert file.columns[1].values == 75_000


def test_rows_that_are_larger_than_a_row_group_are_one_of_their_own(new_writer: NewWriter) -> None:
    of = binding(StringType())
    few = batch(of, plain(1, "a"), plain(2, "b"))
    large = batch(of, *(plain(n, "x" * (ROW_GROUP_SIZE // 4)) for n in range(3, 8)))
    writer = new_writer(of)
    for rows in (few, large, few):
        writer.write(rows)
    (file,) = writer.finish()

    assert [metadata(file).row_group(group).num_rows for group in range(3)] == [2, 5, 2]
    assert read(file)["id"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_is_the_tables_by_icebergs_name(new_writer: NewWriter, codec: str) -> None:
    of = binding(StringType())
    # Only some codecs have levels: with the others it says nothing.
    writer = new_writer(
        of, **{"write.parquet.compression-codec": codec.upper(), "write.parquet.compression-level": "2"}
    )
    writer.write(batch(of, plain(1, "a")))
    (file,) = writer.finish()

    assert metadata(file).row_group(0).column(0).compression.lower() == codec
    assert read(file)["id"].to_pylist() == [1]


def test_a_level_changes_what_is_written(new_writer: NewWriter) -> None:
    of = binding(StringType())
    sizes = []
    for level in ("1", "9"):
        writer = new_writer(of, **{"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": level})
        writer.write(batch(of, *(plain(n, f"{n * 7919:b}") for n in range(1000))))
        sizes.append(sum(file.size for file in writer.finish()))
    assert sizes[0] > sizes[1]


def test_a_dictionary_is_written_where_values_repeat(new_writer: NewWriter) -> None:
    of = binding(StringType(), StringType())
    writer = new_writer(of)
    writer.write(batch(of, *(plain(n, str(n), str(n % 7)) for n in range(100))))
    (file,) = writer.finish()

    columns = [metadata(file).row_group(0).column(place) for place in range(3)]
    assert [column.has_dictionary_page for column in columns] == [False, False, True]


def test_a_dictionary_is_worth_it_where_every_value_occurs_twice_and_never_for_booleans(new_writer: NewWriter) -> None:
    of = binding(StringType(), StringType(), BooleanType())
    writer = new_writer(of)
    writer.write(batch(of, *(plain(n // 2, str(n // 2), str(max(n, 1) // 2), n < 50) for n in range(100))))
    (file,) = writer.finish()

    columns = [metadata(file).row_group(0).column(place) for place in range(4)]
    assert [column.has_dictionary_page for column in columns] == [True, True, True, False]
    assert file.splits == (4,), "a row group begins with the dictionary of its first column"


def test_a_dictionary_is_not_worth_it_where_a_value_occurs_once(new_writer: NewWriter) -> None:
    of = binding(StringType())
    writer = new_writer(of)
    writer.write(batch(of, *(plain(n, str(max(n, 1) // 2)) for n in range(1, 100))))
    (file,) = writer.finish()

    assert not metadata(file).row_group(0).column(1).has_dictionary_page


@pytest.mark.parametrize("written", [0, 1, 3])
def test_an_abort_leaves_nothing_behind(new_writer: NewWriter, tmp_path: Path, written: int) -> None:
    of = binding(StringType())
    writer = new_writer(of, **{"write.target-file-size-bytes": "1"})
    rows = batch(of, *(plain(n, f"{n:010}" * 100) for n in range(60_000)))
    for _ in range(written):
        writer.write(rows)
    assert len(list(tmp_path.rglob("*.parquet"))) == written
    writer.abort()

    assert not list(tmp_path.rglob("*.parquet"))


def test_an_abort_in_the_middle_of_a_file_leaves_nothing_behind(
    new_writer: NewWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_io, "LARGEST_HELD", 100)
    of = binding(StringType())
    writer = new_writer(of)
    writer.write(batch(of, *(plain(n, f"{n:010}" * 100) for n in range(60_000))))
    assert list(tmp_path.rglob("*.parquet"))
    writer.abort()

    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_that_its_store_refuses_when_it_grows_can_be_aborted(
    new_writer: NewWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileIO, location: str) -> OutputFile:
        raise RetryableError(f"{location}: the store refuses this")

    monkeypatch.setattr(file_io, "LARGEST_HELD", 100)
    monkeypatch.setattr(PyArrowFileIO, "new_output", refuse)
    of = binding(StringType())
    writer = new_writer(of)
    with pytest.raises(RetryableError, match="the store refuses this"), abort_on_failure(writer):
        writer.write(batch(of, *(plain(n, f"{n:010}" * 100) for n in range(60_000))))


BOUNDS: list[tuple[PrimitiveType, list[str], Any, Any]] = [
    (BooleanType(), ["true", "null"], True, True),
    (LongType(), ["-5", "null", "3"], -5, 3),
    (DoubleType(), ["-5.5", '"Infinity"'], -5.5, float("inf")),
    (DoubleType(), ["1.5", '"NaN"'], None, None),
    (DoubleType(), ['"NaN"'], None, None),
    (DecimalType(9, 2), ["-1.5", "null", "300"], Decimal("-1.50"), Decimal("300.00")),
    (DecimalType(18, 0), ["-129", "-128"], Decimal(-129), Decimal(-128)),
    (DecimalType(20, 4), ["-1", "2e15", "0.5"], Decimal("-1.0000"), Decimal("2000000000000000.0000")),
    (DecimalType(38, 38), ["-0.1", "-0.2"], Decimal("-0.2"), Decimal("-0.1")),
    (DecimalType(38, 0), ["null"], None, None),
    (StringType(), ['"b"', '"a"', '"é"'], "a", "é"),
    (StringType(), ['"aaaaaaaaaaaaaaaaX"'], "a" * 16, "a" * 15 + "b"),
    (StringType(), ["null", "null"], None, None),
    (BinaryType(), ['"AP8="', '"/wA="'], b"\x00\xff", b"\xff\x00"),
    (BinaryType(), ['"/////////////////////////////w=="'], b"\xff" * 16, None),
    (DateType(), ['"0001-01-01"', '"9999-12-31"'], date.min, date.max),
    (
        TimestamptzType(),
        ['"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"'],
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ),
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_iceberg(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // (datetime.resolution)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


@pytest.mark.parametrize(("type_", "values", "lower", "upper"), BOUNDS, ids=str)
def test_bounds_are_the_extremes_in_icebergs_own_form(
    new_writer: NewWriter, type_: PrimitiveType, values: list[str], lower: Any, upper: Any
) -> None:
    of = binding(type_)
    writer = new_writer(of)
    writer.write(batch(of, *map(json_line, values)))
    (file,) = writer.finish()

    assert bounds(file, type_) == (in_iceberg(lower), in_iceberg(upper))
    assert (file.columns[1].values, file.columns[1].nulls) == (len(values), values.count("null"))
    assert file.columns[1].size > 0


def test_decimals_have_the_form_that_iceberg_demands_for_their_digits(new_writer: NewWriter) -> None:
    of = binding(DecimalType(9, 2), DecimalType(18, 2), DecimalType(19, 2), DecimalType(38, 2))
    writer = new_writer(of)
    writer.write(batch(of, plain(1, "-1.5", "-1.5", "-1.5", "-1.5")))
    (file,) = writer.finish()

    columns = [metadata(file).schema.column(place) for place in (1, 2, 3, 4)]
    assert [column.physical_type for column in columns] == ["INT32", "INT64", *["FIXED_LEN_BYTE_ARRAY"] * 2]
    assert [column.length for column in columns[2:]] == [9, 16]


def test_a_column_with_values_too_long_for_parquets_statistics_has_no_bounds(new_writer: NewWriter) -> None:
    of = binding(StringType())
    writer = new_writer(of)
    writer.write(batch(of, *(plain(n, f"{n:010}" * 100) for n in range(60_000))))
    writer.write(batch(of, plain(1, "z" * 10_000), plain(2, None)))
    (file,) = writer.finish()

    assert bounds(file, StringType()) == (None, None)
    assert file.columns[1].nulls == 1


def test_a_nan_in_any_row_group_leaves_its_column_without_bounds(new_writer: NewWriter) -> None:
    """Parquet's statistics ignore it. A reader with a filter would skip the file."""
    of = binding(DoubleType(), StringType())
    writer = new_writer(of)
    rows = batch(of, *(plain(n, 1.5, f"{n:010}" * 100) for n in range(30_000)))
    for first in ('"NaN","a"', '1.5,"a"'):
        writer.write(batch(of, json_line(first)))
        writer.write(rows)
    (file,) = writer.finish()

    assert metadata(file).num_row_groups > 1
    assert bounds(file, DoubleType()) == (None, None)


@pytest.mark.parametrize("size", ["0", "-1", "1.5", "many"])
def test_a_target_size_that_is_none_is_refused(new_writer: NewWriter, size: str) -> None:
    with pytest.raises(ValueError, match=r"must be a whole number from 1 upwards"):
        new_writer(binding(StringType()), **{"write.target-file-size-bytes": size})


def test_columns_whose_names_collide_in_parquet_keep_their_own_statistics(new_writer: NewWriter) -> None:
    of = binding(LongType(), LongType())
    names = ("a b", "a_x20b")
    of = replace(of, values=tuple(replace(column, name=name) for column, name in zip(of.values, names, strict=True)))
    writer = new_writer(of)
    writer.write(batch(of, plain(1, 5, 9)))
    (file,) = writer.finish()

    assert [bounds(file, LongType(), place) for place in (1, 2)] == [(5, 5), (9, 9)]


@pytest.mark.parametrize(("last", "next_one"), [("\ud7ff", "\ue000"), ("\U0010fffe", "\U0010ffff"), ("a", "b")])
def test_the_upper_bound_of_a_text_is_as_tight_as_its_length_allows(last: str, next_one: str) -> None:
    assert upper_bound_of_text("x" * 15 + last + "x") == "x" * 15 + next_one


LONG_TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\ud7ff\ue000\U0010ffff"), min_size=17)


@example("x" * 15 + "\ud7ff" + "x")  # what follows are no characters
@example("\U0010ffff" * 17)
@given(LONG_TEXTS)
def test_the_upper_bound_of_a_text_is_above_it_and_short(text: str) -> None:
    bound = upper_bound_of_text(text)

    if bound is None:
        assert text[:16] == "\U0010ffff" * 16
    else:
        assert bound.encode() > text.encode()
        assert len(bound) <= 16


@given(st.binary(min_size=17) | st.lists(st.sampled_from([b"\xff", b"\xfe"]), min_size=17).map(b"".join))
def test_the_upper_bound_of_bytes_is_above_them_and_short(value: bytes) -> None:
    bound = upper_bound_of_bytes(value)

    if bound is None:
        assert value[:16] == b"\xff" * 16
    else:
        assert bound > value
        assert len(bound) <= 16
