"""What scenarios share: servers, each started when it is wanted first, and other engines."""

import duckdb
import pytest

from crash.engines import Engines, EnginesWithSpark
from crash.lakes import Servers
from support.engines.spark_sql import SparkSql
from support.servers.s3_server import S3Server


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
def engines(duckdb_reader: duckdb.DuckDBPyConnection) -> Engines:
    return Engines(duckdb_reader)


@pytest.fixture(scope="session")
def engines_with_spark(
    duckdb_reader: duckdb.DuckDBPyConnection, spark_reader: SparkSql, tmp_path_factory: pytest.TempPathFactory
) -> Engines:
    """The same for all scenarios."""
    return EnginesWithSpark(duckdb_reader, spark_reader, tmp_path_factory.mktemp("engines"))
