"""Partitions of the simulated tables: other engines change the spec, and every writer draws a row's partition from its
name. So versions of a key are of different partitions."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType

KEY_COLUMN: Final = 1
COUNT: Final = 3  # and the partition of null
# A table's specs, by their ids: it begins with the first one.
SPECS: Final[Sequence[PartitionSpec]] = (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionSpec(PartitionField(KEY_COLUMN, PARTITION_FIELD_ID_START, BucketTransform(COUNT), "few"), spec_id=1),
    PartitionSpec(
        PartitionField(KEY_COLUMN, PARTITION_FIELD_ID_START + 1, BucketTransform(2 * COUNT), "more"), spec_id=2
    ),
)


def partition_of(row: str) -> int | None:
    """The one value of a row's partition."""
    value = crc32(row.encode()) % (COUNT + 1)
    return None if value == COUNT else value


def encoded(spec_id: int, value: int | None) -> tuple[bytes | None, ...]:
    """A partition as data files have it."""
    if not SPECS[spec_id].fields:
        return ()
    return (None if value is None else to_bytes(IntegerType(), value),)


def record_of(spec_id: int, value: int | None) -> Record:
    """A partition as manifests have it."""
    return Record(value) if SPECS[spec_id].fields else Record()
