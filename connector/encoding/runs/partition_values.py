"""The partitions of rows: the values of a partition spec's fields, in the form in which manifests have them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.types import PrimitiveType

from connector.encoding.values.arrays import Indices
from connector.encoding.values.pyiceberg_patches import apply_patches
from connector.encoding.values.transformed_columns import comparable, find_transformed
from connector.model.binding import Column, PartitionField

# The value of each field of the spec, in its order, in Iceberg's single-value serialization.
PartitionKey: TypeAlias = tuple[bytes | None, ...]

apply_patches()


@dataclass(frozen=True)
class Partitions:
    """Which row is in which partition."""

    indices: Indices  # for each row, the index of its partition in `values`
    values: tuple[PartitionKey, ...]


class PartitionValues:
    """Finds the partitions of a binding's rows."""

    def __init__(self, columns: Sequence[Column], fields: Sequence[PartitionField]) -> None:
        """`columns` are those of the rows, in their order."""
        self._fields = [find_transformed(columns, field.source_id, field.transform) for field in fields]

    def of(self, batches: Sequence[pa.RecordBatch]) -> Partitions:
        """Return the partitions of these rows. Raises UserError if a value cannot be in a partition."""
        transformed = [
            (field.type, pa.concat_arrays([field.of_partitions(batch) for batch in batches])) if field else None
            for field in self._fields
        ]
        indices = np.zeros(sum(batch.num_rows for batch in batches), np.int64)
        for _, values in filter(None, transformed):
            distinct, codes = _encode(values)
            # Renumbered after each field, or the product of many fields would leave 64 bits.
            _, indices = np.unique(indices * distinct + codes, return_inverse=True)
        _, first_rows, indices = np.unique(indices, return_index=True, return_inverse=True)
        field_values = [
            _serialize(field[0], field[1].take(pa.array(first_rows))) if field else [None] * len(first_rows)
            for field in transformed
        ]
        partitions = tuple(zip(*field_values, strict=True)) if field_values else ((),) * len(first_rows)
        return Partitions(indices.astype(np.int64), partitions)


def _encode(values: pa.Array) -> tuple[int, Indices]:
    """Return the number of distinct values, and for each value the number that stands for it."""
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    encoded = comparable(values).dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy().astype(np.int64) * 2 + nulls  # null and 0.0 are the same to `comparable`
    return 2 * len(encoded.dictionary), codes


def _serialize(type_: PrimitiveType, values: pa.Array) -> list[bytes | None]:
    # All kinds of NaN are one partition, which must have one key: the first row of a batch may have any of them.
    plain = (math.nan if _is_nan(value) else value for value in _numbers(values).to_pylist())
    return [None if value is None else to_bytes(type_, value) for value in plain]


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _numbers(values: pa.Array) -> pa.Array:
    """Return dates and timestamps as the numbers that Iceberg stores: Python has no year 0 or 10000."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
