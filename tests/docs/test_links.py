"""Links lead to pages and headings that exist."""

import re
from pathlib import Path
from typing import Final

import pytest

from support.repository import REPOSITORY

LINK: Final = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TO_A_HEADING: Final = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES: Final = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    dead = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_a_heading_name_one_that_the_page_has(page: Path) -> None:
    links = TO_A_HEADING.findall(page.read_text())
    assert not [(to, anchor) for to, anchor in links if anchor not in _anchors(page.parent / to if to else page)]


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the page's headings."""
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in HEADING.findall(page.read_text())}
