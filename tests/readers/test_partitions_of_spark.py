"""Spark's own writer puts rows into the partitions that the connector finds for them, and finds them there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from connector.encoding.runs.partition_values import PartitionKey, PartitionValues
from connector.encoding.values.column_types import arrow_type_of
from connector.iceberg.maintenance.rewrite_manifests import rewrite_manifests
from connector.model import binding
from connector.model.binding import Column
from connector.model.table_identifier import TableIdentifier
from support.engines.readers import readers_catalog
from support.engines.spark_sql import SparkSql, spark_rows

pytestmark = pytest.mark.spark

TYPES: Final[dict[str, PrimitiveType]] = {
    "l": LongType(),
    "i": IntegerType(),
    "s": StringType(),
    "b": BinaryType(),
    "n": DecimalType(9, 2),
    "x": DoubleType(),
    "t": BooleanType(),
    "d": DateType(),
    "ts": TimestamptzType(),
}
ROWS: Final = (
    "-1, -1, 'é😀x', X'FFFE00', -0.05, -0.0D, true, DATE '1969-12-31', TIMESTAMP '1969-12-31T23:59:59.999999Z'",
    "0, 0, '', X'', 0.00, 0.0D, false, DATE '1970-01-01', TIMESTAMP '1970-01-01T00:00:00Z'",
    "0, 0, '', X'', 0.00, -0.0D, false, DATE '1970-01-01', TIMESTAMP '1970-01-01T00:00:00Z'",
    "9223372036854775807, 2147483647, '😀😀😀😀', X'00', 9999999.99, double('NaN'), true, DATE '9999-12-31', "
    "TIMESTAMP '9999-12-31T23:59:59.999999Z'",
    "-9223372036854775808, -2147483646, 'iceberg', X'00010203', -123.45, double('-Infinity'), false, "
    "DATE '0001-01-01', TIMESTAMP '0001-01-01T00:00:00Z'",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
)
EACH: Final = {
    "identity": tuple(TYPES),
    "bucket[7]": ("l", "i", "s", "b", "n", "d", "ts"),
    "truncate[3]": ("i", "s", "b", "n"),
    "year": ("d", "ts"),
    "month": ("d", "ts"),
    "day": ("d", "ts"),
    "hour": ("ts",),
}
UUIDS: Final = [UUID(int=number) for number in (7, 2**127 - 1, 2**127, 2**128 - 1)]  # in the order of their bytes
IDS: Final = {name: number for number, name in enumerate(TYPES, start=1)}
COLUMNS: Final = [Column(name, name, IDS[name], type_, False) for name, type_ in TYPES.items()]


def test_spark_and_the_connector_agree_on_the_partition_of_each_row(tmp_path: Path, spark_reader: SparkSql) -> None:
    catalog = readers_catalog(tmp_path)
    catalog.create_namespace("shop")
    schema = Schema(*(NestedField(IDS[name], name, type_, required=False) for name, type_ in TYPES.items()))
    tables = {transform: f"t{number}" for number, transform in enumerate(EACH)}
    for transform, name in tables.items():
        catalog.create_table(("shop", name), schema, partition_spec=spec_of(transform))
    values = ", ".join(f"({row})" for row in ROWS)
    spark_rows(spark_reader, tmp_path, *(f"INSERT INTO local.shop.{name} VALUES {values}" for name in tables.values()))

    for transform, name in tables.items():
        by_spark, by_connector = partitions(catalog.load_table(("shop", name)), transform)
        assert by_spark == by_connector, transform
        assert len(by_spark) == len(ROWS)


def test_rows_of_partitions_by_uuids_are_found_after_their_manifests_were_rewritten(
    tmp_path: Path, spark_reader: SparkSql, duckdb_reader: duckdb.DuckDBPyConnection
) -> None:
    catalog, path = readers_catalog(tmp_path), TableIdentifier("shop", "orders")
    catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", UUIDType()))
    catalog.create_table(
        path, schema, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    )
    name = "local.shop.orders"
    spark_rows(
        spark_reader, tmp_path, *(f"INSERT INTO {name} VALUES ({id_}, '{uuid}')" for id_, uuid in enumerate(UUIDS))
    )
    assert len(rewrite_manifests(catalog, path, None).replaced) == len(UUIDS)

    conditions = [f"SELECT id FROM {{}} WHERE part = '{uuid}'" for uuid in UUIDS]
    queries = [f"REFRESH TABLE {name}", *(each.format(name) for each in conditions)]
    assert spark_rows(spark_reader, tmp_path, *queries)[1:] == [[{"id": id_}] for id_ in range(len(UUIDS))]
    table = f"iceberg_scan('{catalog.load_table(path).metadata_location}')"
    found = [duckdb_reader.sql(each.format(table)).fetchall() for each in conditions]
    assert found == [[(id_,)] for id_ in range(len(UUIDS))]


def spec_of(transform: str) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(IDS[column], 1000 + number, parse_transform(transform), f"{column}_part")
            for number, column in enumerate(EACH[transform])
        )
    )


def partitions(table: Table, transform: str) -> tuple[list[PartitionKey], list[PartitionKey]]:
    """Return the partition of each row, as Spark has written it and as the connector finds it."""
    of_fields = [binding.PartitionField(IDS[column], transform) for column in EACH[transform]]
    by_spark: list[PartitionKey] = []
    batches = []
    for file in (task.file for task in table.scan().plan_files()):
        rows = pq.read_table(file.file_path.removeprefix("file:")).combine_chunks().to_batches()[0]
        arrays = [rows.column(name).cast(arrow_type_of(type_)) for name, type_ in TYPES.items()]
        batches.append(pa.RecordBatch.from_arrays(arrays, list(TYPES)))
        by_spark += [serialize(transform, [file.partition[place] for place in range(len(of_fields))])] * rows.num_rows
    found = PartitionValues(COLUMNS, of_fields).of(batches)
    return by_spark, [found.values[index] for index in found.indices]


def serialize(transform: str, values: Sequence[object]) -> PartitionKey:
    types = [parse_transform(transform).result_type(TYPES[column]) for column in EACH[transform]]
    return tuple(
        None if value is None else to_bytes(type_, value)  # type: ignore[arg-type]  # a value of the field's type
        for type_, value in zip(types, values, strict=True)
    )
