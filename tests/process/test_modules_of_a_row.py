"""Which modules one appended row needs, from its Store to its acknowledgement, in the driver and in a worker."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from fixtures.conversation import CONFIG
from support.called_modules import DIRECTORY, REPOSITORY, CalledModules
from support.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

ARCHITECTURE: Final = REPOSITORY / "docs" / "architecture.md"
TOLD: Final = re.compile(r"crosses at most (\d+) modules")
OTHER: Final = replace(LEDGER, name="acmeCo/other", table="other")
TRACED: Final = "support.called_modules"


def test_a_row_crosses_no_more_modules_than_the_architecture_says(tmp_path: Path) -> None:
    called = CalledModules(tmp_path / "called")
    runtime = Runtime(
        tmp_path,
        [LEDGER, OTHER],
        config={**CONFIG, "advanced": {"spark": {"spark.python.daemon.module": TRACED}}},
        environment={
            DIRECTORY: str(tmp_path / "called"),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests")]),
        },
        module=(TRACED,),
    )
    runtime.apply()
    with runtime.open() as session:
        session.flush()
        session.store({"id": 1, "note": "Spark and its workers start"}, binding=1)
        session.start_commit()
        session.acknowledge()
        session.flush()
        called.start()
        session.store({"id": 1, "note": "a"})
        session.start_commit()
        session.acknowledge()
        called.stop()
        assert session.finish().status == 0
    names = sorted(called.names)
    print(f"one row crosses {len(names)} modules:", *names, sep="\n")
    assert {name.split("/")[1] for name in names} >= {"session", "encoding", "iceberg"}, "driver and workers are traced"
    [told] = TOLD.findall(ARCHITECTURE.read_text())
    assert len(names) <= int(told), "merge what is always read together, or change docs/architecture.md"


def test_a_row_without_partitions_does_not_load_the_core_of_pyiceberg(tmp_path: Path) -> None:
    """The core is a large library, which only makes the partition values of partitioned tables."""
    package, loaded = tmp_path / "first" / "pyiceberg_core", tmp_path / "loaded"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(loaded)!r}, 'w').close()")
    path = os.pathsep.join([str(package.parent), str(REPOSITORY)])
    runtime = Runtime(tmp_path, environment={"PYTHONPATH": path})
    runtime.apply()
    with runtime.open() as session:
        session.transaction({"id": 1})
        assert session.finish().status == 0
    assert not loaded.exists()
    subprocess.run([sys.executable, "-c", "import pyiceberg_core"], check=True, env={**os.environ, "PYTHONPATH": path})
    assert loaded.exists(), "the package of this test would be seen"
