"""Building blocks of additive statistics: means, ratios and differences of them.

A statistic is a `RowTerms`: per-row terms whose sums a function finishes. Everything that is resampled is
written this way, so that one matrix product serves all statistics of a view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, RowTerms, Undefined

__all__ = [
    "ReasonedTerms",
    "difference",
    "divide",
    "mean_of",
    "ratio_of",
    "reason_of",
    "stack_rows",
    "sum_terms",
    "value_of",
]

NO_ROWS = "no rows"


@dataclass(frozen=True)
class ReasonedTerms(RowTerms):
    """RowTerms that also say why their value would not exist (`undefined`, printed after `undefined: `)."""

    undefined: str = NO_ROWS


def divide(numerator: Floats, denominator: Floats, *, above: float = 0.0) -> Floats:
    """numerator / denominator elementwise, NaN wherever the denominator is not greater than `above`."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > above)
    return result


def mean_of(values: ArrayLike) -> RowTerms:
    """The mean of per-row values. values (N,), finite; terms (N, 2): value and 1. NaN without rows."""
    column = np.asarray(values, dtype=np.float64)
    terms = np.stack([column, np.ones_like(column)], axis=-1)
    return ReasonedTerms(terms, lambda sums: divide(sums[..., 0], sums[..., 1]))


def ratio_of(numerator: ArrayLike, denominator: ArrayLike, *, above: float, undefined: str) -> RowTerms:
    """Ratio of sums, never the mean of row ratios. numerator, denominator (N,).

    NaN where the sum of the denominator is at most `above`; `undefined` says so in words.
    """
    terms = np.stack([np.asarray(numerator, float), np.asarray(denominator, float)], axis=-1)
    return ReasonedTerms(terms, lambda sums: divide(sums[..., 0], sums[..., 1], above=above), undefined)


def difference(first: RowTerms, second: RowTerms) -> RowTerms:
    """First statistic minus second, on the same rows and therefore under the same draws.

    Both (N, K1) and (N, K2) with equal N; terms (N, K1 + K2). Raises ValueError when the row counts differ.
    """
    if len(first.terms) != len(second.terms):
        raise ValueError(
            f"a paired difference needs the same rows: {len(first.terms)} and {len(second.terms)}"
        )
    width = first.terms.shape[1]

    def finish(sums: Floats) -> Floats:
        return np.asarray(first.finish(sums[..., :width])) - np.asarray(second.finish(sums[..., width:]))

    return ReasonedTerms(np.hstack([first.terms, second.terms]), finish, reason_of(first))


def stack_rows(first: RowTerms, second: RowTerms) -> RowTerms:
    """The same statistic over the rows of two views together: (N1, K) and (N2, K) -> (N1 + N2, K)."""
    return ReasonedTerms(np.vstack([first.terms, second.terms]), first.finish, reason_of(first))


def sum_terms(terms: Floats) -> Floats:
    """Column sums (N, K) -> (K,), each by pairwise summation: sum / N equals `np.mean` of that column."""
    return np.asarray(np.ascontiguousarray(terms.T).sum(axis=-1), dtype=np.float64)


def reason_of(item: RowTerms) -> str:
    """Why this statistic would be undefined."""
    return item.undefined if isinstance(item, ReasonedTerms) else "the statistic has no value on these rows"


def value_of(item: RowTerms) -> float | Undefined:
    """The statistic on all its rows, or Undefined with the reason."""
    if not len(item.terms):
        return Undefined(undefined=NO_ROWS)
    value = float(item.finish(sum_terms(item.terms)))
    return Undefined(undefined=reason_of(item)) if math.isnan(value) else value
