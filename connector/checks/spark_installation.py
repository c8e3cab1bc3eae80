"""Checks whether this machine has what Spark needs, without starting Spark."""

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from connector.host.errors import UserError
from connector.spark.jvm.java import OLDEST_JAVA, find_java

TIME_LIMIT: Final = 60  # seconds


@dataclass(frozen=True)
class SparkInstallation:
    """The Java and the PySpark that a session would run on."""

    java: Path
    java_version: str
    pyspark_version: str


def find_installation() -> SparkInstallation:
    """Return the Java and the PySpark of this machine. Raises UserError if there is no Java that Spark can run on."""
    command = find_java()
    return SparkInstallation(command, _version(command), version("pyspark"))


def _version(command: Path) -> str:
    try:
        ran = subprocess.run(
            [command, "-version"], capture_output=True, errors="replace", timeout=TIME_LIMIT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(command, str(error)) from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', ran.stderr)
    if ran.returncode or not found:
        raise _unusable(command, (ran.stderr or ran.stdout).strip() or f"it ended with status {ran.returncode}")
    if int(found[2]) < OLDEST_JAVA:
        raise UserError(f"{command} is Java {found[1]}, and Spark needs {OLDEST_JAVA} or newer: install one.")
    return found[1]


def _unusable(command: Path, reason: str) -> UserError:
    return UserError(f"{command} cannot be run: {reason}. Install Java {OLDEST_JAVA} or newer, or set JAVA_HOME.")
