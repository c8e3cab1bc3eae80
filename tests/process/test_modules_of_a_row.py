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
from support.repository import REPOSITORY
from support.sessions.called_modules import DIRECTORY, CalledModules
from support.sessions.runtime import LEDGER, Runtime

pytestmark = pytest.mark.spark

ARCHITECTURE: Final = REPOSITORY / "docs" / "architecture.md"
TOLD: Final = re.compile(r"crosses at most (\d+) modules.*?\n\n(.*?)\n\n", re.DOTALL)
OTHER: Final = replace(LEDGER, name="acmeCo/other", table="other")
TRACED: Final = "support.sessions.called_modules"


def test_a_row_crosses_no_more_modules_than_the_architecture_says(tmp_path: Path) -> None:
    called, core = CalledModules(tmp_path / "called"), CoreOfPyIceberg(tmp_path)
    path = {"PYTHONPATH": os.pathsep.join(map(str, (core.directory, REPOSITORY, REPOSITORY / "tests")))}
    runtime = Runtime(
        tmp_path,
        [LEDGER, OTHER],
        config={**CONFIG, "advanced": {"spark": {"spark.python.daemon.module": TRACED}}},
        environment={DIRECTORY: str(tmp_path / "called"), **path},
        module=(TRACED,),
    )
    with runtime.open(publish=True) as session:
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
    [(count, table)] = TOLD.findall(ARCHITECTURE.read_text())
    listed = {
        name if name.startswith("protocol/") else f"connector/{name}" for name in re.findall(r"`([\w/]+\.py)`", table)
    }
    assert len(listed) == int(count)
    assert called.names <= listed, "merge what is always read together, or change docs/architecture.md"
    assert not core.is_loaded, "only partitioned tables need it"
    subprocess.run([sys.executable, "-c", "import pyiceberg_core"], check=True, env={**os.environ, **path})
    assert core.is_loaded, "the package of this test would be seen"


class CoreOfPyIceberg:
    """A package in its place. It is a large library, which only makes the partition values of partitioned tables."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._loaded = directory / "first", directory / "loaded"
        package = self.directory / "pyiceberg_core"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"open({str(self._loaded)!r}, 'w').close()")

    @property
    def is_loaded(self) -> bool:
        return self._loaded.exists()
