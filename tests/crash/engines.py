"""Tables as engines see them that are not ours."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import duckdb
from pyiceberg.table import Table

from crash.ledger import Entry, PromiseBrokenError, columns_of, entry_of, visible
from crash.metadata import live_entries
from support.engines.readers import duckdb_rows, let_duckdb_read
from support.engines.spark_sql import MetadataFiles, SparkSql, UnreadableError
from support.servers.s3_server import S3Server

Read: TypeAlias = Callable[[Table], Counter[Entry]]

ON_DISK: Final = "disk"
IN_BUCKET: Final = "bucket"


class Engines:
    """PyIceberg and DuckDB, which finds a table by its metadata file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._duckdb = connection

    def for_tables(self, s3: S3Server | None) -> Mapping[str, Read]:
        """How each engine reads, tables in a bucket of this server or on this disk."""
        if s3:
            let_duckdb_read(self._duckdb, s3)
        return {"PyIceberg": visible, "DuckDB": self._read_by_duckdb}

    def _read_by_duckdb(self, table: Table) -> Counter[Entry]:
        try:
            return Counter(map(entry_of, duckdb_rows(self._duckdb, table.metadata_location, "ALL")))
        except duckdb.Error as error:
            raise PromiseBrokenError(f"{table.name()[-1]}: unreadable for DuckDB: {error}") from error


class EnginesWithSpark(Engines):
    """Also Spark with Iceberg's own runtime, by the same file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, spark: SparkSql, directory: Path) -> None:
        super().__init__(connection)
        self._spark, self._directory = spark, directory
        self._files: dict[str, MetadataFiles] = {}

    def for_tables(self, s3: S3Server | None) -> Mapping[str, Read]:
        """How each engine reads, tables in a bucket of this server or on this disk."""
        place = IN_BUCKET if s3 else ON_DISK
        if place not in self._files:
            self._files[place] = MetadataFiles(self._spark, place, self._directory, s3)
        files = self._files[place]
        return {**super().for_tables(s3), "Spark": lambda table: _read_by_spark(files, table)}


def _read_by_spark(files: MetadataFiles, table: Table) -> Counter[Entry]:
    name = table.name()[-1]
    try:
        with files.table(table.metadata_location) as known_as:
            rows, [counted], files_of_java = files.spark.rows(
                f"SELECT {', '.join(columns_of(name))} FROM {known_as}",
                f"SELECT count(*) AS rows FROM {known_as}",  # which is answered by the metadata
                f"SELECT data_file.file_path, sequence_number FROM {known_as}.entries WHERE status < 2",
            )
    except UnreadableError as error:
        raise PromiseBrokenError(f"{name}: unreadable for Spark: {error}") from error
    files_of_python = {entry.data_file.file_path: entry.sequence_number for entry in live_entries(table)}
    if files_of_python != {file["file_path"]: file["sequence_number"] for file in files_of_java}:
        raise PromiseBrokenError(f"{name}: Spark sees other files, or other sequence numbers: {files_of_java}")
    if counted["rows"] != len(rows):
        raise PromiseBrokenError(f"{name}: the metadata count {counted['rows']} rows, Spark reads {len(rows)}")
    return Counter(map(entry_of, rows))
