"""Columns after a transform of Iceberg's, such as `day` or `bucket[16]`: for partitions, and for sort orders."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform, parse_transform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)
from pyiceberg.utils.decimal import decimal_required_bytes, unscaled_to_decimal

from connector.host.errors import UserError
from connector.model.binding import Column

_SIGN: Final = 63  # the place of its bit
_ALL_BUT_SIGN: Final = np.int64(2**63 - 1)
# Iceberg's transforms of nanoseconds are those of their microseconds. PyIceberg lacks some of them.
_MICROSECONDS: Final[Mapping[PrimitiveType, tuple[PrimitiveType, pa.DataType]]] = {
    TimestampNanoType(): (TimestampType(), pa.timestamp("us")),
    TimestamptzNanoType(): (TimestamptzType(), pa.timestamp("us", "UTC")),
}
_NAN: Final = np.float64("nan").view(np.int64)


class TransformedColumn:
    """The values of a column of a binding's rows, after a transform."""

    def __init__(self, index: int, column: Column, transform: str) -> None:
        """`index` is the column's index in the rows. `transform` is as the table's metadata has it."""
        parsed = parse_transform(transform)
        result_type = parsed.result_type(column.type)
        assert isinstance(result_type, PrimitiveType), "the transforms give single values"
        self.type = result_type
        self.may_be_null = not column.required
        self._index = index
        self._name = column.name
        keeps_nanoseconds = isinstance(parsed, IdentityTransform) or column.type not in _MICROSECONDS
        source: PrimitiveType
        self._microseconds: pa.DataType | None
        source, self._microseconds = (column.type, None) if keeps_nanoseconds else _MICROSECONDS[column.type]
        self._transform: Callable[[pa.Array], pa.Array] = parsed.pyarrow_transform(source)
        self._needs_alignment = isinstance(column.type, DecimalType)
        self._rounds_down = isinstance(parsed, TruncateTransform) and isinstance(
            column.type, IntegerType | LongType | DecimalType
        )

    def of_partitions(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the partition values of these rows. Raises UserError if a number cannot be in a partition.

        Below the smallest number of its type, `truncate` wraps around to a large one in all engines. Readers with a
        filter such as `n < 0` would not find the row. A decimal would not fit into the bytes that a manifest has.
        """
        transformed = self.of(rows)
        if self._rounds_down:
            values = rows.column(self._index)
            below = values.filter(self._find_too_small(transformed, values))
            if len(below):
                raise UserError(
                    f"column {self._name}: the value {below[0]} cannot be in a partition. `truncate` rounds it down, "
                    f"and the result is below the smallest {self.type}. Nothing of this transaction has become "
                    "visible. Correct the document at its source, or remove the term from `partition_by`."
                )
        return transformed

    def _find_too_small(self, transformed: pa.Array, values: pa.Array) -> pa.Array:
        if not isinstance(self.type, DecimalType):
            return pc.greater(transformed, values)
        # Arrow compares decimals only with those that have the digits of their type, and these may have more.
        bits = 8 * decimal_required_bytes(self.type.precision)
        smallest = unscaled_to_decimal(-(1 << (bits - 1)), self.type.scale)
        lowest = pc.min(transformed)
        return pc.and_(pc.equal(transformed, lowest), lowest.is_valid and lowest.as_py() < smallest)

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the transformed values of these rows."""
        values = rows.column(self._index)
        if self._microseconds is not None:
            values = pc.floor_temporal(values, unit="microsecond").cast(self._microseconds)
        return self._transform(_align(values) if self._needs_alignment else values)


def _align(values: pa.Array) -> pa.Array:
    """Return a copy of decimals in memory of their own.

    PyIceberg's transforms are written in Rust, which demands that decimals begin at multiples of 16 bytes. Rows of a
    row group or a sorted run begin at multiples of 8 only.
    """
    return pa.concat_arrays([values, pa.nulls(0, values.type)])


def find_transformed(columns: Sequence[Column], source_id: int, transform: str) -> TransformedColumn | None:
    """Return the transformed column; None if all of its values are null.

    They are null with the transform `void`, and if the binding does not write the column.
    """
    if isinstance(parse_transform(transform), VoidTransform):
        return None
    return next(
        (TransformedColumn(index, each, transform) for index, each in enumerate(columns) if each.id == source_id), None
    )


def comparable(values: pa.Array) -> pa.Array:
    """Return values of a type that Arrow compares as Iceberg does.

    Iceberg orders doubles as Java does: -0.0 before 0.0, and NaN after everything. The integers that stand for doubles
    have this order. The integer of a null is that of 0.0. UUIDs have the order of their bytes.
    """
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    if not pa.types.is_floating(values.type):
        return values
    doubles = values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    bits = np.where(np.isnan(doubles), _NAN, doubles.view(np.int64))
    return pa.array(bits ^ ((bits >> _SIGN) & _ALL_BUT_SIGN), pa.int64())
