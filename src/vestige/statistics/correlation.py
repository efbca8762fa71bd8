"""Pearson and Spearman correlations over a few methods, with p-values and BCa intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from vestige.contracts import Floats, Interval, Record, Undefined
from vestige.seeds import generator, stable_seed

__all__ = ["CORRELATION_DRAWS", "UNKNOWN", "Correlation", "CorrelationPair", "correlation"]

CORRELATION_DRAWS = 9999
LEAST_PAIRS = 3
LEAST_FOR_INTERVAL = 5
LEAST_FOR_P = 6
"""Methods; five change places in 120 ways."""
UNKNOWN = Undefined(undefined="which checkpoints share a method is not known")
LEAST_DEFINED = 0.9
"""Share of the draws that must have a coefficient for an interval of them."""


class Correlation(Record):
    """One coefficient in [-1, 1].

    permutation_p: two-sided, whole methods changing places; None in records made before there was one. p:
    the published one, two-sided, against none (Pearson: normal errors; Spearman: t, which has no p at -1
    and 1). left_out: draws in which x or y was the same everywhere, without a coefficient."""

    value: float | Undefined
    p: float | Undefined
    permutation_p: float | Undefined | None = None
    interval: Interval | Undefined
    left_out: int = 0


class CorrelationPair(Record):
    """Both coefficients of n methods.

    checkpoints: that were averaged by method; None in records made before they were, in which n counts
    checkpoints.
    """

    n: int
    checkpoints: int | None = None
    pearson: Correlation
    spearman: Correlation


def correlation(
    x: ArrayLike, y: ArrayLike, *, methods: Sequence[str], name: str, draws: int = CORRELATION_DRAWS
) -> CorrelationPair:
    """Correlations of x and y over methods, (n,) each, finite, one a checkpoint.

    methods: that of each checkpoint, "" where nobody knows. Checkpoints of one method are no independent
    cases: they are averaged, and a method is one pair. p: of permutations of whole methods, all of them or
    9,999 drawn by `name`, and as published. Intervals: 95 % BCa bootstrap over methods. Where a method is
    not known, coefficients are over checkpoints, without p or interval.

    Undefined below 3 pairs and where x or y is constant; p alone below 6 methods; the interval alone below 5,
    where fewer than nine in ten draws have a coefficient, or where leaving one pair out leaves none. Ties of
    Spearman share their mean rank. Efron 1987; Fisher 1935 (permutations).
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or len(methods) != len(first):
        raise ValueError(
            f"needed three lists of one length, found {first.shape}, {second.shape} and {len(methods)}"
        )
    count, known = len(first), all(methods)
    if known:
        first, second = (_by_method(values, methods) for values in (first, second))
    n = len(first)
    reason = ""
    if n < LEAST_PAIRS:
        reason = f"{n} {'methods' if known else 'pairs'}, needed {LEAST_PAIRS}"
    elif np.ptp(first) == 0 or np.ptp(second) == 0:
        reason = "one of the two is the same everywhere"
    if reason:
        none = Undefined(undefined=reason)
        absent = Correlation(value=none, p=none, permutation_p=none, interval=none)
        return CorrelationPair(n=n, checkpoints=count, pearson=absent, spearman=absent)
    return CorrelationPair(
        n=n,
        checkpoints=count,
        pearson=_one(stats.pearsonr, first, second, f"{name}: Pearson", draws, known),
        spearman=_one(stats.spearmanr, first, second, f"{name}: Spearman", draws, known),
    )


def _by_method(values: Floats, methods: Sequence[str]) -> Floats:
    """Mean of each method, in the order in which they first occur."""
    return np.array(
        [
            np.mean([value for value, own in zip(values, methods, strict=True) if own == method])
            for method in dict.fromkeys(methods)
        ]
    )


def _one(test: Callable[..., Any], x: Floats, y: Floats, name: str, draws: int, known: bool) -> Correlation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant input: said by the value itself
        found = test(x, y)
    if not math.isfinite(found.statistic):
        none = Undefined(undefined="one of the two hardly differs anywhere")
        return Correlation(value=none, p=none, permutation_p=none, interval=none)
    value = float(found.statistic)
    if not known:
        return Correlation(value=value, p=UNKNOWN, permutation_p=UNKNOWN, interval=UNKNOWN)
    ranked = test is stats.spearmanr
    interval, left_out = _interval(ranked, x, y, name, draws)
    if len(x) < LEAST_FOR_P:
        few = Undefined(undefined=f"{len(x)} methods, needed {LEAST_FOR_P} for a p")
        return Correlation(value=value, p=few, permutation_p=few, interval=interval, left_out=left_out)
    perfect = ranked and math.isclose(abs(value), 1, abs_tol=1e-12)
    return Correlation(
        value=value,
        p=Undefined(undefined="the t approximation has none") if perfect else float(found.pvalue),
        permutation_p=_permuted(ranked, x, y, name, draws),
        interval=interval,
        left_out=left_out,
    )


def _permuted(ranked: bool, x: Floats, y: Floats, name: str, draws: int) -> float:
    """Two-sided p when methods keep their x and change places in y; all orders where there are fewer."""
    if ranked:
        x, y = stats.rankdata(x), stats.rankdata(y)
    coefficient = _coefficient(False)
    found = stats.permutation_test(
        (y,),
        lambda other, axis: coefficient(np.broadcast_to(x, other.shape), other, axis),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=draws,
        rng=generator("correlation permutations", name),
    )
    return float(found.pvalue)


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
        return Undefined(undefined=f"{len(x)} methods, needed {LEAST_FOR_INTERVAL} for an interval"), 0
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
    kind = "BCa bootstrap over methods"
    if left_out:
        kind += f", {left_out} draws without spread left out"
    interval = Interval(
        low=low,
        high=high,
        kind=kind,
        draws=draws,
        seed=stable_seed("correlation", name),
        condition="these checkpoints, one training run and one attack of each; averaged by method",
    )
    return interval, left_out
