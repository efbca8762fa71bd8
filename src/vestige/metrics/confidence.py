"""How sure a model is: gold probability, confidence, margin."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Metric, RowTerms
from vestige.metrics import METRICS
from vestige.metrics.arrays import gold_columns, probability_rows
from vestige.statistics.terms import mean_of

__all__ = ["gold_probability", "margin"]


def gold_probability(p: ArrayLike, gold: ArrayLike) -> Floats:
    """Probability of the gold option. (N, C), (N,) columns -> (N,) in [0, 1]."""
    rows = probability_rows(p)
    return rows[np.arange(len(rows)), gold_columns(gold, rows.shape)]


def margin(p: ArrayLike) -> Floats:
    """Largest minus second largest probability. (N, C) -> (N,) in [0, 1]; one option alone has margin 1."""
    rows = probability_rows(p)
    if rows.shape[1] == 1:
        return rows[:, 0].copy()
    two = np.partition(rows, rows.shape[1] - 2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0], dtype=np.float64)


def _gold_probability(*, p: Floats, gold: NDArray[np.intp]) -> RowTerms:
    return mean_of(gold_probability(p, gold))


def _confidence(*, p: Floats) -> RowTerms:
    return mean_of(probability_rows(p).max(axis=1))


def _margin(*, p: Floats) -> RowTerms:
    return mean_of(margin(p))


METRICS.register(
    Metric(
        name="gold_probability",
        title="Gold probability",
        definition="mean probability of the gold option",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "R"),
        needs=("p", "gold"),
        compute=_gold_probability,
    )
)
METRICS.register(
    Metric(
        name="confidence",
        title="Confidence",
        definition="mean probability of the most probable option",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "R"),
        needs=("p",),
        compute=_confidence,
    )
)
METRICS.register(
    Metric(
        name="margin",
        title="Margin",
        definition="mean difference between the largest and the second largest probability",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "R"),
        needs=("p",),
        compute=_margin,
    )
)
