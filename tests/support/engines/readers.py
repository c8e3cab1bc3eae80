"""Engines that are not ours, reading the tables that the connector wrote."""

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import duckdb
import duckdb_extensions
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import GCS_TOKEN
from pyiceberg.table import Table

from support.servers.google import GoogleStore
from support.servers.s3_server import S3Server

Row: TypeAlias = dict[str, Any]


def readers_catalog(warehouse: Path) -> Catalog:
    """The embedded catalog, opened by PyIceberg as docs/reading.md says."""
    return SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))


def ledger_table(directory: Path) -> Table:
    """The table of LEDGER, in a runtime's directory."""
    return readers_catalog(directory / "warehouse").load_table("shop.ledger")


def ledger_ids(directory: Path) -> list[int]:
    """The ids of all its rows, in their order."""
    return sorted(ledger_table(directory).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def unreferenced_files(directory: Path, *tables: str) -> list[str]:
    """The Parquet files in a runtime's directory that none of these tables refers to."""
    warehouse = directory / "warehouse"
    loaded = [readers_catalog(warehouse).load_table(f"shop.{table}") for table in tables]
    paths = {path for table in loaded for path in table.inspect.all_files()["file_path"].to_pylist()}
    return sorted(file.name for file in warehouse.rglob("*.parquet") if f"file://{file}" not in paths)


@contextmanager
def duckdb_connection(extensions: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Iceberg extension, installed from PyPI into this directory."""
    settings: dict[str, Any] = {"allow_unsigned_extensions": True, "extension_directory": str(extensions)}
    with duckdb.connect(config=settings) as connection:
        for extension in ("avro", "httpfs", "iceberg"):
            duckdb_extensions.import_extension(extension, con=connection)
            connection.load_extension(extension)
        yield connection


def let_duckdb_read(connection: duckdb.DuckDBPyConnection, s3: S3Server) -> None:
    """Give it the keys of an S3 server."""
    connection.execute(
        f"CREATE OR REPLACE SECRET (TYPE s3, KEY_ID '{s3.root.access_key_id}', SECRET '{s3.root.secret_access_key}', "
        f"REGION '{s3.region}', ENDPOINT '{s3.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
    )


def let_duckdb_read_from_google(connection: duckdb.DuckDBPyConnection, google: GoogleStore) -> None:
    """Give it a token."""
    connection.execute(
        f"CREATE OR REPLACE SECRET (TYPE gcs, BEARER_TOKEN '{google.file_properties()[GCS_TOKEN]}', "
        f"ENDPOINT '{google.uri.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
    )


def duckdb_rows(connection: duckdb.DuckDBPyConnection, metadata_location: str, order_by: str) -> list[Row]:
    """A table's rows, from its metadata file alone."""
    rows = connection.sql(f"SELECT * FROM iceberg_scan($1) ORDER BY {order_by}", params=[metadata_location])
    # By way of Arrow: DuckDB's own Python values need a package for time zones.
    return cast(list[Row], rows.to_arrow_table().to_pylist())


def polars_table(
    metadata_location: str, properties: Mapping[str, str], reader: Literal["native"] | None = "native"
) -> pa.Table:
    """The same by polars, with its own reader of Parquet or with the one that it chooses. It leaves delete files that
    cover several data files to PyIceberg. `properties` open the files."""
    # Set before it is imported, which takes a second: it would recommend a package for its plans.
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    import polars

    scan = polars.scan_iceberg(metadata_location, storage_options=dict(properties), reader_override=reader)
    return scan.collect().to_arrow(compat_level=polars.CompatLevel.oldest())


def as_json(row: Row) -> Row:
    """A row of another reader, as Spark writes it in JSON."""
    return {name: _as_json(value) for name, value in row.items()}


def _as_json(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value
