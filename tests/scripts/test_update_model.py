"""The cost model of updates is fitted so that it finds the costs that samples were made from."""

import pytest

from benchmarks.update_model import Sample, fit, predict

COSTS = (0.2, 0.86e-6, 16e-6)  # seconds of a transaction, of a row and of a change
SIZES = [(rows, round(rows * share)) for rows in (60_000, 400_000) for share in (0.01, 0.1, 0.5)]


def sample(rows: int, changes: int, factor: float = 1) -> Sample:
    transaction, row, change = COSTS
    return Sample(rows, changes, factor * (transaction + row * rows + change * changes))


def test_a_fit_finds_the_costs_that_samples_were_made_from() -> None:
    assert fit([sample(*size) for size in SIZES]) == pytest.approx(COSTS)


def test_small_transactions_count_as_much_as_large_ones() -> None:
    """The relative errors are small: a fit of the absolute ones would predict small transactions badly."""
    samples = [sample(*size, factor) for size, factor in zip(SIZES, (1, 1, 1.1, 1, 1, 1.1), strict=True)]
    costs = fit(samples)
    assert all(abs(predict(costs, each).predicted_over_measured - 1) < 0.05 for each in samples)


def test_a_prediction_is_compared_with_its_sample() -> None:
    prediction = predict(COSTS, sample(1_000_000, 500_000, 2))
    assert prediction.predicted_over_measured == pytest.approx(0.5)
    assert prediction.predicted_cpu == pytest.approx(0.2 + 0.86 + 8)
