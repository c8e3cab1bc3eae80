"""PySpark is imported by one thread, and the JVM starts meanwhile."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys, threading

importing = set()

def note(event, arguments):
    if event == "import" and arguments[0] in {"connector.spark.jvm.client", "numpy", "py4j", "pyspark"}:
        importing.add(threading.current_thread().name)

sys.addaudithook(note)
from connector.spark.jvm.start_spark import start_spark

with start_spark({"spark.master": "local[1]"}) as started:
    assert started.spark.run(list).result() == [0]
    started.spark.stop()
print(*importing)
"""


def test_the_thread_of_spark_does_not_import_what_others_import_at_the_same_time() -> None:
    """One of them could get a module that is not complete."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == ["MainThread"]


def test_spark_ends_before_anybody_has_asked_for_it() -> None:
    program = """
from connector.spark.jvm.start_spark import start_spark
with start_spark({"spark.master": "local[1]"}) as started:
    started.spark._jvm.wait()
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("", "")
