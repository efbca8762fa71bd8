"""Pearson and Spearman correlations of few pairs, with p-values and BCa intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from vestige.contracts import Floats, Interval, Record, Undefined
from vestige.seeds import generator, stable_seed

__all__ = ["CORRELATION_DRAWS", "Correlation", "CorrelationPair", "correlation"]

CORRELATION_DRAWS = 9999
LEAST_PAIRS = 3
LEAST_FOR_INTERVAL = 5


class Correlation(Record):
    """One coefficient in [-1, 1]. p: two-sided, against none (Pearson: normal errors; Spearman: t)."""

    value: float | Undefined
    p: float | Undefined
    interval: Interval | Undefined


class CorrelationPair(Record):
    """Both coefficients of the same n pairs."""

    n: int
    pearson: Correlation
    spearman: Correlation


def correlation(x: ArrayLike, y: ArrayLike, *, name: str, draws: int = CORRELATION_DRAWS) -> CorrelationPair:
    """Correlations of x and y, (n,) each, finite. Intervals: 95 % BCa bootstrap over pairs, drawn by `name`.

    Undefined below 3 pairs and where x or y is constant; the interval alone below 5 pairs, or where the
    bootstrap has none. Ties of Spearman share their mean rank. Efron 1987.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"needed two lists of one length, found {first.shape} and {second.shape}")
    n = len(first)
    reason = ""
    if n < LEAST_PAIRS:
        reason = f"{n} pairs, needed {LEAST_PAIRS}"
    elif np.ptp(first) == 0 or np.ptp(second) == 0:
        reason = "one of the two is the same everywhere"
    if reason:
        none = Undefined(undefined=reason)
        absent = Correlation(value=none, p=none, interval=none)
        return CorrelationPair(n=n, pearson=absent, spearman=absent)
    return CorrelationPair(
        n=n,
        pearson=_one(stats.pearsonr, first, second, f"{name}: Pearson", draws),
        spearman=_one(stats.spearmanr, first, second, f"{name}: Spearman", draws),
    )


def _one(test: Callable[..., Any], x: Floats, y: Floats, name: str, draws: int) -> Correlation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant input: said by the value itself
        found = test(x, y)
    return Correlation(
        value=float(found.statistic), p=float(found.pvalue), interval=_interval(test, x, y, name, draws)
    )


def _interval(test: Callable[..., Any], x: Floats, y: Floats, name: str, draws: int) -> Interval | Undefined:
    if len(x) < LEAST_FOR_INTERVAL:
        return Undefined(undefined=f"{len(x)} pairs, needed {LEAST_FOR_INTERVAL} for an interval")
    ranked = test is stats.spearmanr

    def coefficient(a: Floats, b: Floats, axis: int = -1) -> Floats:
        if ranked:
            a, b = stats.rankdata(a, axis=axis), stats.rankdata(b, axis=axis)
        a, b = a - a.mean(axis=axis, keepdims=True), b - b.mean(axis=axis, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            value: Floats = (a * b).sum(axis=axis) / np.sqrt((a * a).sum(axis=axis) * (b * b).sum(axis=axis))
        return np.nan_to_num(value, nan=0.0)  # a draw without spread says nothing: no correlation

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            (x, y),
            coefficient,
            paired=True,
            vectorized=True,
            n_resamples=draws,
            method="BCa",
            rng=generator("correlation", name),
        )
    low, high = (float(value) for value in result.confidence_interval)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Undefined(undefined="the BCa interval of these pairs does not exist")
    return Interval(
        low=low,
        high=high,
        kind="BCa bootstrap over checkpoints",
        draws=draws,
        seed=stable_seed("correlation", name),
        condition="these checkpoints, one training run and one attack of each",
    )
