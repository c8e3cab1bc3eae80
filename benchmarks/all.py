"""Every line of what the connector must reach, measured in one run. `scripts/bench tables` writes runs to the docs."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from benchmarks import commits, publishing, spec, stores, transactions
from benchmarks.parts import targets
from benchmarks.parts.report import conditions, write
from benchmarks.parts.targets import COLUMNS, Baseline, Measured

ROWS: Final = 1_000_000  # a gigabyte
COMMITS: Final = 5000
PARTS: Final = ("spec", "stores", "transactions", "publishing", "commits")

# Rows/s, seconds, or the other units of the lines.
_Raw: TypeAlias = Mapping[targets.Line, float]


@dataclass(frozen=True)
class Figure:
    """A line's figure, as it is written to the file."""

    work: str
    catalog: str
    form: str
    reached: float  # in the unit of the line
    must_reach: float | None
    unit: str
    measured: Measured


def main() -> int:
    arguments = _arguments()
    before = conditions()
    given = stores.inputs(stores.FORMS, ROWS)
    parts: dict[str, Callable[[], Iterator[_Raw]]] = {
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
    figures: dict[targets.Line, Measured] = {}
    baseline = given[0].baseline
    for name in wanted:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        try:
            for some in parts[name]():
                # The speed of a shared machine changes within minutes: R is measured before and after each column.
                before_it, baseline = baseline, stores.measure_baseline(given[0].path, ROWS)
                beside = _mean(before_it, baseline)
                figures |= {line: Measured(figure, beside) for line, figure in some.items()}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other lines are still of use
            print(f"{name}: {error or type(error).__name__}", file=sys.stderr, flush=True)
    print("\n".join(targets.table({line: (measured,) for line, measured in figures.items()})))
    write("all", before, [figure_of(line, measured) for line, measured in figures.items()])
    return 0


def _mean(one: Baseline, other: Baseline) -> Baseline:
    seconds, cpu_seconds = one.seconds + other.seconds, one.cpu_seconds + other.cpu_seconds
    return Baseline(one.rows, one.megabytes, seconds / 2, cpu_seconds / 2)


def figure_of(line: targets.Line, measured: Measured) -> Figure:
    target, (catalog, form) = line
    reached = measured.express(target.unit)
    return Figure(target.work, catalog, form, reached, target.limit, target.unit.value, measured)


def _spec() -> Iterator[_Raw]:
    yield {(targets.SPEC, COLUMNS[0]): spec.measure().to_the_answer / 1000}


def _stores(given: Sequence[stores.Input]) -> Iterator[_Raw]:
    """Memory is that of both transactions: Spark's first and the one after it."""
    cores = conditions()["cores"]
    for column, source in _by_column(given):
        cold, warm = stores.measure(source, column[0], transactions=2)
        yield {
            (targets.COLD, column): cold.rows_per_second,
            (targets.WARM, column): warm.rows_per_second,
            (targets.PROCESSOR, column): cold.stores_cpu_seconds,
            (targets.PROCESSOR_OF_SERVERS, column): cold.servers_cpu_seconds,
            (targets.MEMORY, column): warm.peak_pss_megabytes,
            (targets.FILES, column): cold.files_below_half_of_the_target / cores,
        }


def _ten_gigabytes(given: Sequence[stores.Input]) -> Iterator[_Raw]:
    for column, source in _by_column(given):
        (one,) = stores.measure(source, column[0], transactions=1)
        (ten,) = stores.measure(source.repeated(10), column[0], transactions=1)
        yield {
            (targets.TEN_GIGABYTES, column): ten.rows_per_second,
            (targets.TEN_GIGABYTES_MEMORY, column): ten.peak_pss_megabytes / one.peak_pss_megabytes,
        }


def _by_column(given: Sequence[stores.Input]) -> list[tuple[targets.Column, stores.Input]]:
    forms = {source.form: source for source in given}
    return [(column, forms[column[1]]) for column in COLUMNS]


def _transactions() -> Iterator[_Raw]:
    for column in COLUMNS:
        catalog, form = column
        one = transactions.measure(transactions.Load(form, tables=1, rows=100, transactions=5), catalog)
        eight = transactions.measure(transactions.Load(form, tables=8, rows=1000, transactions=30), catalog)
        many = transactions.measure(transactions.Load(form, tables=200, rows=100, transactions=5), catalog)
        figures = {
            targets.OPENED: eight.process_start_to_opened,
            targets.FIRST: eight.process_start_to_first_started_commit,
            targets.EIGHT: eight.first_store_to_started_commit_median,
            targets.EIGHT_ACKNOWLEDGED: eight.acknowledge_median,
            targets.MANY: many.first_store_to_started_commit_median,
            targets.MANY_ACKNOWLEDGED: many.acknowledge_median,
            targets.MANY_MEMORY: many.peak_pss_megabytes - one.peak_pss_megabytes,
        }
        own = {
            targets.EIGHT_OWN: eight.first_store_to_started_commit_own,
            targets.EIGHT_ACKNOWLEDGED_OWN: eight.acknowledge_own,
            targets.MANY_OWN: many.first_store_to_started_commit_own,
            targets.MANY_ACKNOWLEDGED_OWN: many.acknowledge_own,
        }
        yield {(target, column): figure for target, figure in (figures | (own if catalog == "rest" else {})).items()}


def _publishing() -> Iterator[_Raw]:
    *_, hundred, two_hundred = publishing.measure("rest", publishing.BINDINGS)
    seconds = two_hundred.validate + two_hundred.apply
    column = ("rest", "plain")
    yield {
        (targets.BINDINGS, column): seconds,
        (targets.BINDINGS_GROWTH, column): seconds / 2 / (hundred.validate + hundred.apply),
    }


def _commits() -> Iterator[_Raw]:
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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
