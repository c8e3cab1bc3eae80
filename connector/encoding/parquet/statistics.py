"""Statistics of columns: of a complete file from its Parquet metadata, of rows before they are written."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from connector.model.binding import Column
from connector.model.state import BOUND_LENGTH, ColumnStatistics, DataFile

_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CHARACTER: Final = 0x10FFFF
_SAMPLE: Final = 10_000  # rows
_FIRST_SAMPLE: Final = 1_000  # rows
_NEARLY_ALL: Final = 950  # of the first sample
# The types whose values Parquet orders and represents as Iceberg does. UUIDs are left out: Iceberg for Java orders them
# by two signed numbers, also in 1.12. By bounds in Parquet's order it would skip files that have a row.
# https://github.com/apache/iceberg/issues/14216
_COMPARABLE: Final = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DateType,
    TimeType,
    TimestampType,
    TimestampNanoType,
    TimestamptzType,
    TimestamptzNanoType,
    FixedType,
)


def describe_file(
    location: str, size: int, metadata: pq.FileMetaData, columns: Sequence[Column], with_nan: Collection[int]
) -> DataFile:
    """Return a complete file with its counts and its column statistics.

    Columns go by their index, since their names may collide. `with_nan` has the indexes of columns with a NaN.
    """
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    statistics = tuple(
        _of_column(column, [group.column(index) for group in groups], index not in with_nan)
        for index, column in enumerate(columns)
    )
    return DataFile(location, metadata.num_rows, size, split_offsets(metadata), statistics)


def split_offsets(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Return the offsets, in bytes, where the row groups begin."""
    first_columns = (metadata.row_group(group).column(0) for group in range(metadata.num_row_groups))
    return tuple(
        min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
        for column in first_columns
    )


def _of_column(column: Column, chunks: Sequence[pq.ColumnChunkMetaData], comparable: bool) -> ColumnStatistics:
    statistics = [chunk.statistics for chunk in chunks]
    counted = all(chunk.has_null_count for chunk in statistics)
    lower, upper = _bounds(column.type, statistics) if comparable and counted else (None, None)
    return ColumnStatistics(
        field_id=column.id,
        size=sum(chunk.total_compressed_size for chunk in chunks),
        values=sum(chunk.num_values for chunk in chunks),
        nulls=sum(chunk.null_count for chunk in statistics) if counted else None,
        lower=lower,
        upper=upper,
    )


def _bounds(column_type: PrimitiveType, statistics: Sequence[pq.Statistics]) -> tuple[bytes | None, bytes | None]:
    filled = [chunk for chunk in statistics if chunk.num_values]
    # Parquet omits a row group's extremes when they are long; those of the other row groups do not bound the file.
    if not filled or not all(chunk.has_min_max for chunk in filled):
        return None, None
    if isinstance(column_type, DecimalType):
        numbers = [_unscale(extreme) for chunk in filled for extreme in (chunk.min_raw, chunk.max_raw)]
        return _decimal_bound(column_type, min(numbers)), _decimal_bound(column_type, max(numbers))
    lowest = min(chunk.min_raw for chunk in filled)
    highest = max(chunk.max_raw for chunk in filled)
    if isinstance(column_type, StringType):
        return _text_bounds(lowest, highest)
    if isinstance(column_type, BinaryType):
        return lowest[:BOUND_LENGTH], upper_bound_of_bytes(highest)
    if not isinstance(column_type, _COMPARABLE):
        return None, None
    return to_bytes(column_type, lowest), to_bytes(column_type, highest)


def _text_bounds(lowest: bytes, highest: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the bounds of texts. None for texts of other engines that are not UTF-8."""
    try:
        lower, upper = lowest.decode()[:BOUND_LENGTH], upper_bound_of_text(highest.decode())
    except UnicodeDecodeError:
        return None, None
    return lower.encode(), None if upper is None else upper.encode()


def _unscale(extreme: int | bytes) -> int:
    return extreme if isinstance(extreme, int) else int.from_bytes(extreme, "big", signed=True)


def _decimal_bound(column_type: DecimalType, unscaled: int) -> bytes:
    return to_bytes(column_type, unscaled_to_decimal(unscaled, column_type.scale))


def upper_bound_of_text(text: str) -> str | None:
    """Return a text of at most 16 characters that is not less than this one, as tight as a prefix allows. None if none
    exists."""
    if len(text) <= BOUND_LENGTH:
        return text
    for length in range(BOUND_LENGTH, 0, -1):
        successor = ord(text[length - 1]) + 1
        if successor in _SURROGATES:
            successor = _SURROGATES.stop
        if successor <= _LAST_CHARACTER:
            return text[: length - 1] + chr(successor)
    return None


def upper_bound_of_bytes(value: bytes) -> bytes | None:
    """Return at most 16 bytes that are not less than these, as `upper_bound_of_text` does; None if none exist."""
    if len(value) <= BOUND_LENGTH:
        return value
    for length in range(BOUND_LENGTH, 0, -1):
        if value[length - 1] < 0xFF:
            return value[: length - 1] + bytes([value[length - 1] + 1])
    return None


def find_nan(rows: pa.Table) -> Iterator[int]:
    """Find the columns that have a NaN, by their indexes. No statistics of Parquet count it."""
    for index, column in enumerate(rows.columns):
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
            yield index


def worth_a_dictionary(rows: pa.Table) -> list[str]:
    """Return the names of columns whose values repeat often enough for a dictionary."""
    sample = rows.slice(0, _SAMPLE)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if not _never_worth_a_dictionary(column.type) and _repeats(column)
    ]


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether every value occurs twice or more on average."""
    # Counting takes memory for every distinct value: a column whose first values nearly all differ is not counted
    # further.
    first = column.slice(0, _FIRST_SAMPLE)
    distinct = pc.count_distinct(first).as_py()
    if distinct > _NEARLY_ALL:
        return False
    if len(first) < len(column):
        distinct = pc.count_distinct(column).as_py()
    return bool(2 * distinct <= len(column))


def _never_worth_a_dictionary(arrow_type: pa.DataType) -> bool:
    """Return True for booleans, which are bits already, and for types of other engines whose values Arrow cannot
    count."""
    is_foreign = pa.types.is_nested(arrow_type) or isinstance(arrow_type, pa.BaseExtensionType)
    return bool(pa.types.is_boolean(arrow_type) or is_foreign)
