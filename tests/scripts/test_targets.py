"""What the benchmarks have measured becomes the table of what must be reached."""

import pytest

from benchmarks import targets

BASELINE = targets.Baseline(megabytes_per_second=75.0, seconds=13.5)
FIGURES = {
    (targets.COLD, ("local", "plain")): 1.36,
    (targets.COLD, ("rest", "packed")): 1.1,
    (targets.MEMORY, ("local", "plain")): 650.0,
    (targets.OPENED, ("local", "plain")): 1.12,
    (targets.EIGHT, ("local", "plain")): 0.147,
    (targets.PROCESSOR_OF_SERVERS, ("rest", "plain")): 1.25,
}


def line_of(target: targets.Target, baseline: targets.Baseline = BASELINE) -> list[str]:
    (line,) = [line for line in targets.table(FIGURES, baseline) if line.startswith(f"| {target.work} |")]
    return [cell.strip() for cell in line.split("|")[3:-1]]


def test_each_line_says_what_it_measures_in_its_own_words() -> None:
    assert len({target.work for target in targets.TARGETS}) == len(targets.TARGETS)


def test_a_speed_is_at_least_its_target_and_one_that_is_not_makes_its_line_red() -> None:
    assert line_of(targets.COLD) == ["1.36", "", "", "**1.1**", "red"]


def test_all_else_is_at_most_its_target() -> None:
    assert line_of(targets.MEMORY) == ["650", "", "", "", "met"]


def test_seconds_become_multiples_of_the_time_of_the_baseline() -> None:
    assert line_of(targets.OPENED) == ["**0.083**", "", "", "", "red"]
    assert line_of(targets.EIGHT) == ["0.0109", "", "", "", "met"]


def test_a_machine_of_half_the_speed_has_the_same_line() -> None:
    half = targets.Baseline(BASELINE.megabytes_per_second / 2, BASELINE.seconds * 2)
    doubled = {key: 2 * figure if key[0].unit is targets.Unit.TIME else figure for key, figure in FIGURES.items()}
    assert [*targets.table(doubled, half)] == [*targets.table(FIGURES, BASELINE)]


def test_a_limit_says_which_ratio_it_is() -> None:
    limits = dict(line.split(" | ")[:2] for line in targets.table(FIGURES, BASELINE) if " | " in line)
    assert limits[f"| {targets.COLD.work}"] == "1.2 times R's speed"
    assert limits[f"| {targets.OPENED.work}"] == "0.06 times R's time"


def test_what_explains_another_line_is_neither_met_nor_red() -> None:
    assert line_of(targets.PROCESSOR_OF_SERVERS) == ["", "", "0.0926", "", ""]


def test_what_was_not_measured_is_said_so() -> None:
    assert line_of(targets.TEN_GIGABYTES) == ["", "", "", "", "not measured"]


def test_only_the_text_between_the_marks_of_the_page_is_replaced() -> None:
    page = f"before\n{targets.BEGIN}old\n{targets.END}after\n"
    assert targets.replaced(page, "new\n") == f"before\n{targets.BEGIN}new\n{targets.END}after\n"


def test_a_page_without_marks_is_left_alone() -> None:
    with pytest.raises(SystemExit, match="nothing is written"):
        targets.replaced(f"before\n{targets.BEGIN}old\n", "new\n")


def test_the_short_table_has_speeds_in_bytes_and_says_what_was_not_measured() -> None:
    figures = {
        **FIGURES,
        (targets.WARM, ("rest", "plain")): 1.91,
        (targets.EIGHT_ACKNOWLEDGED, ("rest", "plain")): 0.214,
    }
    _, _, *lines = targets.headlines(figures, BASELINE)
    assert [line.split(" | ")[1:] for line in lines] == [
        ["not measured", "140 MB/s |"],
        ["650 MB", "not measured |"],
        ["not measured", "0.21 s |"],
    ]
