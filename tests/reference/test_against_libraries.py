"""Metrics and statistics against scipy, torchmetrics and statsmodels, where those compute the same thing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import jensenshannon
from scipy.stats import bootstrap

from vestige.metrics import METRICS, calibration_terms, oracle_distance, progress_terms, project_to_simplex
from vestige.statistics import bootstrap_rows, holm, mean_of, ratio_of, value_of


def table(seed: int, rows: int = 400, options: int = 30, sharpness: float = 0.2) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(options, sharpness), rows)


def test_oracle_distance_is_scipys_jensen_shannon_distance_squared() -> None:
    p, q = table(1), table(2)
    expected = jensenshannon(p, q, base=2, axis=1) ** 2
    # scipy does not clip: at most C x 1e-12 of mass differs, times log2(1e12) = 40
    np.testing.assert_allclose(oracle_distance(p, q), expected, rtol=0, atol=30 * 1e-12 * 40)


def test_oracle_distance_is_scipys_to_rounding_where_nothing_is_clipped() -> None:
    p, q = table(1, sharpness=5.0), table(2, sharpness=5.0)
    expected = jensenshannon(p, q, base=2, axis=1) ** 2
    np.testing.assert_allclose(oracle_distance(p, q), expected, rtol=0, atol=1e-13)


def test_accuracy_and_calibration_error_are_torchmetrics() -> None:
    torch = pytest.importorskip("torch")
    classification = pytest.importorskip("torchmetrics.classification")
    p, options = table(3, options=6), 6
    gold = np.random.default_rng(4).integers(0, options, len(p))
    # Its bins are [j/15, (j+1)/15), ours (j/15, (j+1)/15]: the same away from the edges, as here.
    assert np.abs(p.max(axis=1)[:, None] * 15 - np.arange(16)).min() > 1e-4
    probabilities, target = torch.tensor(p), torch.tensor(gold)
    ece = classification.MulticlassCalibrationError(num_classes=options, n_bins=15, norm="l1")
    accuracy = classification.MulticlassAccuracy(num_classes=options, average="micro")
    # It accumulates in float32: 400 rows x 6e-8
    assert value_of(calibration_terms(p, gold)) == pytest.approx(float(ece(probabilities, target)), abs=2e-5)
    found = value_of(METRICS.get("accuracy").compute(p=p, gold=gold))
    assert found == pytest.approx(float(accuracy(probabilities, target)), abs=1e-6)


@pytest.mark.parametrize(
    "p_values", [[0.01, 0.04, 0.03, 0.005], [0.5], [0.2, 0.2, 0.2], [1.0, 0.0, 0.9, 0.3]]
)
def test_holm_is_statsmodels(p_values: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    expected = multitest.multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(holm(p_values), expected, rtol=0, atol=1e-15)


def test_row_interval_of_a_mean_is_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(7).normal(size=160)
    expected = bootstrap(
        (values,),
        np.mean,
        n_resamples=800,
        method="percentile",
        rng=np.random.default_rng(2),
        vectorized=True,
    )
    found = bootstrap_rows({"mean": mean_of(values)}, draws=800, seed=2)["mean"]
    np.testing.assert_allclose(found.draws_values, expected.bootstrap_distribution, rtol=0, atol=1e-13)
    interval = expected.confidence_interval
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-13)


def test_row_intervals_of_ratios_are_scipys_paired_percentile_bootstrap() -> None:
    full = oracle_distance(table(1, 120), table(2, 120))
    after = oracle_distance(0.5 * table(1, 120) + 0.5 * table(2, 120), table(2, 120))
    found = bootstrap_rows(
        {
            "progress": progress_terms(full, after),
            "ratio": ratio_of(after, full, above=0, undefined="no displacement"),
        },
        draws=500,
        seed=1,
    )

    def progress(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return 1 - b.mean(axis=axis) / a.mean(axis=axis)

    expected = bootstrap(
        (full, after),
        progress,
        paired=True,
        n_resamples=500,
        method="percentile",
        rng=np.random.default_rng(1),
        vectorized=True,
    ).bootstrap_distribution
    np.testing.assert_allclose(found["progress"].draws_values, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["ratio"].draws_values, 1 - expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_simplex_projection_solves_the_quadratic_programme(seed: int) -> None:
    v = np.random.default_rng(seed).normal(0, 1, 6)
    solved = minimize(
        lambda x: np.sum((x - v) ** 2),
        np.full(6, 1 / 6),
        jac=lambda x: 2 * (x - v),
        bounds=[(0, None)] * 6,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(6)},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(
        project_to_simplex(v[None])[0], solved.x, rtol=0, atol=1e-6
    )  # SLSQP's accuracy
