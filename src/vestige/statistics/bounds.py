"""Bounds that hold at the sizes people have: few rows, skewed values, a handful of training seeds.

Three kinds of error are kept apart and joined at the end. Rows: `worst_case_bounds`, which needs no normality
and no variance. Training seeds of one role: `jackknife`, with a t quantile. Proportions on the same rows:
`newcombe_paired`. `joined` adds their distances from the estimate in squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from vestige.contracts import Floats, Undefined

__all__ = [
    "LEAST_DRAWS",
    "LEAST_ROWS",
    "Bounds",
    "SeedError",
    "WorstCase",
    "dirichlet_weights",
    "jackknife",
    "joined",
    "joined_satterthwaite",
    "newcombe_paired",
    "unit_mean_bounds",
    "worst_case_bounds",
]

LEAST_ROWS = 10
"""Below this many rows a bound over rows is undefined."""
LEAST_DRAWS = 39
"""The fewest draws B with a 97.5 % quantile among them: (B + 1) 2.5 % is one draw."""
_BLOCK = 2_000_000
"""Entries of one block of weights: 16 MB of float64."""


@dataclass(frozen=True)
class Bounds:
    """A lower and an upper bound around an estimate."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Resampled means of one quantity, completed by the worst value it can have.

    upper, lower (B,): the weighted mean of each draw with the extra row at the largest, at the smallest
    possible value. mean: of the rows themselves. rows: how many.
    """

    mean: float
    upper: Floats
    lower: Floats
    rows: int

    def bounds(self, level: float) -> Bounds:
        """Bounds that each hold with probability `level` (one-sided): 0.975 for a two-sided 95 % interval."""
        return Bounds(float(np.quantile(self.lower, 1 - level)), float(np.quantile(self.upper, level)))

    def p_above(self, threshold: float = 0.0) -> float:
        """One-sided p of `the mean is at most threshold`: the share of draws that do not exceed it.

        In (0, 1]; at B draws at least 1 / (B + 1). The bound of `bounds(1 - p)` is at the threshold.
        """
        return float((1 + np.count_nonzero(self.lower <= threshold)) / (len(self.lower) + 1))


@dataclass(frozen=True)
class SeedError:
    """What the choice of training seeds adds. deviation: standard error of the estimate over them; seeds: how
    many there are, so that the t quantile has seeds - 1 degrees of freedom. One seed: deviation is NaN."""

    deviation: float
    seeds: int

    def half_width(self, level: float) -> float:
        """t quantile times the standard error; NaN with fewer than two seeds. level: one-sided."""
        if self.seeds < 2:
            return math.nan
        return float(stdtrit(self.seeds - 1, level) * self.deviation)


def dirichlet_weights(rows: int, *, draws: int, seed: int) -> Iterator[Floats]:
    """Blocks (b, rows + 1) of weights from a flat Dirichlet distribution; the blocks have `draws` rows
    together.

    Standard exponentials of `default_rng(seed)`, row by row, divided by their sum; the last place is that of
    a row that was not seen.
    """
    generator = np.random.default_rng(seed)
    size = max(1, _BLOCK // (rows + 1))
    for start in range(0, draws, size):
        weights = generator.standard_exponential((min(size, draws - start), rows + 1))
        weights /= weights.sum(axis=1, keepdims=True)
        yield weights


def worst_case_bounds(
    values: ArrayLike,
    lowest: ArrayLike,
    highest: ArrayLike,
    *,
    draws: int,
    seed: int,
    weights: Iterable[Floats] | None = None,
) -> list[WorstCase]:
    """Bounds on the mean of bounded values from few rows, however skewed they are.

    values (N, K): K quantities on the same N rows, or (N,). lowest, highest (K,) or scalars: the smallest and
    largest value that a row, seen or not, can have. Each draw is a weighted mean of the rows *and of one more
    row that has the worst possible value*: a Bayesian bootstrap with a worst case added. For values 0 and 1
    this is the exact Clopper-Pearson bound; no distribution is known for which it fails. Where nothing varies
    in N rows it still leaves room for about 3 / N of rows that were not seen.
    weights: blocks of `dirichlet_weights` with these rows, draws and seed, where a caller keeps them.
    Source: Gaffke 2005; Phan, Thomas and Learned-Miller 2021. Raises ValueError without rows, or for a value
    outside its range.
    """
    table = np.asarray(values, dtype=np.float64)
    table = np.ascontiguousarray(table[:, None] if table.ndim == 1 else table)
    n, k = table.shape
    low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (k,)) for side in (lowest, highest))
    if not n:
        raise ValueError("a bound on a mean needs at least one row")
    slack = 1e-9 * (1 + np.abs(low) + np.abs(high))
    if not np.isfinite(table).all() or (table < low - slack).any() or (table > high + slack).any():
        raise ValueError(f"values outside their range: {table.min(0)} to {table.max(0)}, not {low} to {high}")
    blocks = dirichlet_weights(n, draws=draws, seed=seed) if weights is None else weights
    pairs = [(block[:, :n] @ table, block[:, n]) for block in blocks]
    sums, rest = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return [
        WorstCase(
            mean=float(np.mean(table[:, column])),
            upper=sums[:, column] + rest * high[column],
            lower=sums[:, column] + rest * low[column],
            rows=n,
        )
        for column in range(k)
    ]


def jackknife(statistic: Callable[[NDArray[np.intp]], float], seeds: int) -> SeedError:
    """Standard error of a statistic over training seeds, by leaving out one at a time.

    statistic: indices of the seeds kept, increasing -> value. seeds: how many there are; with one of them
    nothing can be said. Valid for means and for means over pairs (Arvesen 1969).
    """
    if seeds < 2:
        return SeedError(math.nan, seeds)
    everyone = np.arange(seeds)
    left = np.array([statistic(np.delete(everyone, seed)) for seed in everyone])
    return SeedError(float(np.sqrt((seeds - 1) / seeds * np.sum((left - left.mean()) ** 2))), seeds)


def joined(estimate: float, rows: Bounds | None, seeds: Sequence[SeedError], *, level: float) -> Bounds:
    """Bounds for an estimate with several independent sources of error.

    rows: bounds over rows alone, None where rows are all there are (a census). seeds: error of each role's
    training seeds; those with a single seed add nothing, which the reader must be told. The distances of the
    partial bounds from the estimate are added in squares, below and above apart: Zou and Donner 2008. Holds
    at its level or above whatever the seeds' share of the error, from two seeds on.
    """
    halves = [half for error in seeds if not math.isnan(half := error.half_width(level))]
    below = [estimate - rows.low] if rows is not None else []
    above = [rows.high - estimate] if rows is not None else []
    return Bounds(estimate - math.hypot(*below, *halves), estimate + math.hypot(*above, *halves))


def joined_satterthwaite(
    estimate: float, rows: Bounds, seeds: Sequence[SeedError], *, level: float
) -> Bounds:
    """Bounds with one t quantile for the sum of all variances, those over rows taken as known.

    rows: bounds over rows at this one-sided level; without an error over seeds they come back unchanged.
    Degrees of freedom after Satterthwaite 1946. With three seeds of a role and more they hold at 93.8 % or
    above for a level of 95 %, with two seeds at 91.6 % or above, where the seeds' error outweighs the rows';
    `joined` is conservative there, and up to twice as wide.
    """
    known = [error for error in seeds if error.seeds > 1 and error.deviation > 0]
    if not known:
        return rows
    of_seeds = sum(error.deviation**2 for error in known)
    z = NormalDist().inv_cdf(level)

    def half(distance: float) -> float:
        variance = (distance / z) ** 2 + of_seeds
        freedom = variance**2 / sum(error.deviation**4 / (error.seeds - 1) for error in known)
        return float(stdtrit(freedom, level) * math.sqrt(variance))

    return Bounds(estimate - half(estimate - rows.low), estimate + half(rows.high - estimate))


def newcombe_paired(both: int, first_only: int, second_only: int, neither: int, *, level: float) -> Bounds:
    """Interval for the difference of two proportions on the same rows, first minus second, in [-1, 1].

    The four counts are of rows on which both, only the first, only the second, or neither is right; level:
    two-sided. Wilson intervals of the two proportions joined with their correlation: Newcombe 1998b, method
    10. Raises ValueError without rows.
    """
    n = both + first_only + second_only + neither
    if n < 1:
        raise ValueError("an interval of a difference needs at least one row")
    one, two = both + first_only, both + second_only
    z = NormalDist().inv_cdf((1 + level) / 2)
    low1, high1 = _wilson(one, n, z)
    low2, high2 = _wilson(two, n, z)
    p1, p2 = one / n, two / n
    marginal = one * (n - one) * two * (n - two)
    product = float(both * neither - first_only * second_only)
    # The continuity correction of method 10: it moves the correlation towards 0, never across.
    product = max(product - n / 2, 0.0) if product > 0 else product
    phi = product / math.sqrt(marginal) if marginal else 0.0

    def half(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))

    return Bounds(p1 - p2 - half(p1 - low1, high2 - p2), p1 - p2 + half(high1 - p1, p2 - low2))


def unit_mean_bounds(unit_values: ArrayLike, *, level: float) -> Bounds | Undefined:
    """Bounds for units like these: t over the means of units. unit_values (U,); level one-sided.

    Undefined with fewer than two units. Says nothing of the rows inside a unit beyond what its mean carries.
    """
    values = np.asarray(unit_values, dtype=np.float64)
    if len(values) < 2:
        return Undefined(undefined="an interval over units needs at least two, there is one")
    half = stdtrit(len(values) - 1, level) * values.std(ddof=1) / math.sqrt(len(values))
    return Bounds(float(values.mean() - half), float(values.mean() + half))


def _wilson(count: int, n: int, z: float) -> tuple[float, float]:
    p = count / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)
