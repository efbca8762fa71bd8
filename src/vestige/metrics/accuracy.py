"""Accuracy: on retained rows, its change, and on the rows that were to be forgotten."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Metric, RowTerms
from vestige.decision.choices import is_right
from vestige.metrics import METRICS
from vestige.metrics.arrays import gold_columns, probability_rows
from vestige.statistics.terms import mean_of

__all__ = ["correct"]


def correct(p: ArrayLike, gold: ArrayLike) -> NDArray[np.bool_]:
    """Whether gold is the one most probable option; a tie counts as wrong. (N, C), (N,) -> (N,)."""
    rows = probability_rows(p)
    return is_right(rows, gold_columns(gold, rows.shape))


def _accuracy(*, p: Floats, gold: NDArray[np.intp]) -> RowTerms:
    return mean_of(correct(p, gold))


def _delta_accuracy(*, p: Floats, full: Floats, gold: NDArray[np.intp]) -> RowTerms:
    return mean_of(correct(p, gold).astype(np.float64) - correct(full, gold))


METRICS.register(
    Metric(
        name="accuracy",
        title="Accuracy",
        definition="share of retained rows whose most probable option is gold; a tie counts as wrong",
        source="standard",
        direction="higher",
        views=("R",),
        needs=("p", "gold"),
        compute=_accuracy,
    )
)
METRICS.register(
    Metric(
        name="delta_accuracy",
        title="Change of accuracy",
        definition="accuracy of the model minus that of the full model, same rows; feasible from -0.02 up",
        source="Wu and Lim 2026",
        direction="higher",
        views=("R",),
        needs=("p", "full", "gold"),
        compute=_delta_accuracy,
    )
)
METRICS.register(
    Metric(
        name="forgotten_accuracy",
        title="Forgotten accuracy",
        definition="share of rows to forget whose most probable option is still gold; a tie counts as wrong",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G"),
        needs=("p", "gold"),
        compute=_accuracy,
    )
)
