"""The archive of Spark's classes is where the JVM that reads it looks for it."""

from pathlib import Path

import pytest

from connector.spark.jvm import jvm_command
from connector.spark.jvm.class_archive import make_class_archive

pytestmark = pytest.mark.spark


def test_it_is_written_below_a_directory_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a directory" / "spark-classes.jsa"
    monkeypatch.setattr(jvm_command, "locate_class_archive", lambda: archive)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "")
    assert make_class_archive() == archive
    assert archive.stat().st_size > 1 << 20
    assert [*tmp_path.iterdir()] == [archive.parent]
