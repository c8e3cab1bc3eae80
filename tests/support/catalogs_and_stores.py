"""docs/tested.md's table of catalogs and stores: which engines have read back what a session wrote on each pair."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pytest

from support.repository import REPOSITORY

Pair: TypeAlias = tuple[str, str]

PAGE: Final = REPOSITORY / "docs" / "tested.md"
READ_BACK: Final = "read back"  # the property of a test that has read a pair's rows
SLOW_ENGINES: Final = ("Trino",)
TABLE: Final = re.compile(r"(?<=\n\n)\| catalog \\ store \|.*?\n(?=\n)", re.DOTALL)


class ReadBackReport:
    """A plugin; with pytest-xdist the workers' reports reach it too."""

    def __init__(self) -> None:
        self._read_by: dict[Pair, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: list[tuple[str, Any]] = report.user_properties
        if report.when == "call":
            for catalog, store, by in (value for name, value in properties if name == READ_BACK):
                self._read_by[catalog, store] = join_engines(self._read_by.get((catalog, store), ""), by)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            before = on_page()
            table = rendered({**before, **{pair: update(before[pair], by) for pair, by in self._read_by.items()}})
            PAGE.write_text(TABLE.sub(lambda _: table, PAGE.read_text()))


def join_engines(*cells: str) -> str:
    """One cell with the engines of several: those that only the slow tests run come last."""
    engines = dict.fromkeys(engine for cell in cells for engine in cell.split(", ") if engine)
    return ", ".join(sorted(engines, key=SLOW_ENGINES.__contains__))


def without_slow(cell: str) -> str:
    """A cell without the engines that only the slow tests run."""
    return ", ".join(engine for engine in cell.split(", ") if engine not in SLOW_ENGINES)


def update(before: str, by: str) -> str:
    """The cell after a run, which may have run only the slow tests of the pair, or only the others."""
    slow = [engine for engine in before.split(", ") if engine in SLOW_ENGINES]
    return join_engines(without_slow(by) or without_slow(before), by, *slow)


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
