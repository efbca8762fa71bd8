"""Correlations of few pairs: what is left out, and what is undefined."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from vestige.contracts import Interval, Undefined
from vestige.language_study.correlations import text_of
from vestige.seeds import generator
from vestige.statistics.correlation import CorrelationPair
from vestige.statistics.correlation import correlation as over_methods

X = np.arange(11.0)
FEW_MOVED = [0.0] * 8 + [1.0, 2.0, 3.0]


def correlation(x: ArrayLike, y: ArrayLike, *, name: str) -> CorrelationPair:
    """Every pair a method of its own."""
    return over_methods(x, y, methods=[f"method {place}" for place in range(len(x))], name=name)


def bca_by_hand(x: np.ndarray, y: np.ndarray, name: str, draws: int) -> tuple[float, float, int]:
    """Efron's interval over the draws in which both differ somewhere, written out; and how many do not."""
    picks = generator("correlation", f"{name}: Pearson").integers(0, len(x), (draws, len(x)))
    drawn = []
    for pick in picks:
        if np.ptp(x[pick]) > 0 and np.ptp(y[pick]) > 0:
            drawn.append(np.corrcoef(x[pick], y[pick])[0, 1])
    values = np.array(drawn)
    point = np.corrcoef(x, y)[0, 1]
    left = [np.corrcoef(np.delete(x, i), np.delete(y, i))[0, 1] for i in range(len(x))]
    away = np.mean(left) - np.array(left)
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    bias = stats.norm.ppf(((values < point).mean() + (values <= point).mean()) / 2)
    ends = []
    for tail in (0.025, 0.975):
        z = bias + stats.norm.ppf(tail)
        ends.append(np.quantile(values, stats.norm.cdf(bias + z / (1 - acceleration * z))))
    return float(ends[0]), float(ends[1]), draws - len(values)


def test_draws_without_spread_are_left_out_and_counted() -> None:
    found = correlation(X, FEW_MOVED, name="few moved").pearson
    low, high, left_out = bca_by_hand(X, np.array(FEW_MOVED), "few moved", 9999)
    assert isinstance(found.interval, Interval)
    assert found.left_out == left_out > 200
    # the bias counts draws that equal the value, some of them but for rounding
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=2e-4)
    assert f"{left_out} draws without spread left out" in found.interval.kind
    assert f"{left_out} of 9999 draws without spread left out" in text_of(found)


def test_with_too_few_draws_left_the_interval_is_undefined() -> None:
    pair = correlation(X, [0.0] * 10 + [1.0], name="one moved")
    for found in (pair.pearson, pair.spearman):
        assert found.value == pytest.approx(0.5)
        assert isinstance(found.interval, Undefined)
        assert f"{found.left_out} of 9999 draws without spread" in found.interval.undefined
        assert found.interval.undefined in text_of(found)


def test_no_draw_is_left_out_where_all_pairs_differ() -> None:
    y = np.random.default_rng(3).normal(size=12)
    found = correlation(np.arange(12.0), y, name="all differ").spearman
    assert found.left_out == 0
    assert "left out" not in text_of(found)


def test_a_perfect_order_has_no_p_by_the_t_approximation() -> None:
    pair = correlation(np.arange(7.0), np.arange(7.0) ** 2, name="perfect")
    assert pair.spearman.value == pytest.approx(1.0)
    assert isinstance(pair.spearman.p, Undefined)
    # All 5,040 orders, of which the one at hand and its reverse are as extreme.
    assert pair.spearman.permutation_p == pytest.approx(2 / 5040)
    assert text_of(pair.spearman).startswith("1.000 (permutation p 0.000397, ")
    assert "nan" not in text_of(pair.spearman)


def test_below_six_methods_there_is_no_p() -> None:
    """Four methods x three checkpoints, perfectly ordered: four cases, not twelve."""
    x = np.repeat([1.0, 2.0, 3.0, 4.0], 3)
    pair = over_methods(x, x + 0.01 * np.arange(12) % 3, methods=[f"m{v:g}" for v in x], name="few methods")
    assert (pair.n, pair.checkpoints) == (4, 12)
    for found in (pair.pearson, pair.spearman):
        assert isinstance(found.value, float)
        for p in (found.p, found.permutation_p):
            assert isinstance(p, Undefined)
            assert p.undefined == "4 methods, needed 6 for a p"
        assert "no p: 4 methods" in text_of(found)


def test_checkpoints_of_unknown_methods_have_neither_p_nor_interval() -> None:
    pair = over_methods(X, X**2, methods=["NPO"] * 10 + [""], name="unknown")
    assert (pair.n, pair.checkpoints) == (11, 11)
    for part in (pair.pearson.p, pair.pearson.permutation_p, pair.pearson.interval):
        assert isinstance(part, Undefined)
        assert "not known" in part.undefined
    with pytest.raises(ValueError, match="one length"):
        over_methods(X, X, methods=["NPO"], name="lengths")


def test_a_p_below_5_percent_is_as_rare_as_it_says_though_methods_come_with_several_checkpoints() -> None:
    """Eight methods x three checkpoints without any relation. Taken as 24 cases, p is small very often."""
    random = np.random.default_rng(8)
    methods = [f"method {place // 3}" for place in range(24)]
    small = plain = 0
    for place in range(150):
        x, y = (np.repeat(random.normal(size=8), 3) + 0.2 * random.normal(size=24) for _ in "xy")
        pair = over_methods(x, y, methods=methods, name=str(place), draws=200)
        small += pair.spearman.permutation_p < 0.05
        plain += stats.spearmanr(x, y).pvalue < 0.05
    assert small / 150 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)
    assert plain / 150 > 0.2
