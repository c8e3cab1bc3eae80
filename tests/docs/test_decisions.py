"""The index of decisions lists each of them with its title and status."""

import re
from pathlib import Path
from typing import Final

from support.repository import REPOSITORY

DECISIONS: Final = REPOSITORY / "docs" / "decisions"
PAGES: Final = sorted(DECISIONS.glob("[0-9]*.md"))
HEAD: Final = re.compile(r"# (\d+)\. (.+)\n\nStatus: (accepted|replaced)\b.*\. (\d{4}-\d\d-\d\d)\.\n\n")
ROW: Final = re.compile(
    r"^\| (\d+) \| \[([^]]+)\]\(([^)]+)\) \| (accepted|replaced)\b[^|]* \| ([\d-]+) \|$", re.MULTILINE
)


def test_the_index_lists_each_decision_in_order() -> None:
    listed = [(int(n), title, page, status, date) for n, title, page, status, date in ROW.findall(_index())]
    assert listed == [_head(page) for page in PAGES]


def test_the_number_of_a_decision_is_that_of_its_file() -> None:
    assert [_head(page)[0] for page in PAGES] == [int(page.name[:4]) for page in PAGES]


def _index() -> str:
    return (DECISIONS / "README.md").read_text()


def _head(page: Path) -> tuple[int, str, str, str, str]:
    head = HEAD.match(page.read_text())
    assert head, f"{page.name} does not begin with a number, a title and a status"
    return int(head[1]), head[2], page.name, head[3], head[4]
