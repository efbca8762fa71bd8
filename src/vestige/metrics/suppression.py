"""Probability mass left on forgotten options, and how much of it was taken away."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Metric, RowTerms
from vestige.metrics import METRICS
from vestige.metrics.arrays import forgotten_columns, probability_rows
from vestige.statistics.terms import mean_of, ratio_of

__all__ = ["SMALLEST_REMOVAL", "forgotten_mass"]

SMALLEST_REMOVAL = 1e-9


def forgotten_mass(p: ArrayLike, forgotten: ArrayLike) -> Floats:
    """Probability of all forgotten options together. (N, C), (C,) bool -> (N,) in [0, 1]."""
    rows = probability_rows(p)
    return np.asarray(rows[:, forgotten_columns(forgotten, rows.shape[1])].sum(axis=1), dtype=np.float64)


def _forgotten_mass(*, p: Floats, forgotten: NDArray[np.bool_]) -> RowTerms:
    return mean_of(forgotten_mass(p, forgotten))


def _suppression(*, p: Floats, full: Floats, oracle: Floats, forgotten: NDArray[np.bool_]) -> RowTerms:
    before = forgotten_mass(full, forgotten)
    return ratio_of(
        before - forgotten_mass(p, forgotten),
        before - forgotten_mass(oracle, forgotten),
        above=SMALLEST_REMOVAL,
        undefined="retraining removes no forgotten mass",
    )


METRICS.register(
    Metric(
        name="forgotten_mass",
        title="Forgotten mass",
        definition="mean probability of all forgotten options together",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "R"),
        needs=("p", "forgotten"),
        compute=_forgotten_mass,
    )
)
METRICS.register(
    Metric(
        name="suppression",
        title="Suppression ratio",
        definition=(
            "forgotten mass removed by unlearning over that removed by retraining, summed over rows; 1 is as "
            "much as retraining; class deletion only; undefined when retraining removes at most 1e-9"
        ),
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "FG"),
        needs=("p", "full", "oracle", "forgotten"),
        compute=_suppression,
    )
)
