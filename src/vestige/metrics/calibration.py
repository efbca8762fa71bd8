"""Expected calibration error, its change, and the bins of the reliability diagram."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Metric, ReliabilityBin, RowTerms, Undefined
from vestige.metrics import METRICS
from vestige.metrics.accuracy import correct
from vestige.metrics.arrays import probability_rows
from vestige.statistics.terms import ReasonedTerms, difference, divide

__all__ = ["BINS", "calibration_terms", "confidence_bin", "reliability_bins"]

BINS = 15
_EDGES = np.arange(BINS + 1) / BINS


def confidence_bin(confidence: ArrayLike) -> NDArray[np.intp]:
    """Bin of each top probability: j for (j/15, (j+1)/15], 0 for 0. (N,) in [0, 1] -> (N,) in 0..14."""
    place = np.searchsorted(_EDGES, np.asarray(confidence, float), side="left") - 1
    return np.clip(place, 0, BINS - 1)


def calibration_terms(p: ArrayLike, gold: ArrayLike) -> RowTerms:
    """Expected calibration error, in [0, 1]: sum over bins of |sum of (correct - confidence)| / N.

    p (N, C), gold (N,) columns; 15 equal bins (j/15, (j+1)/15] of the top probability. terms (N, 16): the
    signed gap in its bin's column, and 1. An empty bin adds nothing. Guo et al. 2017, with these bins.
    """
    rows = probability_rows(p)
    confidence = rows.max(axis=1)
    terms = np.zeros((len(rows), BINS + 1))
    terms[np.arange(len(rows)), confidence_bin(confidence)] = correct(rows, gold) - confidence
    terms[:, BINS] = 1.0
    return ReasonedTerms(terms, lambda sums: divide(np.abs(sums[..., :BINS]).sum(axis=-1), sums[..., BINS]))


def reliability_bins(p: ArrayLike, gold: ArrayLike) -> tuple[ReliabilityBin, ...]:
    """The 15 bins of the reliability diagram: rows, mean top probability, accuracy (Undefined when empty)."""
    rows = probability_rows(p)
    confidence, hit = rows.max(axis=1), correct(rows, gold)
    place = confidence_bin(confidence)
    bins = []
    for j in range(BINS):
        inside = place == j
        empty = Undefined(undefined="no rows in this bin")
        bins.append(
            ReliabilityBin(
                low=float(_EDGES[j]),
                high=float(_EDGES[j + 1]),
                rows=int(inside.sum()),
                confidence=float(confidence[inside].mean()) if inside.any() else empty,
                accuracy=float(hit[inside].mean()) if inside.any() else empty,
            )
        )
    return tuple(bins)


def _ece(*, p: Floats, gold: NDArray[np.intp]) -> RowTerms:
    return calibration_terms(p, gold)


def _delta_ece(*, p: Floats, full: Floats, gold: NDArray[np.intp]) -> RowTerms:
    return difference(calibration_terms(p, gold), calibration_terms(full, gold))


METRICS.register(
    Metric(
        name="ece",
        title="Expected calibration error",
        definition="mean gap between top probability and accuracy over 15 equal bins (j/15, (j+1)/15]",
        source="Guo et al. 2017",
        direction="lower",
        views=("R",),
        needs=("p", "gold"),
        compute=_ece,
    )
)
METRICS.register(
    Metric(
        name="delta_ece",
        title="Change of calibration error",
        definition="calibration error of the model minus that of the full model; feasible up to +0.02",
        source="Wu and Lim 2026",
        direction="lower",
        views=("R",),
        needs=("p", "full", "gold"),
        compute=_delta_ece,
    )
)
