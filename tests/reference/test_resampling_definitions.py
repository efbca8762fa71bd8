"""Bootstraps and adjusted p-values against loops that draw, copy rows and compute the statistic anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_metrics import ece
from slow_resampling import hierarchical_bootstrap, holm, row_bootstrap, unit_bootstrap

from vestige import statistics
from vestige.metrics import calibration_terms
from vestige.statistics import (
    Cell,
    bootstrap_rows,
    bootstrap_two_views,
    bootstrap_units,
    bootstrap_units_two_views,
    mean_of,
    ratio_of,
)

TOLERANCE = 1e-12


def example(rows: int = 23) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "value": rng.normal(size=rows),
        "weight": rng.uniform(0.1, 1, rows),
        "p": rng.dirichlet(np.full(4, 0.5), rows),
        "gold": rng.integers(0, 4, rows),
        "unit": np.array(["b", "a", "c, d"])[rng.integers(0, 3, rows)],
    }


def items(data: dict[str, np.ndarray]) -> dict[str, statistics.BootstrapResult]:
    return {
        "mean": mean_of(data["value"]),
        "ratio": ratio_of(data["value"], data["weight"], above=0, undefined="nothing"),
        "ece": calibration_terms(data["p"], data["gold"]),
    }


def slow(data: dict[str, np.ndarray]) -> dict[str, object]:
    return {
        "mean": lambda rows: np.mean(data["value"][rows]),
        "ratio": lambda rows: np.sum(data["value"][rows]) / np.sum(data["weight"][rows]),
        "ece": lambda rows: ece(data["p"][rows].tolist(), data["gold"][rows].tolist()),
    }


@pytest.mark.parametrize("name", ["mean", "ratio", "ece"])
def test_row_bootstrap_equals_explicit_resampling(name: str) -> None:
    data = example()
    found = bootstrap_rows(items(data), draws=200, seed=1)[name]
    expected = row_bootstrap(slow(data)[name], 23, 200, 1)
    np.testing.assert_allclose(found.draws_values, expected, rtol=0, atol=TOLERANCE)
    assert found.estimate == pytest.approx(slow(data)[name](np.arange(23)), abs=TOLERANCE)
    assert (found.low, found.high) == pytest.approx(
        tuple(np.percentile(expected, [2.5, 97.5])), abs=TOLERANCE
    )


@pytest.mark.parametrize("name", ["mean", "ratio", "ece"])
def test_unit_bootstrap_equals_explicit_resampling_of_whole_units(name: str) -> None:
    data = example()
    found = bootstrap_units(items(data), data["unit"], draws=200, seed=101)[name]
    expected = unit_bootstrap(slow(data)[name], data["unit"].tolist(), 200, 101)
    np.testing.assert_allclose(found.draws_values, expected, rtol=0, atol=TOLERANCE)
    assert found.n == 3


def test_two_views_are_drawn_apart_by_rows() -> None:
    f, g = example(23), example(11)
    found = bootstrap_two_views(
        {"ratio": items(f)["ratio"]}, {"ratio": items(g)["ratio"]}, draws=200, seed_first=1, seed_second=2
    )["ratio"]
    rows_f = np.random.default_rng(1).integers(0, 23, (200, 23))
    rows_g = np.random.default_rng(2).integers(0, 11, (200, 11))
    expected = [
        (f["value"][a].sum() + g["value"][b].sum()) / (f["weight"][a].sum() + g["weight"][b].sum())
        for a, b in zip(rows_f, rows_g, strict=True)
    ]
    np.testing.assert_allclose(found.draws_values, expected, rtol=0, atol=TOLERANCE)


def test_two_views_draw_each_unit_once_with_its_rows_of_both() -> None:
    f, g = example(23), example(11)
    found = bootstrap_units_two_views(
        {"ratio": items(f)["ratio"]}, {"ratio": items(g)["ratio"]}, f["unit"], g["unit"], draws=200, seed=101
    )["ratio"]
    value, weight = np.r_[f["value"], g["value"]], np.r_[f["weight"], g["weight"]]
    expected = unit_bootstrap(
        lambda rows: value[rows].sum() / weight[rows].sum(), [*f["unit"], *g["unit"]], 200, 101
    )
    np.testing.assert_allclose(found.draws_values, expected, rtol=0, atol=TOLERANCE)


def test_hierarchical_bootstrap_equals_nested_loops_on_a_ragged_grid() -> None:
    rng = np.random.default_rng(0)
    gains = {
        "17": {"01": rng.normal(size=4), "02": rng.normal(size=3)},
        "42": {"01": rng.normal(size=2)},
        "99": {"01": rng.normal(size=4), "02": rng.normal(size=1), "03": rng.normal(size=5)},
    }
    cells = [Cell(s, b, units) for s, bundles in gains.items() for b, units in bundles.items()]
    found = statistics.hierarchical_bootstrap(cells[::-1], draws=300, seed=201)
    np.testing.assert_allclose(
        found.draws_values, hierarchical_bootstrap(gains, 300, 201), rtol=0, atol=TOLERANCE
    )
    expected = np.mean([np.mean([np.mean(u) for u in bundles.values()]) for bundles in gains.values()])
    assert found.estimate == pytest.approx(expected, abs=TOLERANCE)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=0, max_size=12))
def test_holm_equals_its_definition(p_values: list[float]) -> None:
    assert statistics.holm(p_values).tolist() == pytest.approx(holm(p_values), abs=1e-15)
