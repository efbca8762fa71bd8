"""Pearson and Spearman correlations of few pairs, with p-values and BCa intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
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
LEAST_DEFINED = 0.9
"""Share of the draws that must have a coefficient for an interval of them."""


class Correlation(Record):
    """One coefficient in [-1, 1]. p: two-sided, against none (Pearson: normal errors; Spearman: t, which has
    no p at -1 and 1). left_out: draws in which x or y was the same everywhere, without a coefficient."""

    value: float | Undefined
    p: float | Undefined
    interval: Interval | Undefined
    left_out: int = 0


class CorrelationPair(Record):
    """Both coefficients of the same n pairs."""

    n: int
    pearson: Correlation
    spearman: Correlation


def correlation(x: ArrayLike, y: ArrayLike, *, name: str, draws: int = CORRELATION_DRAWS) -> CorrelationPair:
    """Correlations of x and y, (n,) each, finite. Intervals: 95 % BCa bootstrap over pairs, drawn by `name`.

    Undefined below 3 pairs and where x or y is constant; the interval alone below 5 pairs, where fewer than
    nine in ten draws have a coefficient, or where leaving one pair out leaves none. Ties of Spearman share
    their mean rank. Efron 1987.
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
    if not math.isfinite(found.statistic):
        none = Undefined(undefined="one of the two hardly differs anywhere")
        return Correlation(value=none, p=none, interval=none)
    ranked = test is stats.spearmanr
    perfect = ranked and math.isclose(abs(found.statistic), 1, abs_tol=1e-12)
    interval, left_out = _interval(ranked, x, y, name, draws)
    return Correlation(
        value=float(found.statistic),
        p=Undefined(undefined="the t approximation has none") if perfect else float(found.pvalue),
        interval=interval,
        left_out=left_out,
    )


def _coefficient(ranked: bool) -> Callable[..., Floats]:
    """(x, y, axis) -> Pearson's or Spearman's coefficient along the axis; NaN where either is constant."""

    def coefficient(a: Floats, b: Floats, axis: int = -1) -> Floats:
        constant = (np.ptp(a, axis=axis) == 0) | (np.ptp(b, axis=axis) == 0)
        if ranked:
            a, b = stats.rankdata(a, axis=axis), stats.rankdata(b, axis=axis)
        a, b = a - a.mean(axis=axis, keepdims=True), b - b.mean(axis=axis, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = (a * b).sum(axis=axis) / np.sqrt((a * a).sum(axis=axis) * (b * b).sum(axis=axis))
        return np.where(constant, np.nan, value)

    return coefficient


def _interval(ranked: bool, x: Floats, y: Floats, name: str, draws: int) -> tuple[Interval | Undefined, int]:
    """The interval over the draws that have a coefficient, and how many have none."""
    if len(x) < LEAST_FOR_INTERVAL:
        return Undefined(undefined=f"{len(x)} pairs, needed {LEAST_FOR_INTERVAL} for an interval"), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # draws without a coefficient: counted below
        drawn = stats.bootstrap(
            (x, y),
            _coefficient(ranked),
            paired=True,
            vectorized=True,
            n_resamples=draws,
            method="percentile",
            rng=generator("correlation", name),
        )
        values = drawn.bootstrap_distribution
        defined = values[np.isfinite(values)]
        left_out = len(values) - len(defined)
        if len(defined) < LEAST_DEFINED * draws:
            reason = f"{left_out} of {draws} draws without spread: too many of the pairs are equal"
            return Undefined(undefined=reason), left_out
        result = stats.bootstrap(
            (x, y),
            _coefficient(ranked),
            paired=True,
            vectorized=True,
            n_resamples=0,
            method="BCa",
            bootstrap_result=replace(drawn, bootstrap_distribution=defined),
        )
    low, high = (float(value) for value in result.confidence_interval)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Undefined(undefined="the BCa interval of these pairs does not exist"), left_out
    kind = "BCa bootstrap over checkpoints"
    if left_out:
        kind += f", {left_out} draws without spread left out"
    interval = Interval(
        low=low,
        high=high,
        kind=kind,
        draws=draws,
        seed=stable_seed("correlation", name),
        condition="these checkpoints, one training run and one attack of each",
    )
    return interval, left_out
