"""The lines that README shows, for the tests to do what they say."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.jars import REPOSITORY

README: Final = REPOSITORY / "README.md"
IMAGE_HEADING: Final = "The container image"


def readme_lines(engine: str, warehouse: Path) -> str:
    """Those by which this engine opens the embedded catalog's tables, with the warehouse's own path."""
    [lines] = re.findall(rf"\*\*{engine}\*\*.*?\n```\w+\n(.*?)```", README.read_text(), re.DOTALL)
    return str(lines).replace("/absolute/path/to/warehouse", str(warehouse))


def readme_commands(heading: str) -> Sequence[Sequence[str]]:
    """The shell commands under a heading, word for word: a list for each block."""
    [section] = re.findall(rf"^## {heading}\n(.*?)^## ", README.read_text(), re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```sh\n(.*?)\n```", section, re.DOTALL | re.MULTILINE)
    return [re.split(r"(?<!\\)\n", block) for block in blocks]
