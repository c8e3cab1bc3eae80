"""The commands that `demo` prints open its table, as they are printed."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from support.engines.spark_sql import IN_ITS_WORKER, SparkSql
from support.repository import REPOSITORY

pytestmark = [pytest.mark.spark, IN_ITS_WORKER]  # which share a demo

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(REPOSITORY),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
ORDERS = [1, 2, 3, 4]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The commands by engine, of a demo in a directory whose name a shell would split."""
    directory = tmp_path_factory.mktemp("the demo's")
    command = [sys.executable, "-m", "connector", "demo", "--into", str(directory / "a warehouse")]
    outcome = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    printed = outcome.stdout.partition("Open demo.orders yourself:\n")[2]
    return dict(re.findall(r"^  (PyIceberg|DuckDB|Spark).*:\n((?:    .*\n?)+)", printed, re.MULTILINE))


def test_pyiceberg_opens_the_table(commands: Mapping[str, str]) -> None:
    outcome = subprocess.run(
        ["bash", "-c", commands["PyIceberg"]], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert len(re.findall("'order_id': ([1-4])", outcome.stdout)) == len(ORDERS)


def test_duckdb_opens_the_table(commands: Mapping[str, str], duckdb_reader: duckdb.DuckDBPyConnection) -> None:
    program, option, queries = shlex.split(commands["DuckDB"])
    assert (program, option) == ("duckdb", "-c")
    install, query = queries.split("; SELECT", 1)
    assert install == "INSTALL iceberg; LOAD iceberg", "which it has from PyPI here"
    found = duckdb_reader.sql(f"SELECT{query.rstrip(';')}")
    assert sorted(found.project("order_id").fetchall()) == [(each,) for each in ORDERS]


def test_spark_opens_the_table(commands: Mapping[str, str], spark_reader: SparkSql) -> None:
    words = shlex.split(commands["Spark"])
    settings = dict(words[n + 1].split("=", 1) for n, word in enumerate(words) if word == "--conf")
    spark = spark_reader.new_session()
    spark.change_settings(settings)
    [rows] = spark.rows(words[words.index("-e") + 1])
    assert sorted(row["order_id"] for row in rows) == ORDERS
