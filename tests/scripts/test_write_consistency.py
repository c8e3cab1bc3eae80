"""What the crash scenarios have measured becomes the table of a page."""

import json
from pathlib import Path
from typing import Any

import pytest

import write_consistency

RUNS: list[dict[str, Any]] = [
    {"scenario": "two", "catalog": "REST", "faults": 2, "conflicts": 1, "rows": 1000},
    {"scenario": "two", "catalog": "Local", "faults": 1, "conflicts": 0, "rows": 500},
    {"scenario": "one", "catalog": "Glue", "faults": 3, "conflicts": 0, "rows": 7},
    {"scenario": "two", "catalog": "REST", "defect": "forgets", "caught": "lost"},
    {"scenario": "two", "catalog": "Local", "defect": "forgets", "caught": "lost"},
    {"scenario": "two", "catalog": "Local", "defect": "doubles", "caught": "doubled"},
]
TABLE = """\
2026-11-21: 3 runs, 6 faults, 1,507 rows at the end, each compared as PyIceberg, DuckDB and Spark read it; \
3 runs with a planted defect,
every one of them caught.

| scenario | Local | REST | Glue | Hive | defects that were caught |
|---|---|---|---|---|---|
| one |  |  | 3 · 0 · 7 |  |  |
| two | 1 · 0 · 500 | 2 · 1 · 1000 |  |  | `doubles` (Local), `forgets` (Local, REST) |
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{write_consistency.BEGIN}what was there\n{write_consistency.END}after\n")
    return page


def write(page: Path, outcome: str) -> None:
    report = page.with_name("report.json")
    report.write_text(json.dumps({"date": "2026-11-21", "runs": [{"outcome": outcome, **run} for run in RUNS]}))
    write_consistency.main(report, page)


def test_the_table_replaces_the_one_before(page: Path) -> None:
    write(page, "passed")
    write(page, "passed")
    assert page.read_text() == f"before\n{write_consistency.BEGIN}{TABLE}{write_consistency.END}after\n"


def test_nothing_is_written_of_a_run_that_failed(page: Path) -> None:
    before = page.read_text()
    with pytest.raises(SystemExit, match="two on REST"):
        write(page, "failed")
    assert page.read_text() == before
