"""Rows as other engines read them, every value as the text that `support.rows.expected_rows` has for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from support.engines.readers import polars_table
from support.engines.spark_sql import SparkSql, spark_rows
from support.rows.expected_rows import Row

# How each engine writes a column's values as text: binary as hexadecimal digits, instants as microseconds since 1970.
DUCKDB_TEXT: Final[Mapping[str, str]] = {"binary": "lower(hex({}))", "timestamptz": "epoch_us({})::VARCHAR"}
SPARK_TEXT: Final[Mapping[str, str]] = {"binary": "lower(hex({}))", "timestamptz": "string(unix_micros({}))"}


def read_by_duckdb(connection: duckdb.DuckDBPyConnection, table: Table) -> list[Row]:
    types = column_types(table)
    texts = [DUCKDB_TEXT.get(type_, "{}::VARCHAR").format(in_duckdb(name)) for name, type_ in types.items()]
    query = f"SELECT {', '.join(texts)} FROM iceberg_scan($1)"
    return [_row(types, values) for values in connection.execute(query, [table.metadata_location]).fetchall()]


def count_in_duckdb(connection: duckdb.DuckDBPyConnection, table: Table, condition: str, value: Any) -> int:
    """How many rows meet a condition on $2."""
    query = f"SELECT count(*) FROM iceberg_scan($1) WHERE {condition}"
    ((count,),) = connection.execute(query, [table.metadata_location, value]).fetchall()
    return int(count)


def read_by_spark(spark: SparkSql, warehouse: Path, tables: list[Table]) -> list[list[Row]]:
    answers = spark_rows(spark, warehouse, *map(_spark_query, tables))
    return [
        [_row(column_types(table), row.values()) for row in rows] for table, rows in zip(tables, answers, strict=True)
    ]


def read_by_pyiceberg(table: Table) -> list[Row]:
    return canonical_rows(table, table.scan().to_arrow())


def read_by_polars(table: Table) -> list[Row]:
    return canonical_rows(table, polars_table(table.metadata_location, {}))


def canonical_rows(table: Table, scanned: pa.Table) -> list[Row]:
    """A table's rows, from the Arrow table that an engine has made of them."""
    types = column_types(table)
    columns = [_arrow_texts(scanned[name], type_) for name, type_ in types.items()]
    return [_row(types, values) for values in zip(*columns, strict=True)]


def column_types(table: Table) -> dict[str, str]:
    return {column.name: str(column.field_type) for column in table.schema().fields}


def in_duckdb(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def in_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _spark_query(table: Table) -> str:
    # Numbered: JSON would keep only one of two columns that have the same name in Spark's eyes.
    texts = [
        f"{SPARK_TEXT.get(type_, 'string({})').format(in_spark(name))} AS c{number}"
        for number, (name, type_) in enumerate(column_types(table).items())
    ]
    return f"SELECT {', '.join(texts)} FROM local.{'.'.join(map(in_spark, table.name()))}"


def _arrow_texts(column: pa.ChunkedArray, type_: str) -> list[str | None]:
    if type_.startswith("decimal"):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    match type_:
        case "binary":
            return [None if value is None else value.hex() for value in column.to_pylist()]
        case "timestamptz":
            column = column.cast(pa.int64())
    texts: list[str | None] = pc.cast(column, pa.string()).to_pylist()
    return texts


def _row(types: Mapping[str, str], values: Any) -> Row:
    return tuple(
        repr(float(text)) if type_ == "double" and text is not None else text
        for type_, text in zip(types.values(), values, strict=True)
    )
