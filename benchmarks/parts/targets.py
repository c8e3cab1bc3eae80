"""What the connector must reach, line by line, and the table that says what it reaches: the median of some runs.

Times and speeds are ratios to R, the baseline that was measured beside them. So a slower machine changes little. On a
busy machine, R's time grows more than its processor time. So processor time is compared with R's processor time.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final, TypeAlias

COLUMNS: Final = tuple((catalog, form) for catalog in ("local", "rest") for form in ("plain", "packed"))
BEGIN: Final = "<!-- measured by scripts/bench all -->\n"
END: Final = "<!-- end of what was measured -->\n"
PLACES: Final = {"local": "local disk", "rest": "REST and S3"}

Column: TypeAlias = tuple[str, str]


class Unit(Enum):
    """The unit of a line's limit and figures."""

    SPEED = "times R's speed"  # measured in rows/s
    TIME = "times R's time"  # measured in seconds
    PROCESSOR_TIME = "times R's processor time"  # measured in processor seconds
    MEGABYTES = "MB"
    TIMES = "times"
    FILES = "files"


@dataclass(frozen=True)
class Baseline:
    """R: the plain gigabyte, and how long R takes for it."""

    rows: int
    megabytes: float
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Measured:
    """A figure as it was measured, and the baseline that was measured beside it."""

    figure: float
    baseline: Baseline

    def express(self, unit: Unit) -> float:
        """Return the figure in a line's unit."""
        match unit:
            case Unit.SPEED:
                return self.figure / (self.baseline.rows / self.baseline.seconds)
            case Unit.TIME:
                return self.figure / self.baseline.seconds
            case Unit.PROCESSOR_TIME:
                return self.figure / self.baseline.cpu_seconds
            case _:
                return self.figure


@dataclass(frozen=True)
class Target:
    """One line. A speed must be at least the limit, and everything else at most. A line without a limit explains the
    line before it."""

    work: str
    limit: float | None
    unit: Unit

    def is_met(self, figure: float) -> bool:
        """Whether a figure in the line's unit meets the limit."""
        if self.limit is None:
            return True
        return figure >= self.limit if self.unit is Unit.SPEED else figure <= self.limit


COLD: Final = Target("1 GB: first store byte → startedCommit, Spark started during it", 1.2, Unit.SPEED)
WARM: Final = Target("the same, Spark already up", 1.5, Unit.SPEED)
TEN_GIGABYTES: Final = Target("10 GB in one transaction", 1.5, Unit.SPEED)
TEN_GIGABYTES_MEMORY: Final = Target("the same: peak memory over that of 1 GB", 1.05, Unit.TIMES)
PROCESSOR: Final = Target("processor time of the process tree, 1M rows", 1.2, Unit.PROCESSOR_TIME)
PROCESSOR_OF_SERVERS: Final = Target("beside it, that of the servers", None, Unit.PROCESSOR_TIME)
MEMORY: Final = Target("peak memory (sum of PSS), 1 GB", 650, Unit.MEGABYTES)
EIGHT: Final = Target("8 tables of 1,000 rows: first store byte → startedCommit, median of 30", 0.012, Unit.TIME)
EIGHT_OWN: Final = Target("8 tables: startedCommit without the servers' part", 0.012, Unit.TIME)
EIGHT_ACKNOWLEDGED: Final = Target("8 tables of 1,000 rows: acknowledge", 0.012, Unit.TIME)
EIGHT_ACKNOWLEDGED_OWN: Final = Target("8 tables: acknowledge without the servers' part", 0.012, Unit.TIME)
MANY: Final = Target("200 tables of 100 rows: startedCommit", 0.12, Unit.TIME)
MANY_OWN: Final = Target("200 tables: startedCommit without the servers' part", 0.12, Unit.TIME)
MANY_ACKNOWLEDGED: Final = Target("200 tables of 100 rows: acknowledge", 0.24, Unit.TIME)
MANY_ACKNOWLEDGED_OWN: Final = Target("200 tables: acknowledge without the servers' part", 0.24, Unit.TIME)
MANY_MEMORY: Final = Target("200 tables of 100 rows: memory over that of one table", 80, Unit.MEGABYTES)
COMMITS: Final = Target(
    "5,000 commits to one table: median of the last 50 over that of the 50th to 100th", 1.3, Unit.TIMES
)
COMMITS_METADATA: Final = Target("the same: size of metadata.json", 1, Unit.MEGABYTES)
SPEC: Final = Target("process start → spec answered", 0.0075, Unit.TIME)
OPENED: Final = Target("process start → opened, 8 tables", 0.06, Unit.TIME)
FIRST: Final = Target("process start → first startedCommit, 8 tables of 1,000 rows", 0.26, Unit.TIME)
FILES: Final = Target("1 GB in one transaction: files below half of the target size, per core", 1, Unit.FILES)
BINDINGS: Final = Target("validate + apply of 200 bindings", 0.74, Unit.TIME)
BINDINGS_GROWTH: Final = Target("the same: time of a binding over that of one of 100", 1.1, Unit.TIMES)

TARGETS: Final = (
    COLD,
    WARM,
    TEN_GIGABYTES,
    TEN_GIGABYTES_MEMORY,
    PROCESSOR,
    PROCESSOR_OF_SERVERS,
    MEMORY,
    EIGHT,
    EIGHT_OWN,
    EIGHT_ACKNOWLEDGED,
    EIGHT_ACKNOWLEDGED_OWN,
    MANY,
    MANY_OWN,
    MANY_ACKNOWLEDGED,
    MANY_ACKNOWLEDGED_OWN,
    MANY_MEMORY,
    COMMITS,
    COMMITS_METADATA,
    SPEC,
    OPENED,
    FIRST,
    FILES,
    BINDINGS,
    BINDINGS_GROWTH,
)

Line: TypeAlias = tuple[Target, Column]
Figures: TypeAlias = Mapping[Line, Sequence[Measured]]  # of some runs

# The figures that README shows: speeds in MB/s and times in seconds, with two digits. More digits differ from run to
# run.
HEADLINES: Final = (
    ("1 GB in one transaction, with Spark up", WARM),
    ("peak memory of all processes, the same", MEMORY),
    ("commit of 8 tables, median", EIGHT_ACKNOWLEDGED),
)


def headlines(figures: Figures) -> Iterator[str]:
    """Lines of Markdown: the figures of README, for plain rows."""
    yield "| in short | local disk | REST catalog and S3 |"
    yield "|---|---|---|"
    for label, target in HEADLINES:
        measured = [figures.get((target, (catalog, "plain")), ()) for catalog in PLACES]
        yield f"| {label} | {' | '.join(_headline(target, figure) for figure in measured)} |"


def _headline(target: Target, measured: Sequence[Measured]) -> str:
    if not measured:
        return "not measured"
    match target.unit:
        case Unit.SPEED:
            megabytes = median(some.figure * some.baseline.megabytes / some.baseline.rows for some in measured)
            return f"{float(f'{megabytes:.2g}'):.0f} MB/s"
        case Unit.TIME:
            return f"{median(some.figure for some in measured):.2g} s"
        case unit:
            return f"{median(some.figure for some in measured):.0f} {unit.value}"


def table(figures: Figures) -> Iterator[str]:
    """Lines of Markdown. A figure whose median misses its target is bold, and its line is red. Beside a median are the
    least and the largest figure."""
    heads = [f"{PLACES[catalog]}, {form}" for catalog, form in COLUMNS]
    yield f"| work | must reach | {' | '.join(heads)} | |"
    yield "|---|---|" + "---|" * (len(COLUMNS) + 1)
    for target in TARGETS:
        expressed = [[some.express(target.unit) for some in figures.get((target, column), ())] for column in COLUMNS]
        limit = "" if target.limit is None else f"{target.limit:g} {target.unit.value}"
        verdict = _verdict(target, [median(some) for some in expressed if some])
        yield f"| {target.work} | {limit} | {' | '.join(_cell(target, some) for some in expressed)} | {verdict} |"


def _cell(target: Target, figures: Sequence[float]) -> str:
    if not figures:
        return ""
    middle = _digits(median(figures)) if target.is_met(median(figures)) else f"**{_digits(median(figures))}**"
    return middle if len(figures) == 1 else f"{middle} ({_digits(min(figures))} to {_digits(max(figures))})"


def _digits(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _verdict(target: Target, measured: Sequence[float]) -> str:
    if not measured:
        return "not measured"
    if target.limit is None:
        return ""
    return "met" if all(map(target.is_met, measured)) else "red"


def replaced(page: str, text: str) -> str:
    """The page with this text between its marks."""
    top, begin, rest = page.partition(BEGIN)
    _, end, bottom = rest.partition(END)
    if not (begin and end):
        sys.exit(f"the page has not both of {BEGIN.strip()} and {END.strip()}: nothing is written")
    return f"{top}{begin}{text}{end}{bottom}"
