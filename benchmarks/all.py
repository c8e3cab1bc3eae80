"""Every line of what the connector must reach, measured in one run, as a table for docs/performance.md."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import commits, publishing, spec, stores, targets, transactions
from benchmarks.report import REPOSITORY, conditions, write
from benchmarks.targets import COLUMNS, Baseline, Figures, Unit

PAGE: Final = REPOSITORY / "docs" / "performance.md"
ROWS: Final = 1_000_000  # a gigabyte
COMMITS: Final = 5000
PARTS: Final = ("spec", "stores", "transactions", "publishing", "commits")


@dataclass(frozen=True)
class Line:
    """A line's figure, as it is written to the file."""

    work: str
    must_reach: float | None
    unit: str
    catalog: str
    form: str
    reached: float  # in this unit
    seconds: float | None  # of a time


def main() -> int:
    arguments = _arguments()
    before = conditions()
    given = stores.inputs(stores.FORMS, ROWS)
    parts: dict[str, Callable[[], Iterator[Figures]]] = {
        "spec": _spec,
        "stores": lambda: _stores(given),
        "transactions": _transactions,
        "publishing": _publishing,
        "commits": _commits,
    }
    wanted = [*arguments.only]
    if arguments.ten_gigabytes:
        parts["ten gigabytes"] = lambda: _ten_gigabytes(given)
        wanted.append("ten gigabytes")
    figures: dict[Any, float] = {}
    for name in wanted:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        try:
            for some in parts[name]():
                figures |= some
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other lines are still of use
            print(f"{name}: {error or type(error).__name__}", file=sys.stderr, flush=True)
    _report(before, figures, given, arguments.write)
    return 0


def _report(before: Mapping[str, Any], figures: Figures, given: Sequence[stores.Input], is_written: bool) -> None:
    plain = given[0]
    seconds = plain.rows / plain.yardstick
    baseline = Baseline(plain.megabytes / seconds, seconds)
    load = before["load_before"][0]
    text = (
        f"Measured on {before['measured_at'][:10]}: R is {baseline.megabytes_per_second:.0f} MB/s, so its time is "
        f"{seconds:.1f} s, {before['cores']} cores, load {load:.1f} before the run.\n\n"
        + "\n".join([*targets.headlines(figures, baseline), "", *targets.table(figures, baseline)])
        + "\n"
    )
    print(text)
    write("all", before, [_line(key, figure, baseline) for key, figure in figures.items()])
    if is_written:
        PAGE.write_text(targets.replaced(PAGE.read_text(), text))


def _line(key: tuple[targets.Target, targets.Column], figure: float, baseline: Baseline) -> Line:
    target, (catalog, form) = key
    seconds = figure if target.unit is Unit.TIME else None
    reached = target.express(figure, baseline)
    return Line(target.work, target.limit, target.unit.value, catalog, form, reached, seconds)


def _spec() -> Iterator[Figures]:
    yield {(targets.SPEC, COLUMNS[0]): spec.measure().to_the_answer / 1000}


def _stores(given: Sequence[stores.Input]) -> Iterator[Figures]:
    """Memory is that of both transactions: Spark's first and the one after it."""
    cores = conditions()["cores"]
    for column, source in _by_column(given):
        cold, warm = stores.measure(source, column[0], transactions=2)
        yield {
            (targets.COLD, column): cold.ratio,
            (targets.WARM, column): warm.ratio,
            (targets.PROCESSOR, column): cold.stores_cpu_seconds,
            (targets.PROCESSOR_OF_SERVERS, column): cold.servers_cpu_seconds,
            (targets.MEMORY, column): warm.peak_pss_megabytes,
            (targets.FILES, column): cold.files_below_half_of_the_target / cores,
        }


def _ten_gigabytes(given: Sequence[stores.Input]) -> Iterator[Figures]:
    for column, source in _by_column(given):
        (one,) = stores.measure(source, column[0], transactions=1)
        (ten,) = stores.measure(source.repeated(10), column[0], transactions=1)
        yield {
            (targets.TEN_GIGABYTES, column): ten.ratio,
            (targets.TEN_GIGABYTES_MEMORY, column): ten.peak_pss_megabytes / one.peak_pss_megabytes,
        }


def _by_column(given: Sequence[stores.Input]) -> list[tuple[targets.Column, stores.Input]]:
    forms = {source.form: source for source in given}
    return [(column, forms[column[1]]) for column in COLUMNS]


def _transactions() -> Iterator[Figures]:
    for column in COLUMNS:
        catalog, form = column
        one = transactions.measure(transactions.Load(form, tables=1, rows=100, transactions=5), catalog)
        eight = transactions.measure(transactions.Load(form, tables=8, rows=1000, transactions=30), catalog)
        many = transactions.measure(transactions.Load(form, tables=200, rows=100, transactions=5), catalog)
        yield {
            (targets.OPENED, column): eight.process_start_to_opened,
            (targets.FIRST, column): eight.process_start_to_first_started_commit,
            (targets.EIGHT, column): eight.first_store_to_started_commit_median,
            (targets.EIGHT_ACKNOWLEDGED, column): eight.acknowledge_median,
            (targets.MANY, column): many.first_store_to_started_commit_median,
            (targets.MANY_ACKNOWLEDGED, column): many.acknowledge_median,
            (targets.MANY_MEMORY, column): many.peak_pss_megabytes - one.peak_pss_megabytes,
        }
        if catalog == "rest":
            yield {
                (targets.EIGHT_OWN, column): eight.first_store_to_started_commit_own,
                (targets.EIGHT_ACKNOWLEDGED_OWN, column): eight.acknowledge_own,
                (targets.MANY_OWN, column): many.first_store_to_started_commit_own,
                (targets.MANY_ACKNOWLEDGED_OWN, column): many.acknowledge_own,
            }


def _publishing() -> Iterator[Figures]:
    *_, hundred, two_hundred = publishing.measure("rest", publishing.BINDINGS)
    seconds = two_hundred.validate + two_hundred.apply
    column = ("rest", "plain")
    yield {
        (targets.BINDINGS, column): seconds,
        (targets.BINDINGS_GROWTH, column): seconds / 2 / (hundred.validate + hundred.apply),
    }


def _commits() -> Iterator[Figures]:
    measured = commits.measure(COMMITS)
    yield {
        (targets.COMMITS, COLUMNS[0]): measured.ratio,
        (targets.COMMITS_METADATA, COLUMNS[0]): measured.metadata_json_megabytes,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench all", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, nargs="+", default=PARTS, help="of the lines (commits take half the time)"
    )
    parser.add_argument("--ten-gigabytes", action="store_true", help="these lines too: about ten minutes more")
    parser.add_argument(
        "--write", action="store_true", help="write the tables to docs/performance.md; README shows the short one"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
