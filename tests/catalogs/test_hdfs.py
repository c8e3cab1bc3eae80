"""Tables in a real HDFS, by its native client: in the driver and in Spark's workers, each with a JVM of its own for
it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from fixtures.collection import NAMESPACE
from support.servers.hdfs import Hdfs, client_environment, hdfs
from support.servers.postgres import Postgres
from support.sessions.runtime import LEDGER, Runtime
from support.snapshots import check_text

# Six JVMs: CI has no time for them.
pytestmark = [pytest.mark.catalog, pytest.mark.spark, pytest.mark.slow]

Json: TypeAlias = Any

# In a process of its own: a JVM that PyArrow has started stays.
READ: Final = """
import json, sys
from pyiceberg.catalog.sql import SqlCatalog
table = SqlCatalog("iceberg", uri=sys.argv[1]).load_table(tuple(sys.argv[2:]))
print(json.dumps([table.location(), sorted(table.scan().to_arrow()["id"].to_pylist())]))
"""

# Hadoop's client without a server: its file system is that of the machine.
ENDING: Final = """
import os, signal, sys, time
from connector.host import signals
from connector.storage.file_io import open_file_io

signals.install()
try:
    open_file_io({"hdfs.host": "default"}).arrow.fs_by_scheme("hdfs", None)
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
except signals.Stopped as stopped:
    print(os.environ["LIBHDFS_OPTS"])
    sys.exit(stopped.exit_status)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_java_does_not_take_over_the_signals_that_end_a_process(number: int, status: int) -> None:
    command = [sys.executable, "-c", ENDING, str(int(number))]
    environment = os.environ | client_environment()
    ended = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (status, f"-Xrs {environment['LIBHDFS_OPTS']}\n"), ended.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture
def config(postgres: Postgres, store: Hdfs) -> Mapping[str, Json]:
    return {
        "namespace": NAMESPACE,
        "upload_interval": "PT0S",
        "catalog": {"catalog_type": "SQL", "uri": postgres.new_database(), "password": postgres.password},
        "storage": {"storage_type": "HDFS", "uri": f"{store.uri}/lake"},
    }


def test_a_session_s_rows_are_read_back(
    config: Mapping[str, Json], postgres: Postgres, store: Hdfs, tmp_path: Path
) -> None:
    collection = replace(LEDGER, table="on_hdfs")
    with Runtime(tmp_path, [collection], config, store.environment).start(publish=True) as session:
        session.opened()
        session.acknowledge()
        session.transaction({"id": 1}, {"id": 2})
        session.transaction({"id": 3})
        outcome = session.finish()
    assert outcome.status == 0, outcome.log
    command = [sys.executable, "-c", READ, postgres.with_password(config["catalog"]["uri"]), NAMESPACE, "on_hdfs"]
    read = subprocess.run(command, env=os.environ | store.environment, check=True, capture_output=True, text=True)
    location, ids = json.loads(read.stdout.splitlines()[-1])
    assert location.startswith(f"{store.uri}/lake/")
    assert ids == [1, 2, 3]


def test_hadoop_s_client_that_is_missing_is_named(config: Mapping[str, Json], store: Hdfs, tmp_path: Path) -> None:
    environment = {**store.environment, "CLASSPATH": ""}
    outcome = Runtime(tmp_path, [LEDGER], config, environment).apply_and_fail()
    place = {store.uri: "hdfs://NAMENODE"}
    check_text("storage_errors", "no client of Hadoop's", outcome.last_log_line.partition(" error ")[2], place)
