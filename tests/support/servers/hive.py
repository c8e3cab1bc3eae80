"""Hive's own metastore in a JVM of its own on a free loopback port."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyspark
import pytest

from connector.spark.jvm.java import find_java
from support.jars import jars
from support.servers.s3_server import S3Server
from support.servers.server_process import free_address, running

IN_ONE_WORKER: Final = pytest.mark.xdist_group("hive")  # one server is enough for all tests
# It makes all tables of its own database but these, which it leaves to Hive's schema tool. The jars do not have it.
LOCK_TABLES: Final = Path(__file__).with_name("hive_locks.sql")
JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dderby.system.durability=test")
# Seconds: Hive tries again at once, but Derby notices a deadlock of two calls only after 20, and gives up after 60.
DEADLOCKS: Final = ("-Dderby.locks.deadlockTimeout=1", "-Dderby.locks.waitTimeout=5")


class HiveVersion(StrEnum):
    """2.3.10 is the one of PySpark's jars, which Spark and PyIceberg can read tables of."""

    TWO = "2.3.10"
    FOUR = "4.0.1"

    def jars(self) -> Path:
        return Path(pyspark.__file__).parent / "jars" if self is HiveVersion.TWO else jars("hive-4")


@dataclass(frozen=True)
class Metastore:
    """A running server, and the directory that it keeps databases in."""

    uri: str
    warehouse: Path


@contextmanager
def hive_metastore(
    directory: Path, s3: S3Server | None = None, version: HiveVersion = HiveVersion.TWO
) -> Iterator[Metastore]:
    """With an S3 server, it makes tables' directories there too."""
    warehouse, database = directory / "warehouse", directory / "database"
    warehouse.mkdir(parents=True)
    _make_lock_tables(version, directory, database)
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{database}",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "NONE",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{warehouse}",
        "hive.async.log.enabled": "false",  # for which there is no jar
        **(_access_to(s3) if s3 else {}),
    }
    classes = [str(directory), f"{version.jars()}/*", *([f"{jars('hive-on-s3')}/*"] if s3 else [])]
    properties = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (directory / "hive-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    address = free_address()
    server = ("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", address.rpartition(":")[2])
    options = (*JAVA_OPTIONS, *DEADLOCKS, f"-Dderby.stream.error.file={directory}/derby.log")
    command = [str(find_java()), *options, "-cp", ":".join(classes), *server]
    with running(command, {}, f"thrift://{address}", directory / "server.log"):
        yield Metastore(f"thrift://{address}", warehouse)


def _access_to(s3: S3Server) -> Mapping[str, str]:
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3.root.access_key_id,
        "fs.s3a.secret.key": s3.root.secret_access_key,
    }


def _make_lock_tables(version: HiveVersion, directory: Path, database: Path) -> None:
    script = directory / "locks.sql"
    script.write_text(f"CONNECT 'jdbc:derby:{database};create=true';\n{LOCK_TABLES.read_text()}")
    command = [str(find_java()), *JAVA_OPTIONS, "-cp", f"{version.jars()}/*", "org.apache.derby.tools.ij", str(script)]
    with (directory / "locks.log").open("wb") as log:
        subprocess.run(command, cwd=directory, stdout=log, stderr=log, check=True)
    assert "ERROR" not in (directory / "locks.log").read_text()
