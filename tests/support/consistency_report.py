"""What crash scenarios have measured, written as JSON by the process in which pytest was started."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

MEASURED: Final = "consistency"  # the property of a test that has measured something


class ConsistencyReport:
    """A plugin; with pytest-xdist the workers' reports reach it too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._runs: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        measured: list[tuple[str, Any]] = report.user_properties
        if report.when == "call":
            how = {"outcome": report.outcome, "seconds": round(report.duration, 1)}
            self._runs += [{**about, **how} for name, about in measured if name == MEASURED]

    def pytest_sessionfinish(self) -> None:
        report = {"date": datetime.now(UTC).date().isoformat(), "runs": self._runs}
        self._file.write_text(json.dumps(report, indent=1) + "\n")
