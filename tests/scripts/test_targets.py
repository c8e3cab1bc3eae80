"""What the benchmarks have measured becomes the table of what must be reached."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.all import figure_of
from benchmarks.parts import report, targets

BASELINE = targets.Baseline(rows=1000, megabytes=1000.0, seconds=12.5, cpu_seconds=10.0)
RAW = {
    (targets.COLD, ("local", "plain")): 108.8,  # rows/s, where R has 80
    (targets.COLD, ("rest", "packed")): 88.0,
    (targets.MEMORY, ("local", "plain")): 650.0,
    (targets.OPENED, ("local", "plain")): 1.04,
    (targets.EIGHT, ("local", "plain")): 0.136,
    (targets.PROCESSOR_OF_SERVERS, ("rest", "plain")): 1.16,
}


def measured(*figures: float) -> list[targets.Measured]:
    return [targets.Measured(figure, BASELINE) for figure in figures]


FIGURES = {line: measured(figure) for line, figure in RAW.items()}


def line_of(target: targets.Target, figures: targets.Figures = FIGURES) -> list[str]:
    (line,) = [line for line in targets.table(figures) if line.startswith(f"| {target.work} |")]
    return [cell.strip() for cell in line.split("|")[3:-1]]


def test_each_line_says_what_it_measures_in_its_own_words() -> None:
    assert len({target.work for target in targets.TARGETS}) == len(targets.TARGETS)


def test_a_speed_is_at_least_its_target_and_one_that_is_not_makes_its_line_red() -> None:
    assert line_of(targets.COLD) == ["1.36", "", "", "**1.1**", "red"]


def test_all_else_is_at_most_its_target() -> None:
    assert line_of(targets.MEMORY) == ["650", "", "", "", "met"]


def test_seconds_become_multiples_of_the_time_of_the_baseline() -> None:
    assert line_of(targets.OPENED) == ["**0.0832**", "", "", "", "red"]
    assert line_of(targets.EIGHT) == ["0.0109", "", "", "", "met"]


def test_a_machine_that_is_half_as_fast_for_one_column_has_the_same_line() -> None:
    slow = replace(BASELINE, seconds=BASELINE.seconds * 2, cpu_seconds=BASELINE.cpu_seconds * 2)
    factors = {targets.Unit.TIME: 2.0, targets.Unit.PROCESSOR_TIME: 2.0, targets.Unit.SPEED: 0.5}
    figures = {
        line: [targets.Measured(fast.figure * factors.get(line[0].unit, 1), slow)]
        if line[1] == ("local", "plain")
        else [fast]
        for line, [fast] in FIGURES.items()
    }
    assert [*targets.table(figures)] == [*targets.table(FIGURES)]


def test_a_limit_says_which_ratio_it_is() -> None:
    limits = dict(line.split(" | ")[:2] for line in targets.table(FIGURES) if " | " in line)
    assert limits[f"| {targets.COLD.work}"] == "1.2 times R's speed"
    assert limits[f"| {targets.OPENED.work}"] == "0.06 times R's time"


def test_processor_time_is_compared_with_that_of_the_baseline() -> None:
    busy = {(targets.PROCESSOR, ("local", "plain")): [targets.Measured(11.0, replace(BASELINE, seconds=40.0))]}
    assert line_of(targets.PROCESSOR, busy) == ["1.1", "", "", "", "met"]


def test_what_explains_another_line_is_neither_met_nor_red() -> None:
    assert line_of(targets.PROCESSOR_OF_SERVERS) == ["", "", "0.116", "", ""]


def test_what_was_not_measured_is_said_so() -> None:
    assert line_of(targets.TEN_GIGABYTES) == ["", "", "", "", "not measured"]


def test_of_several_runs_the_median_is_what_must_reach_the_target() -> None:
    runs = {
        (targets.MEMORY, ("local", "plain")): [targets.Measured(figure, BASELINE) for figure in (700.0, 600.0, 640.0)]
    }
    assert line_of(targets.MEMORY, runs) == ["640 (600 to 700)", "", "", "", "met"]
    slower = {line: [*some, *measured(900)] for line, some in runs.items()}
    assert line_of(targets.MEMORY, slower) == ["**670** (600 to 900)", "", "", "", "red"]


def test_a_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "REPOSITORY", tmp_path)
    report.write("all", report.conditions(), [figure_of(line, some) for line, [some] in FIGURES.items()])
    (path,) = tmp_path.iterdir()
    assert tables.gather([json.loads(path.read_text())]) == FIGURES


def test_the_page_has_the_figures_of_the_runs() -> None:
    page = tables.PAGE.read_text()
    assert targets.replaced(page, tables.describe(tables.read_runs())) == page


def test_only_the_text_between_the_marks_of_the_page_is_replaced() -> None:
    page = f"before\n{targets.BEGIN}old\n{targets.END}after\n"
    assert targets.replaced(page, "new\n") == f"before\n{targets.BEGIN}new\n{targets.END}after\n"


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(SystemExit, match="nothing is written"):
        targets.replaced(f"before\n{targets.BEGIN}old\n", "new\n")


def test_the_short_table_has_speeds_in_bytes_and_says_what_was_not_measured() -> None:
    figures = {
        **FIGURES,
        (targets.WARM, ("rest", "plain")): measured(141),
        (targets.EIGHT_ACKNOWLEDGED, ("rest", "plain")): [
            targets.Measured(figure, BASELINE) for figure in (0.1, 0.214, 0.3)
        ],
    }
    _, _, *lines = targets.headlines(figures)
    assert [line.split(" | ")[1:] for line in lines] == [
        ["not measured", "140 MB/s |"],
        ["650 MB", "not measured |"],
        ["not measured", "0.21 s |"],
    ]
