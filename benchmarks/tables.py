"""Write the tables of docs/performance.md: the median of each figure of the runs of `all` in benchmarks/runs."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.parts import targets
from benchmarks.parts.report import REPOSITORY
from benchmarks.parts.targets import TARGETS, Baseline, Figures, Measured

PAGE: Final = REPOSITORY / "docs" / "performance.md"
RUNS: Final = REPOSITORY / "benchmarks" / "runs"  # files that benchmarks have written


def main() -> int:
    _arguments()
    PAGE.write_text(targets.replaced(PAGE.read_text(), describe(read_runs())))
    return 0


def read_runs() -> Sequence[Mapping[str, Any]]:
    """Return the runs, the earliest first."""
    return [json.loads(path.read_text()) for path in sorted(RUNS.glob("all-*.json"))]


def describe(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return both tables, and how each run was measured."""
    figures = gather(runs)
    lines = [f"- {_conditions(run)}" for run in runs]
    return "\n".join([*lines, "", *targets.headlines(figures), "", *targets.table(figures), ""])


def gather(runs: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the figures of all runs by line. KeyError: a run has a line that is not measured any more."""
    by_work = {target.work: target for target in TARGETS}
    figures: dict[targets.Line, list[Measured]] = {}
    for run in runs:
        for line in run["measurements"]:
            figures.setdefault((by_work[line["work"]], (line["catalog"], line["form"])), []).append(_measured(line))
    return figures


def _measured(line: Mapping[str, Any]) -> Measured:
    return Measured(line["measured_figure"], Baseline(**line["measured_baseline"]))


def _conditions(run: Mapping[str, Any]) -> str:
    baselines = [_measured(line).baseline for line in run["measurements"]]
    least, *_, largest = sorted(baseline.seconds for baseline in baselines)
    time, load, megabytes = run["measured_at"][:16].replace("T", " "), run["load_before"][0], baselines[0].megabytes
    return (
        f"{time}: {run['cores']} cores, load {load:.1f} before the run. R's time is {least:.1f} to {largest:.1f} s, "
        f"{megabytes / largest:.0f} to {megabytes / least:.0f} MB/s."
    )


def _arguments() -> argparse.Namespace:
    return argparse.ArgumentParser(prog="scripts/bench tables", description=__doc__).parse_args()


if __name__ == "__main__":
    sys.exit(main())
