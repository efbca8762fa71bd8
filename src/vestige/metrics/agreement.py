"""How two models' decisions and distributions differ, row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Metric, RowTerms
from vestige.decision.choices import same_choice
from vestige.metrics import METRICS
from vestige.metrics.arrays import paired
from vestige.statistics.terms import mean_of

__all__ = ["activation_distance", "same_decision", "total_variation"]


def same_decision(p: ArrayLike, q: ArrayLike) -> NDArray[np.bool_]:
    """Whether both models choose the same option, or tie between the same ones. (N, C), (N, C) -> (N,)."""
    return same_choice(*paired(p, q, "decisions"))


def total_variation(p: ArrayLike, q: ArrayLike) -> Floats:
    """Half the L1 distance. (N, C), (N, C) -> (N,) in [0, 1]."""
    first, second = paired(p, q, "total variation")
    return np.asarray(np.abs(first - second).sum(axis=1) / 2, dtype=np.float64)


def activation_distance(p: ArrayLike, q: ArrayLike) -> Floats:
    """L2 distance of output distributions. (N, C), (N, C) -> (N,) in [0, sqrt 2]. Golatkar et al. 2021."""
    first, second = paired(p, q, "activation distance")
    gap = first - second
    return np.asarray(np.sqrt(np.einsum("nc,nc->n", gap, gap)), dtype=np.float64)


def _completeness(*, p: Floats, oracle: Floats) -> RowTerms:
    return mean_of(same_decision(p, oracle))


def _churn(*, p: Floats, full: Floats) -> RowTerms:
    return mean_of(~same_decision(p, full))


def _total_variation(*, p: Floats, oracle: Floats) -> RowTerms:
    return mean_of(total_variation(p, oracle))


def _activation_distance(*, p: Floats, oracle: Floats) -> RowTerms:
    return mean_of(activation_distance(p, oracle))


METRICS.register(
    Metric(
        name="completeness",
        title="Completeness",
        definition="share of rows where the model and the oracle choose the same option",
        source="Cao and Yang 2015",
        direction="higher",
        views=("F", "G", "R"),
        needs=("p", "oracle"),
        compute=_completeness,
    )
)
METRICS.register(
    Metric(
        name="churn",
        title="Churn",
        definition="share of rows where the model and the full model choose different options",
        source="Milani Fard et al. 2016",
        direction="",
        views=("F", "G", "R"),
        needs=("p", "full"),
        compute=_churn,
    )
)
METRICS.register(
    Metric(
        name="total_variation",
        title="Total variation",
        definition="mean half L1 distance to the oracle",
        source="standard",
        direction="lower",
        views=("F", "G", "R"),
        needs=("p", "oracle"),
        compute=_total_variation,
    )
)
METRICS.register(
    Metric(
        name="activation_distance",
        title="Activation distance",
        definition="mean L2 distance of the output distribution to the oracle's",
        source="Golatkar et al. 2021",
        direction="lower",
        views=("F", "G", "R"),
        needs=("p", "oracle"),
        compute=_activation_distance,
    )
)
