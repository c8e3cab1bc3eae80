"""Spark with Iceberg's own runtime in a process of its own, asked in SQL."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Final, Self

import pytest

from connector.spark.jvm.java import find_java
from support.engines import spark_catalogs
from support.engines.readers import Row
from support.repository import TESTS
from support.servers.s3_server import S3Server

IN_ITS_WORKER: Final = pytest.mark.xdist_group("spark_reader")  # one JVM is enough for all tests
QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SERVER: Final = TESTS / "readers" / "spark_sql_server.py"
QUOTED_CHARACTERS: Final = 3000
NAMESPACE: Final = "registered"


class UnreadableError(AssertionError):
    """Spark cannot answer what it was asked."""


class SparkSql:
    """A process that starts while its first question is still to come; what follows costs no JVM."""

    def __init__(self, jars: Path, settings: Mapping[str, str], log: Path) -> None:
        everything = {"spark.jars": ",".join(map(str, jars.glob("*.jar"))), **settings}
        home = str(find_java().resolve().parents[1])
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), json.dumps(everything)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "JAVA_HOME": home, "JDK_JAVA_OPTIONS": QUICK_START},
            )
        self._log = log
        self._session = ""

    def new_session(self) -> Self:
        """The same process without the catalogs that were added so far: Spark keeps the first one of each name."""
        other = copy(self)
        other._session = uuid.uuid4().hex
        return other

    @property
    def pid(self) -> int:
        """The process that has the JVM as its child."""
        return self._process.pid

    def rows(self, *queries: str) -> list[list[Row]]:
        """What each query answers, rows as `as_json` has them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([self._session, queries]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()[-QUOTED_CHARACTERS:]
        found = json.loads(answer)
        if isinstance(found, dict):
            raise UnreadableError(found["error"][:QUOTED_CHARACTERS])
        return [[json.loads(row) for row in rows] for rows in found]

    def add_catalog(self, name: str, properties: Mapping[str, str]) -> None:
        """Its tables are `<name>.<namespace>.<table>` from now on."""
        self.change_settings(spark_catalogs.settings(name, properties))

    def change_settings(self, settings: Mapping[str, str]) -> None:
        """Those of this session."""
        self.rows(*(f"SET `{key}`=`{value}`" for key, value in settings.items()))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def spark_sql(jars: Path, settings: Mapping[str, str], directory: Path) -> Iterator[SparkSql]:
    """Runs it while the context lasts, with a log in this directory."""
    spark = SparkSql(jars, settings, directory / "spark-sql.log")
    try:
        yield spark
    finally:
        spark.kill()


def spark_rows(spark: SparkSql, warehouse: Path, *queries: str) -> list[list[Row]]:
    """What Spark answers where the tables of a warehouse are `local.<namespace>.<table>`."""
    session = spark.new_session()
    session.add_catalog("local", spark_catalogs.sqlite(warehouse, "catalog.db"))
    return session.rows(*queries)


class MetadataFiles:
    """Tables that Spark knows by their metadata files alone, whatever catalog they are in: in a scratch catalog of this
    name and directory. Their files are on a disk, or on an S3 server."""

    def __init__(self, spark: SparkSql, name: str, directory: Path, s3: S3Server | None) -> None:
        self.spark = spark
        self._name = name
        scratch = spark_catalogs.sqlite(directory, f"{name}.db")
        spark.add_catalog(name, scratch | spark_catalogs.on_s3(s3) if s3 else scratch)
        spark.rows(f"CREATE NAMESPACE {name}.{NAMESPACE}")

    @contextmanager
    def table(self, metadata_location: str) -> Iterator[str]:
        """The name of the table that this metadata file is of."""
        name = f"{NAMESPACE}.t{uuid.uuid4().hex}"
        register = f"CALL {self._name}.system.register_table(table => '{name}', metadata_file => '{metadata_location}')"
        self.spark.rows(register)
        yield f"{self._name}.{name}"
        self.spark.rows(f"DROP TABLE {self._name}.{name}")
