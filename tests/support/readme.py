"""The lines that README shows, for the tests to do what they say."""

import re
from pathlib import Path

from support.jars import REPOSITORY


def readme_lines(engine: str, warehouse: Path) -> str:
    """Those by which this engine opens the embedded catalog's tables, with the warehouse's own path."""
    [lines] = re.findall(rf"\*\*{engine}\*\*.*?\n```\w+\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    return str(lines).replace("/absolute/path/to/warehouse", str(warehouse))
