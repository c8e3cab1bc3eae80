"""`--version`: prints the versions of the connector and of what it runs on."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from connector import REVISION_VARIABLE, VERSION
from connector.checks.spark_installation import find_installation
from connector.host.errors import UserError

ROOT: Final = Path(__file__).parents[3]
UNKNOWN: Final = "unknown"
TIME_LIMIT: Final = 10  # seconds


def describe_version(*, as_json: bool) -> str:
    """Return the versions, a line for each part, or as JSON."""
    parts = {
        "version": VERSION,
        "revision": os.environ.get(REVISION_VARIABLE) or _find_revision(),
        "python": platform.python_version(),
        "pyiceberg": version("pyiceberg"),
        "spark": version("pyspark"),
        "java": _find_java(),
    }
    if as_json:
        return json.dumps(parts, indent=2)
    return "\n".join(
        (
            f"materialize-iceberg {parts['version']} (revision {parts['revision']})",
            f"Python {parts['python']}",
            f"PyIceberg {parts['pyiceberg']}",
            f"Spark {parts['spark']}",
            f"Java {parts['java'] or 'not found: `check` says why'}",
        )
    )


def _find_revision() -> str:
    """Return the commit of a checkout. An installed package does not know its commit."""
    if not (ROOT / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        ran = subprocess.run(command, capture_output=True, errors="replace", timeout=TIME_LIMIT)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return ran.stdout.strip() or UNKNOWN


def _find_java() -> str | None:
    try:
        return find_installation().java_version
    except UserError:
        return None
