"""Partitions: reads those of staged files, tells those of listed files apart, and corrects the bounds of manifests."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.manifest import PARTITION_FIELD_SUMMARY_TYPE, PartitionFieldSummary
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType, StructType, UUIDType

from connector.host.errors import BACKFILL, UnfitCommitError
from connector.model.state import DataFile
from connector.model.table_identifier import TableIdentifier

_REMEDY: Final = (
    "The staged rows stay in the task's state. Give them up with `materialize-iceberg fence reset --staged "
    f"skip`, or {BACKFILL}."
)

_SUMMARY: Final = [each.name for each in PARTITION_FIELD_SUMMARY_TYPE.fields]
_LOWER: Final = _SUMMARY.index("lower_bound")
_UPPER: Final = _SUMMARY.index("upper_bound")
# -0.0 and 0.0 as bounds, by the type of a partition field.
_ZEROS: Final[Mapping[IcebergType, tuple[bytes, bytes]]] = {
    each: (to_bytes(each, -0.0), to_bytes(each, 0.0)) for each in (FloatType(), DoubleType())
}


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: the spec, and the values of its fields in the form of manifests.

    Partitions are compared by their texts. Values do not serve: NaN is not equal to itself, and -0.0 is equal to 0.0.
    """

    spec_id: int
    text: str
    record: Record = field(compare=False, repr=False)

    @classmethod
    def of(cls, spec_id: int, record: Record) -> "Partition":
        """Return the partition with these values. `record` is not changed afterwards."""
        values = [record[index] for index in range(len(record))]
        return cls(spec_id, repr(values), record) if values else _unpartitioned(spec_id)


@lru_cache
def _unpartitioned(spec_id: int) -> Partition:
    return Partition(spec_id, "", Record())


class PartitionReader:
    """Reads the partitions of staged files of one spec. Raises UnfitCommitError if the table does not have the spec."""

    def __init__(self, table: Table, spec_id: int) -> None:
        self._name = TableIdentifier.of(table)
        self._spec_id = spec_id
        spec = table.specs().get(spec_id)
        if spec is None:
            raise UnfitCommitError(
                f"table {self._name}: rows were staged for partition spec {spec_id}, which another engine has removed "
                f"from the table since. So they were not added. {_REMEDY}"
            )
        types = spec.partition_type(find_source_schema(table, spec, table.schema())).fields
        self._types: Sequence[PrimitiveType] = [each.field_type for each in types]  # type: ignore[misc]
        self._is_void = all(isinstance(each.transform, VoidTransform) for each in spec.fields)

    def read(self, file: DataFile) -> Partition:
        """Return the partition of a staged file. Raises UnfitCommitError if its values do not fit the spec."""
        if not file.partition and self._is_void:
            return Partition.of(self._spec_id, Record(*(None for _ in self._types)))
        if len(file.partition) != len(self._types):
            raise self._explain(file, f"it has {len(file.partition)} values instead of {len(self._types)}")
        try:
            values = [_decode(*each) for each in zip(self._types, file.partition, strict=True)]
        except (struct.error, ValueError) as error:
            raise self._explain(file, str(error)) from error
        return Partition.of(self._spec_id, Record(*values))

    def _explain(self, file: DataFile, reason: str) -> UnfitCommitError:
        return UnfitCommitError(
            f"table {self._name}: the partition of the staged file {file.path} does not fit the table's partition spec "
            f"{self._spec_id}: {reason}. Its {file.rows} rows cannot be added. {_REMEDY}"
        )


def _decode(type_: PrimitiveType, content: bytes | None) -> Any:
    """Return a value as manifests have it. It is also the one that PyIceberg reads from a manifest."""
    if content is None:
        return None
    return UUID(bytes=content) if isinstance(type_, UUIDType) else from_bytes(type_, content)


def find_spec(specs: Mapping[int, PartitionSpec], spec_id: int) -> PartitionSpec:
    """Return a spec that the table's manifests name. Raises InvalidMetadataError if the table does not have it."""
    try:
        return specs[spec_id]
    except KeyError:
        raise InvalidMetadataError(f"a manifest names partition spec {spec_id}, which the table lacks") from None


def read_identity_values(spec: PartitionSpec, partition: Partition) -> dict[int, Any]:
    """Return the values of the columns that are fields of a partition themselves, by field id.

    All rows of the partition have them. Other engines may leave such a column out of their data files.
    """
    return {
        field.source_id: partition.record[index]
        for index, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }


class MissingValues:
    """Tells which values rows have in the columns that their data files lack: of the partition, or else the default."""

    def __init__(self, table: Table) -> None:
        self._specs = table.specs()
        self._defaults = {
            column.field_id: column.initial_default
            for column in table.schema().fields
            if isinstance(column.field_type, PrimitiveType) and column.initial_default is not None
        }

    def find(self, partition: Partition) -> tuple[tuple[int, Any], ...]:
        """Return the values for files of a partition, by field id. All other columns are null there."""
        identity = read_identity_values(find_spec(self._specs, partition.spec_id), partition)
        return tuple({**self._defaults, **identity}.items())


def find_source_schema(table: Table, spec: PartitionSpec, schema: Schema) -> Schema:
    """Return the schema if it has all source columns of a spec, or else the newest one of the table that has them.

    Without the source column, the type of a partition field is unknown, and manifests would lose its values.
    """
    sources = {each.source_id for each in spec.fields}
    schemas = [schema, *sorted(table.metadata.schemas, key=lambda each: each.schema_id, reverse=True)]
    return next((each for each in schemas if sources.issubset(each.field_ids)), schema)


def name_in_avro(name: str) -> str:
    """Replace the characters of a partition field's name that are not ASCII, as Iceberg replaces signs like `-`.

    PyIceberg would keep letters like `é`, which Avro does not allow. A process that reads such a manifest with DuckDB
    ends. Readers find the fields by their ids.
    """
    return "".join(each if each.isascii() else f"_x{ord(each):X}" for each in name)


def correct_summaries(
    summaries: list[PartitionFieldSummary], partition_type: StructType
) -> list[PartitionFieldSummary] | None:
    """Return a manifest's summaries with bounds by which no reader skips a row, or None if there are no such bounds.

    Iceberg orders -0.0 before 0.0. To PyIceberg they are equal, so that the first one in a manifest counts. So each
    bound that is a zero becomes the one that includes both.

    PyIceberg orders UUIDs by their bytes, and Iceberg for Java by two signed numbers. No bounds serve both, and a
    summary without bounds says that all values are null.
    """
    for partition_field, summary in zip(partition_type.fields, summaries, strict=True):
        if isinstance(partition_field.field_type, UUIDType):
            return None
        if partition_field.field_type in _ZEROS:
            negative, positive = _ZEROS[partition_field.field_type]
            if summary.lower_bound == positive:
                summary[_LOWER] = negative
            if summary.upper_bound == negative:
                summary[_UPPER] = positive
    return summaries
