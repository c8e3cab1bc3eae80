"""The jars that `scripts/setup` fetches for the tests, and the servers that it builds for them."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from support.repository import REPOSITORY


def jars(name: str) -> Path:
    """The directory of one set of jars; without it, the test is left out (in CI it fails)."""
    directory = REPOSITORY / ".cache" / "jars" / name
    if not (directory / "complete").exists():
        leave_out(f"needs the jars of {name}.pom.xml: install Maven and run scripts/setup --all-tests")
    return directory


def go_program(name: str, what: str, argument: str = "--tests") -> Path:
    """A server that is built with Go; without it, the test is left out (in CI it fails)."""
    program = REPOSITORY / ".cache" / "go" / "bin" / name
    if not program.exists():
        leave_out(f"needs {what}: install Go and run scripts/setup {argument}")
    return program


def leave_out(reason: str) -> NoReturn:
    """Leave the test out where something is not installed; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
