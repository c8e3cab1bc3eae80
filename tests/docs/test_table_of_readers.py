"""The table of readers in docs/tested.md keeps what a run did not try again."""

import pytest

from support.catalogs_and_stores import update


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        ("PyIceberg, Spark", "PyIceberg, Spark, DuckDB", "PyIceberg, Spark, DuckDB"),
        ("PyIceberg, Spark", "PyIceberg", "PyIceberg"),
        ("PyIceberg, Spark", "Trino", "PyIceberg, Spark, Trino"),
        ("PyIceberg, Trino", "PyIceberg, Spark", "PyIceberg, Spark, Trino"),
        ("PyIceberg", "Trino, PyIceberg, Spark", "PyIceberg, Spark, Trino"),
    ],
)
def test_a_cell_names_the_usual_engines_of_this_run_and_the_slow_ones_of_any(before: str, by: str, after: str) -> None:
    assert update(before, by) == after
