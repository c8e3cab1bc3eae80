"""What the connector must reach, line by line, and the table that says what it reaches."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

# The yardstick where the targets were set, MB/s: seconds of a processor that are too many here may be few enough there.
REFERENCE: Final = 175.0
COLUMNS: Final = tuple((catalog, form) for catalog in ("local", "rest") for form in ("plain", "packed"))
BEGIN: Final = "<!-- measured by scripts/bench all -->\n"
END: Final = "<!-- end of what was measured -->\n"
PLACES: Final = {"local": "local disk", "rest": "REST and S3"}

Column: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Target:
    """One line. Speeds are to be at least the limit, all else at most; what has none explains the line before."""

    work: str
    limit: float | None
    unit: str

    def is_met(self, figure: float) -> bool:
        if self.limit is None:
            return True
        return figure >= self.limit if self.unit == "R" else figure <= self.limit

    def is_met_on_the_reference(self, figure: float, yardstick: float) -> bool:
        """Whether it would be where the yardstick reaches REFERENCE, and not `yardstick` MB/s."""
        return self.unit == "s" and self.is_met(figure * yardstick / REFERENCE)


COLD: Final = Target("1 GB: first store byte → startedCommit, Spark started during it", 1.2, "R")
WARM: Final = Target("the same, Spark already up", 1.5, "R")
TEN_GIGABYTES: Final = Target("10 GB in one transaction", 1.5, "R")
TEN_GIGABYTES_MEMORY: Final = Target("the same: peak memory over that of 1 GB", 1.05, "times")
PROCESSOR: Final = Target("processor seconds of the process tree, 1M rows", 9, "s")
PROCESSOR_OF_SERVERS: Final = Target("beside them, those of the servers", None, "s")
MEMORY: Final = Target("peak memory (sum of PSS), 1 GB", 650, "MB")
EIGHT: Final = Target("8 tables of 1,000 rows: first store byte → startedCommit, median of 30", 0.20, "s")
EIGHT_ACKNOWLEDGED: Final = Target("the same: acknowledge", 0.15, "s")
EIGHT_ACKNOWLEDGED_CPU: Final = Target("processor seconds of that: all processes", None, "s")
EIGHT_ACKNOWLEDGED_SERVERS: Final = Target("of these, the part of the catalog's and the store's servers", None, "")
MANY: Final = Target("200 tables of 100 rows: startedCommit", 2, "s")
MANY_ACKNOWLEDGED: Final = Target("the same: acknowledge", 3, "s")
MANY_MEMORY: Final = Target("the same: memory over that of one table", 100, "MB")
COMMITS: Final = Target(
    "5,000 commits to one table: median of the last 50 over that of the 50th to 100th", 1.3, "times"
)
COMMITS_METADATA: Final = Target("the same: size of metadata.json", 1, "MB")
SPEC: Final = Target("process start → spec answered", 0.1, "s")
OPENED: Final = Target("process start → opened, 8 tables", 1.0, "s")
FIRST: Final = Target("process start → first startedCommit, 8 tables of 1,000 rows", 3.5, "s")
FILES: Final = Target("1 GB in one transaction: files below half of the target size, per core", 1, "files")
BINDINGS: Final = Target("validate + apply of 200 bindings", 10, "s")
BINDINGS_GROWTH: Final = Target("the same: time of a binding over that of one of 100", 1.1, "times")

TARGETS: Final = (
    COLD,
    WARM,
    TEN_GIGABYTES,
    TEN_GIGABYTES_MEMORY,
    PROCESSOR,
    PROCESSOR_OF_SERVERS,
    MEMORY,
    EIGHT,
    EIGHT_ACKNOWLEDGED,
    EIGHT_ACKNOWLEDGED_CPU,
    EIGHT_ACKNOWLEDGED_SERVERS,
    MANY,
    MANY_ACKNOWLEDGED,
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

Figures: TypeAlias = Mapping[tuple[Target, Column], float]

# The figures that README shows. A speed is in MB/s, with two digits: more are not the same from run to run.
HEADLINES: Final = (
    ("1 GB in one transaction, with Spark up", WARM),
    ("peak memory of all processes, the same", MEMORY),
    ("commit of 8 tables, median", EIGHT_ACKNOWLEDGED),
)


def headlines(figures: Figures, yardstick: float) -> Iterator[str]:
    """Lines of Markdown: the figures of README, for plain rows."""
    yield "| in short | local disk | REST catalog and S3 |"
    yield "|---|---|---|"
    for label, target in HEADLINES:
        measured = [figures.get((target, (catalog, "plain"))) for catalog in PLACES]
        yield f"| {label} | {' | '.join(_headline(target, figure, yardstick) for figure in measured)} |"


def _headline(target: Target, figure: float | None, yardstick: float) -> str:
    if figure is None:
        return "not measured"
    if target.unit == "R":
        return f"{float(f'{figure * yardstick:.2g}'):.0f} MB/s"
    return f"{figure:.0f} MB" if target.unit == "MB" else f"{figure:.2g} {target.unit}"


def table(figures: Figures, yardstick: float) -> Iterator[str]:
    """Lines of Markdown. A figure that misses its target is bold, and its line red; a line is met on the reference when
    all that its figures lack is the speed of one core."""
    heads = [f"{PLACES[catalog]}, {form}" for catalog, form in COLUMNS]
    yield f"| work | must reach | {' | '.join(heads)} | |"
    yield "|---|---|" + "---|" * (len(COLUMNS) + 1)
    for target in TARGETS:
        cells = [_cell(target, figures.get((target, column))) for column in COLUMNS]
        measured = [figures[target, column] for column in COLUMNS if (target, column) in figures]
        verdict = _verdict(target, measured, yardstick)
        limit = "" if target.limit is None else f"{target.limit:g} {target.unit}"
        yield f"| {target.work} | {limit} | {' | '.join(cells)} | {verdict} |"


def _cell(target: Target, figure: float | None) -> str:
    if figure is None:
        return ""
    digits = f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"
    return digits if target.is_met(figure) else f"**{digits}**"


def _verdict(target: Target, measured: Sequence[float], yardstick: float) -> str:
    if not measured:
        return "not measured"
    if target.limit is None:
        return ""
    if all(map(target.is_met, measured)):
        return "met"
    if yardstick and all(target.is_met_on_the_reference(figure, yardstick) for figure in measured):
        return "red; met at the reference's speed"
    return "red"


def replaced(page: str, text: str) -> str:
    """The page with this text between its marks."""
    top, begin, rest = page.partition(BEGIN)
    _, end, bottom = rest.partition(END)
    if not (begin and end):
        sys.exit(f"the page has not both of {BEGIN.strip()} and {END.strip()}: nothing is written")
    return f"{top}{begin}{text}{end}{bottom}"
