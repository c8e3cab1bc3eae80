"""What scenarios share: servers, each started when it is wanted first, and other engines."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from crash.engines import Engines
from crash.lakes import Servers
from support.s3_server import S3Server
from support.spark_sql import spark_sql


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Servers:
    return Servers(
        s3=lambda: request.getfixturevalue("s3_server"),
        bucket=lambda: request.getfixturevalue("bucket"),
        rest_uri=lambda: request.getfixturevalue("rest_on_s3").uri,
        glue_uri=lambda: request.getfixturevalue("glue_uri"),
        hive_uri=lambda: request.getfixturevalue("metastore").uri,
    )


@pytest.fixture(scope="session")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture(scope="session")
def engines(
    duckdb_reader: duckdb.DuckDBPyConnection, spark_reader_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    """One Spark for all scenarios; it starts while the first of them is under way."""
    directory = tmp_path_factory.mktemp("spark-sql")
    with spark_sql(spark_reader_jars, {}, directory) as spark:
        yield Engines(duckdb_reader, spark, directory)
