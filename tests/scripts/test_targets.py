"""What the benchmarks have measured becomes the table of what must be reached."""

import pytest

from benchmarks import targets

FIGURES = {
    (targets.COLD, ("local", "plain")): 1.36,
    (targets.COLD, ("rest", "packed")): 1.1,
    (targets.MEMORY, ("local", "plain")): 650.0,
    (targets.PROCESSOR, ("local", "plain")): 20.5,
    (targets.EIGHT_ACKNOWLEDGED_SERVERS, ("rest", "plain")): 0.74,
}


def line_of(target: targets.Target, yardstick: float = 70.0) -> list[str]:
    (line,) = [line for line in targets.table(FIGURES, yardstick) if line.startswith(f"| {target.work} |")]
    return [cell.strip() for cell in line.split("|")[3:-1]]


def test_a_speed_is_at_least_its_target_and_one_that_is_not_makes_its_line_red() -> None:
    assert line_of(targets.COLD) == ["1.36", "", "", "**1.1**", "red"]


def test_all_else_is_at_most_its_target() -> None:
    assert line_of(targets.MEMORY) == ["650", "", "", "", "met"]


@pytest.mark.parametrize(("yardstick", "verdict"), [(70.0, "red; met at the reference's speed"), (100.0, "red")])
def test_seconds_are_also_judged_as_they_would_be_where_the_targets_were_set(yardstick: float, verdict: str) -> None:
    assert line_of(targets.PROCESSOR, yardstick)[-1] == verdict


def test_what_explains_another_line_is_neither_met_nor_red() -> None:
    assert line_of(targets.EIGHT_ACKNOWLEDGED_SERVERS) == ["", "", "0.74", "", ""]


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
    _, _, *lines = targets.headlines(figures, yardstick=75.0)
    assert [line.split(" | ")[1:] for line in lines] == [
        ["not measured", "140 MB/s |"],
        ["650 MB", "not measured |"],
        ["not measured", "0.21 s |"],
    ]
