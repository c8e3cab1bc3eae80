"""The lines that pages of the documentation show, for tests to do what they say."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.repository import REPOSITORY

DOCS: Final = REPOSITORY / "docs"


def opening_lines(engine: str, warehouse: Path) -> str:
    """Return the lines with which this engine opens the Local catalog's tables, with the warehouse's own path."""
    page = (DOCS / "reading.md").read_text()
    [lines] = re.findall(rf"\*\*{engine}\*\*.*?\n```\w+\n(.*?)```", _section(page, "The Local catalog"), re.DOTALL)
    return str(lines).replace("/absolute/path/to/warehouse", str(warehouse))


def freshness_queries(engine: str) -> Sequence[str]:
    """Return this engine's queries for the freshness of a table: the newest row's, and those of the commits."""
    page = (DOCS / "freshness.md").read_text()
    return re.findall(rf"\*\*{engine}\*\*[^`]*(?:`[^`\n]+`[^`]*)*:\n\n```sql\n(.*?)```", page, re.DOTALL)


def commands(page: str, heading: str) -> Sequence[str]:
    """Return the shell commands of the first block under a heading, word for word."""
    [block, *_] = re.findall(r"^```sh\n(.*?)\n```", _section((DOCS / page).read_text(), heading), re.DOTALL | re.M)
    return re.split(r"(?<!\\)\n", block)


def _section(text: str, heading: str) -> str:
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return str(section)
