"""The cost model of updates is fitted so that it finds the costs that samples were made from."""

from dataclasses import replace

import pytest

from benchmarks.update_model import Reached, Sample, fit, predict

# Seconds of a transaction, of a file, of a row, of a page of documents and of a change.
COSTS = (0.2, 0.002, 0.1e-6, 0.4e-3, 16e-6)
SIZES = [
    (rows, files, rows / 1900 * pages, round(rows * share))
    for rows in (60_000, 400_000)
    for files in (2, 40)
    for share, pages in ((0.0001, 0.2), (0.01, 1), (0.1, 1), (0.5, 1))
]


def sample(rows: int, files: int, pages: float, changes: int, factor: float = 1) -> Sample:
    unmeasured = Sample(rows, "random", changes, Reached(files, rows, pages), 0)
    return replace(
        unmeasured, cpu=factor * sum(cost * term for cost, term in zip(COSTS, unmeasured.terms, strict=True))
    )


def test_a_fit_finds_the_costs_that_samples_were_made_from() -> None:
    assert fit([sample(*size) for size in SIZES]) == pytest.approx(COSTS)


def test_small_transactions_count_as_much_as_large_ones() -> None:
    """The relative errors are small: a fit of the absolute ones would predict small transactions badly."""
    samples = [sample(*size, factor=1.1 if size[-1] * 2 == size[0] else 1) for size in SIZES]
    costs = fit(samples)
    assert all(abs(predict(costs, each).predicted_over_measured - 1) < 0.05 for each in samples)


def test_no_part_of_a_transaction_has_a_negative_cost() -> None:
    """Rows and pages grow together, so noise could give one of them the cost of both, and more."""
    samples = [sample(*size) for size in SIZES]
    noisy = [replace(each, cpu=each.cpu - 0.0006 * each.reached.pages) for each in samples]
    assert min(fit(noisy)) == 0


def test_a_prediction_is_compared_with_its_sample() -> None:
    prediction = predict(COSTS, sample(1_000_000, 10, 500, 500_000, factor=2))
    assert prediction.predicted_over_measured == pytest.approx(0.5)
    assert prediction.predicted_cpu == pytest.approx(0.2 + 0.02 + 0.1 + 0.2 + 8)
