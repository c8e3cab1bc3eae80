"""A process may start Spark again after it ended: a request to apply may need it, and then the session does.

The error of a task keeps its type on the way to the driver.
"""

import subprocess
import sys
from typing import Final

import pytest

from support.repository import REPOSITORY

TWICE: Final = """
from connector.host.errors import UserError
from connector.spark.jvm.start_spark import start_spark

def fail(number):
    raise UserError(f"task {number}")

for number in range(2):
    with start_spark({"spark.master": "local[1]"}) as started:
        assert started.spark.run(list).result() == [0]
        try:
            started.spark.map(fail, [number]).result()
        except UserError as error:
            print(error)
"""


@pytest.mark.spark
def test_spark_starts_again_after_it_was_killed() -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", TWICE], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120
    )
    assert outcome.stdout.splitlines() == ["task 0", "task 1"], outcome.stderr
