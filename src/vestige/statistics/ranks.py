"""Area under the ROC curve by ranks, with its chance band."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Interval

__all__ = ["auc", "auc_band"]


def auc(positives: ArrayLike, negatives: ArrayLike) -> float:
    """P(positive > negative) + P(equal) / 2, in [0, 1]. (m,), (n,), neither empty. Mann and Whitney 1947."""
    high, low = np.asarray(positives, dtype=np.float64), np.sort(np.asarray(negatives, dtype=np.float64))
    if not len(high) or not len(low):
        raise ValueError("an AUC needs at least one positive and one negative")
    below = np.searchsorted(low, high, side="left").sum()
    upto = np.searchsorted(low, high, side="right").sum()
    return float((int(below) + int(upto)) / 2 / (len(high) * len(low)))


def auc_band(scores: ArrayLike, positives: int, negatives: int, *, level: float = 0.95) -> Interval:
    """Where the AUC lies by chance: 0.5 +- z standard errors of the Mann-Whitney statistic, given its ties.

    scores (positives + negatives,): all scores, for their ties. Rows count as independent. Nothing is drawn.
    """
    total = positives + negatives
    _, ties = np.unique(np.asarray(scores, dtype=np.float64), return_counts=True)
    tied = float((ties.astype(np.float64) ** 3 - ties).sum())
    variance = (total + 1 - tied / (total * (total - 1))) / (12 * positives * negatives) if total > 1 else 0.0
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(max(variance, 0.0))
    return Interval(
        low=max(0.0, 0.5 - half),
        high=min(1.0, 0.5 + half),
        kind="chance band: normal approximation of the Mann-Whitney statistic, corrected for ties",
        level=level,
        draws=0,
        seed=0,
        condition=f"{positives} members and {negatives} non-members, rows independent",
    )
