"""Which tests a run has: all but the slow ones, with `--all` these too, with `--quick` those that need no server."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

# The first line that fits says why a test is left out.
SLOW: Final = "take minutes: scripts/test --all runs them"
MARKERS: Final = {
    "slow": SLOW,
    "long": "take many seconds: scripts/test runs them",
    "image": "build or run the container image: scripts/test runs them",
    "crash": "end processes in the middle of their work: scripts/test runs them",
    "spark": "start a Spark JVM: scripts/test runs them",
    "catalog": "commit to a catalog server: scripts/test runs them",
}
NEED_SERVERS: Final = "start a server: scripts/test runs them"
SERVERS: Final = frozenset(
    {"azure", "glue_uri", "google", "metastore", "postgres", "rest_catalog", "rest_on_s3", "s3_server", "spark_reader"}
)


def add_options(parser: pytest.Parser) -> None:
    """Add the options that choose the tests of a run."""
    parser.addoption("--all", action="store_true", help="also run the tests that are marked slow")
    parser.addoption("--quick", action="store_true", help="only run tests that need no JVM, no server and no image")


def check_options(config: pytest.Config) -> None:
    """Raise UsageError if a run is to be quick and to have everything."""
    if config.getoption("--quick") and config.getoption("--all"):
        raise pytest.UsageError("--quick and --all cannot be combined")


def reason_to_leave_out(item: pytest.Item, *, quick: bool) -> str | None:
    """Return why a test is left out of a quick or a usual run, or None if it is part of it."""
    if not quick:
        return SLOW if item.get_closest_marker("slow") else None
    marked = (reason for marker, reason in MARKERS.items() if item.get_closest_marker(marker))
    return next(marked, NEED_SERVERS if SERVERS & set(getattr(item, "fixturenames", ())) else None)


def select(config: pytest.Config, items: list[pytest.Item]) -> Counter[str]:
    """Remove the tests that are left out, and return how many there are for each reason."""
    quick, everything = config.getoption("--quick"), config.getoption("--all")
    reasons = [None if everything else reason_to_leave_out(item, quick=quick) for item in items]
    left_out = [item for item, reason in zip(items, reasons, strict=True) if reason]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]
    return Counter(filter(None, reasons))


def lines(left_out: Counter[str], skipped: Iterable[str]) -> list[str]:
    """Return what a run says about the tests that it did not run, one line for each reason."""
    return [f"{number} {reason}" for reason, number in [*sorted(Counter(skipped).items()), *sorted(left_out.items())]]
