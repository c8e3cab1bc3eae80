"""The index of decisions lists each of them with its title and status. Links lead to pages and headings that exist."""

import re
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

DECISIONS: Final = REPOSITORY / "docs" / "decisions"
PAGES: Final = sorted(DECISIONS.glob("[0-9]*.md"))
HEAD: Final = re.compile(r"# (\d+)\. (.+)\n\nStatus: (accepted|replaced)\b.*\. (\d{4}-\d\d-\d\d)\.\n\n")
ROW: Final = re.compile(
    r"^\| (\d+) \| \[([^]]+)\]\(([^)]+)\) \| (accepted|replaced)\b[^|]* \| ([\d-]+) \|$", re.MULTILINE
)
LINK: Final = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TO_A_HEADING: Final = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
WITH_LINKS: Final = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def test_the_index_lists_each_decision_in_order() -> None:
    listed = [(int(n), title, page, status, date) for n, title, page, status, date in ROW.findall(_index())]
    assert listed == [_head(page) for page in PAGES]


def test_the_number_of_a_decision_is_that_of_its_file() -> None:
    assert [_head(page)[0] for page in PAGES] == [int(page.name[:4]) for page in PAGES]


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    dead = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not dead


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_a_heading_name_one_that_the_page_has(page: Path) -> None:
    links = TO_A_HEADING.findall(page.read_text())
    assert not [(to, anchor) for to, anchor in links if anchor not in _anchors(page.parent / to if to else page)]


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the page's headings."""
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in HEADING.findall(page.read_text())}


def _index() -> str:
    return (DECISIONS / "README.md").read_text()


def _head(page: Path) -> tuple[int, str, str, str, str]:
    head = HEAD.match(page.read_text())
    assert head, f"{page.name} does not begin with a number, a title and a status"
    return int(head[1]), head[2], page.name, head[3], head[4]
