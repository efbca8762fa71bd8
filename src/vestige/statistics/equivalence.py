"""Equivalence to retraining: the remaining distance against what two retrainings differ by."""

from __future__ import annotations

import numpy as np

from vestige.contracts import RowTerms, Undefined
from vestige.statistics.bootstrap import LEVEL, BootstrapResult
from vestige.statistics.terms import difference

__all__ = ["EQUIVALENCE_MARGIN", "MIN_ORACLES", "equivalent", "excess_distance", "upper_bound"]

EQUIVALENCE_MARGIN = 0.02
MIN_ORACLES = 3


def excess_distance(distance: RowTerms, noise: RowTerms) -> RowTerms:
    """OD(U) - noise_oracle as one statistic over the same rows, so that both share every draw.

    distance: oracle distance of the unlearned model; noise: mean over pairs of oracles; means over N rows.
    """
    return difference(distance, noise)


def upper_bound(result: BootstrapResult, *, level: float = LEVEL) -> float | Undefined:
    """One-sided upper bound: the `level` quantile of the resamples (not an end of the two-sided interval)."""
    defined = result.draws_values[~np.isnan(result.draws_values)]
    if result.n < 2 or not len(defined):
        return Undefined(undefined=result.reason if not result.n else "a bound needs at least two rows")
    return float(np.quantile(defined, level))


def equivalent(
    bound_f: float | Undefined,
    bound_g: float | Undefined,
    *,
    oracles: int,
    margin: float = EQUIVALENCE_MARGIN,
) -> bool | Undefined:
    """Whether the model is shown to be equivalent to retraining: both upper bounds at most the margin.

    bound_f, bound_g: one-sided upper 95 % bounds of `excess_distance` on F and G. oracles: how many oracle
    seeds the noise comes from; fewer than 3 leave it undefined. False means not shown, not shown to differ.
    """
    if oracles < MIN_ORACLES:
        return Undefined(
            undefined=f"equivalence needs at least {MIN_ORACLES} oracle seeds, there are {oracles}"
        )
    if isinstance(bound_f, Undefined):
        return bound_f
    if isinstance(bound_g, Undefined):
        return bound_g
    return max(bound_f, bound_g) <= margin
