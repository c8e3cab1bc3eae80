"""How many modules one appended row crosses, from its Store to its acknowledgement, in the driver and in a worker."""

import os
import re
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
