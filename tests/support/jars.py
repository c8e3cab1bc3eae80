"""The jars that `scripts/setup --tests` fetches."""

import os
from pathlib import Path
from typing import Final, NoReturn

import pytest

REPOSITORY: Final = Path(__file__).parents[2]


def jars(name: str) -> Path:
    """The directory of one set of jars; without it, the test is left out (in CI it fails)."""
    directory = REPOSITORY / ".cache" / "jars" / name
    if not (directory / "complete").exists():
        leave_out(f"needs the jars of {name}.pom.xml: install Maven and run scripts/setup --all-tests")
    return directory


def leave_out(reason: str) -> NoReturn:
    """Leave the test out where something is not installed; in CI it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
