"""Writes the results of the crash scenarios to docs/consistency.md, as a table between two marks.

write_consistency.py REPORT PAGE
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

BEGIN: Final = "<!-- measured -->\n"
END: Final = "<!-- end of what was measured -->\n"
LONGEST_LINE: Final = 140  # in docs
CATALOGS: Final = ("Local", "REST", "Glue", "Hive")


def main(report: Path, page: Path) -> None:
    measured = json.loads(report.read_text())
    if failed := [run for run in measured["runs"] if run["outcome"] != "passed"]:
        sys.exit(f"{failed[0]['scenario']} on {failed[0]['catalog']} failed: the page was not changed")
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}{render(measured)}{END}{after}")


def render(report: Json) -> str:
    """Return the page's part about a report. All of its runs have passed."""
    runs = sorted(report["runs"], key=_scenario)
    planted = [run for run in runs if "defect" in run]
    genuine = [run for run in runs if "defect" not in run]
    faults, rows = (sum(run[what] for run in genuine) for what in ("faults", "rows"))
    lines = [
        fill(
            f"{report['date']}: {len(genuine)} runs, {faults} faults, {rows:,} rows at the end, each compared as "
            f"PyIceberg, DuckDB and Spark read it; {len(planted)} runs with a planted defect, "
            "every one of them caught.",
            LONGEST_LINE,
        ),
        "",
        f"| scenario | {' | '.join(CATALOGS)} | defects that were caught |",
        f"|---|{'---|' * len(CATALOGS)}---|",
        *(_line(name, list(of_scenario)) for name, of_scenario in groupby(runs, key=_scenario)),
    ]
    return "\n".join(lines) + "\n"


def _scenario(run: Json) -> str:
    return str(run["scenario"])


def _line(name: str, runs: Sequence[Json]) -> str:
    cells = [
        " ".join(_cell(run) for run in runs if run["catalog"] == catalog and "defect" not in run)
        for catalog in CATALOGS
    ]
    return f"| {name} | {' | '.join(cells)} | {', '.join(_defects(runs))} |"


def _cell(run: Json) -> str:
    return f"{run['faults']} · {run['conflicts']} · {run['rows']}"


def _defects(runs: Sequence[Json]) -> Iterator[str]:
    planted = sorted((run for run in runs if "defect" in run), key=lambda run: str(run["defect"]))
    for defect, caught in groupby(planted, key=lambda run: str(run["defect"])):
        on = {run["catalog"] for run in caught}
        yield f"`{defect}` ({', '.join(catalog for catalog in CATALOGS if catalog in on)})"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
