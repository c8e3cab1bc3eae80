"""docs/tested.md's table of catalogs and stores: which engines have read back what a session wrote on each pair."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pytest

from support.jars import REPOSITORY

Pair: TypeAlias = tuple[str, str]

PAGE: Final = REPOSITORY / "docs" / "tested.md"
READ_BACK: Final = "read back"  # the property of a test that has read a pair's rows
TABLE: Final = re.compile(r"(?<=\n\n)\| catalog \\ store \|.*?\n(?=\n)", re.DOTALL)


class ReadBackReport:
    """A plugin; with pytest-xdist the workers' reports reach it too."""

    def __init__(self) -> None:
        self._read_by: dict[Pair, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: list[tuple[str, Any]] = report.user_properties
        if report.when == "call":
            self._read_by |= {(catalog, store): by for name, (catalog, store, by) in properties if name == READ_BACK}

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            table = rendered({**on_page(), **self._read_by})
            PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text()))


def rendered(cells: Mapping[Pair, str]) -> str:
    catalogs, stores = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    lines = [("catalog \\ store", *stores), ("---",) * (1 + len(stores))]
    lines += [(catalog, *(cells[catalog, store] for store in stores)) for catalog in catalogs]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def on_page() -> dict[Pair, str]:
    """Its cells: what is in them where no session is held is for people to decide."""
    found = TABLE.search(PAGE.read_text())
    assert found, "the page has the table"
    (_, *stores), _, *lines = (line.strip("| ").split(" | ") for line in found[0].splitlines())
    return {(catalog, store): cell for catalog, *cells in lines for store, cell in zip(stores, cells, strict=True)}
