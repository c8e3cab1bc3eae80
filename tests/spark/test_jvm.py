"""What is said of a JVM that does not start, or that has ended."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from connector.control_group import ControlGroup
from connector.errors import RetryableError, UserError
from connector.spark import jvm
from connector.spark.class_path import class_path
from connector.spark.jvm import Jvm
from connector.spark.jvm_command import spark_home
from connector.spark.session import explained
from support.snapshots import check_text

SNAPSHOTS: Final = Path(__file__).parents[1] / "snapshots" / "spark_errors.json"
HEAP: Final = "512m"
JARS: Final = class_path(spark_home() / "jars", is_local=True)


@contextmanager
def started(directory: Path, heap: str = HEAP) -> Iterator[Jvm]:
    running = Jvm(directory, heap, JARS, {})
    try:
        yield running
    finally:
        running.kill()


def test_a_directory_that_the_jvm_cannot_have_is_an_error_that_names_tmpdir(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no temporary directory in {tmp_path}/missing can be made: .* set TMPDIR"):
        Jvm(tmp_path / "missing", HEAP, JARS, {})


@pytest.mark.spark
def test_a_jvm_that_ends_while_it_starts_is_told_with_its_last_words(tmp_path: Path) -> None:
    with started(tmp_path, heap="1k") as running, pytest.raises(RetryableError) as error:
        running.connect()
    check_text(SNAPSHOTS, "a JVM that does not start", str(error.value), {})


def test_a_jvm_that_does_not_come_up_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "START_TIMEOUT", 0.0)
    with started(tmp_path) as running, pytest.raises(RetryableError) as error:
        running.connect()
    check_text(SNAPSHOTS, "a JVM that says nothing", str(error.value), {})


@pytest.mark.spark
def test_a_jvm_that_was_killed_is_told_from_one_that_has_had_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "membership").write_text("0::/\n")
    killed = tmp_path / "memory.events"
    killed.write_text("oom_kill 0\n")
    monkeypatch.setattr(jvm, "ControlGroup", partial(ControlGroup, tmp_path / "membership", tmp_path))
    with started(tmp_path) as running, closing(running.connect()) as gateway:
        running.kill()
        for name, kills in {"a killed JVM": 0, "a JVM without memory": 1}.items():
            killed.write_text(f"oom_kill {kills}\n")
            with pytest.raises(RetryableError) as error, explained(running, "A Spark job failed"):
                gateway.jvm.java.lang.System.nanoTime()
            check_text(SNAPSHOTS, name, str(error.value), {})
