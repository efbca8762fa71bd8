"""The move of unlearning split along and across the move of retraining. Descriptive: no causal claim."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Metric, RowTerms
from vestige.errors import InputError
from vestige.metrics import METRICS
from vestige.metrics.arrays import paired
from vestige.metrics.oracle import js2
from vestige.statistics.terms import ReasonedTerms, divide, mean_of

__all__ = ["ZERO_MOVE", "Geometry", "decompose", "project_to_simplex"]

ZERO_MOVE = 1e-28
"""Squared length up to which a row's oracle move is rounding: counted as zero, never divided by."""
_UNMOVED = "the oracle does not move on these rows"


@dataclass(frozen=True, eq=False)
class Geometry:
    """Each row's unlearning move in terms of its oracle move.

    du = p - full and do = oracle - full (N, C); inner = <du, do>, do2 = |do|^2, coefficient a = inner / do2
    (0 where do is zero), residual r = du - a do (N, C), residual2 = |r|^2, each (N,).
    """

    full: Floats
    oracle: Floats
    du: Floats
    do: Floats
    inner: Floats
    do2: Floats
    zero: np.ndarray[tuple[int], np.dtype[np.bool_]]
    coefficient: Floats
    residual: Floats
    residual2: Floats

    @property
    def zero_rows(self) -> int:
        """Rows where retraining moves nothing."""
        return int(self.zero.sum())

    @cached_property
    def squared_error(self) -> Floats:
        """|du - do|^2 = |p - oracle|^2 of each row, (N,) in [0, 2]."""
        gap = self.du - self.do
        return np.asarray(np.einsum("nc,nc->n", gap, gap), dtype=np.float64)

    @property
    def identity_error(self) -> float:
        """Largest error over rows of |du - do|^2 = (a - 1)^2 |do|^2 + |r|^2; 0.0 without rows."""
        split = (self.coefficient - 1) ** 2 * self.do2 + self.residual2
        return float(np.abs(self.squared_error - split).max(initial=0.0))

    def magnitude_only(self) -> Floats:
        """full + a do, projected onto the simplex, (N, C): the oracle's direction at the model's size."""
        return project_to_simplex(self.full + self.coefficient[:, None] * self.do)

    def residual_only(self) -> Floats:
        """oracle + r, projected onto the simplex, (N, C): the oracle's size with the model's side move."""
        return project_to_simplex(self.oracle + self.residual)


def decompose(p: ArrayLike, full: ArrayLike, oracle: ArrayLike) -> Geometry:
    """The decomposition of each row. p, full, oracle (N, C), rows sum to 1. Wu and Lim 2026."""
    after, before = paired(p, full, "geometry")
    target, before = paired(oracle, before, "geometry")
    du, do = after - before, target - before
    inner = np.einsum("nc,nc->n", du, do)
    do2 = np.einsum("nc,nc->n", do, do)
    zero = do2 <= ZERO_MOVE
    coefficient = np.divide(inner, do2, out=np.zeros_like(inner), where=~zero)
    residual = du - coefficient[:, None] * do
    residual2 = np.einsum("nc,nc->n", residual, residual)
    return Geometry(before, target, du, do, inner, do2, zero, coefficient, residual, residual2)


def project_to_simplex(v: ArrayLike) -> Floats:
    """Euclidean projection of each row onto the probability simplex, exact by sorting. (N, C) -> (N, C).

    Raises InputError for another shape or NaN and infinite entries. Held, Wolfe and Crowder 1974.
    """
    rows = np.asarray(v, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 1 or not np.isfinite(rows).all():
        raise InputError(
            "simplex projection",
            f"an array of shape {rows.shape}, finite: {bool(np.isfinite(rows).all())}",
            "finite rows x options",
            "pass one row an example",
        )
    rows = rows - rows.max(axis=1, keepdims=True)  # a shift of a row changes nothing and keeps sums exact
    ordered = -np.sort(-rows, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1
    rank = np.arange(1, rows.shape[1] + 1)
    support = (ordered * rank > excess).sum(axis=1)
    shift = excess[np.arange(len(rows)), support - 1] / support
    return np.asarray(np.maximum(rows - shift[:, None], 0.0), dtype=np.float64)


def _aligned_coefficient(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    split = decompose(p, full, oracle)
    terms = np.stack([split.inner, split.do2], axis=1)
    terms[split.zero] = 0.0
    return ReasonedTerms(terms, lambda sums: divide(sums[..., 0], sums[..., 1]), _UNMOVED)


def _relative_residual(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    split = decompose(p, full, oracle)
    terms = np.stack([split.residual2, np.where(split.zero, 0.0, split.do2)], axis=1)
    return ReasonedTerms(terms, lambda sums: np.sqrt(divide(sums[..., 0], sums[..., 1])), _UNMOVED)


def _squared_error(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    return mean_of(decompose(p, full, oracle).squared_error)


def _magnitude_only(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    return mean_of(js2(decompose(p, full, oracle).magnitude_only(), oracle))


def _residual_only(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    return mean_of(js2(decompose(p, full, oracle).residual_only(), oracle))


METRICS.register(
    Metric(
        name="aligned_coefficient",
        title="Aligned coefficient",
        definition="sum of <dU, dO> over sum of |dO|^2: the share of the oracle's move that was made",
        source="Wu and Lim 2026",
        direction="",
        views=("F", "G", "FG"),
        needs=("p", "full", "oracle"),
        compute=_aligned_coefficient,
    )
)
METRICS.register(
    Metric(
        name="relative_residual",
        title="Relative residual",
        definition="square root of sum |r|^2 over sum |dO|^2: the move beside the oracle's direction",
        source="Wu and Lim 2026",
        direction="lower",
        views=("F", "G", "FG"),
        needs=("p", "full", "oracle"),
        compute=_relative_residual,
    )
)
METRICS.register(
    Metric(
        name="squared_error",
        title="Squared error to the oracle",
        definition="mean over rows of |p - p_oracle|^2",
        source="Wu and Lim 2026",
        direction="lower",
        views=("F", "G"),
        needs=("p", "full", "oracle"),
        compute=_squared_error,
    )
)
METRICS.register(
    Metric(
        name="magnitude_only_distance",
        title="Oracle distance, magnitude only",
        definition="oracle distance of full + a dO on the simplex; not one summand of the oracle distance",
        source="Wu and Lim 2026",
        direction="lower",
        views=("F", "G"),
        needs=("p", "full", "oracle"),
        compute=_magnitude_only,
    )
)
METRICS.register(
    Metric(
        name="residual_only_distance",
        title="Oracle distance, residual only",
        definition="oracle distance of oracle + r on the simplex; not one summand of the oracle distance",
        source="Wu and Lim 2026",
        direction="lower",
        views=("F", "G"),
        needs=("p", "full", "oracle"),
        compute=_residual_only,
    )
)
