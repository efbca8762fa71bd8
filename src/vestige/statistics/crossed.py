"""The mean of a seeds x units table whose seeds and units both stand for others, with its uncertainty.

The same units recur at every training seed, so seeds and units are crossed, not nested: a unit that is
hard to unlearn is hard at each of ten seeds, and ten seeds tell no more about other units than one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from vestige.contracts import Floats, Interval, Undefined

__all__ = ["CrossedMean", "Part", "combined_quantile", "crossed_mean"]

LEVEL = 0.95


@dataclass(frozen=True)
class Part:
    """Squared standard error of an estimate from one source, and the degrees of freedom behind it.

    variance: at least 0, in squared units of the estimate. df: above 0; infinite for a known variance.
    """

    variance: float
    df: float


def combined_quantile(parts: Sequence[Part], confidence: float) -> float:
    """The t quantile for an estimate whose variance is the sum of independent parts.

    parts: at least one; with all variances 0 the smallest degrees of freedom count. confidence:
    one-sided, for example 0.975 for each end of a 95 % interval. Returns the mean of the parts' own t
    quantiles, weighted by their variances (Cochran and Cox 1950). Satterthwaite's degrees of freedom
    would be the narrower choice and cover 88 % in place of 95 % where one part has a single degree of
    freedom and the other has many: two seeds and forty units.
    """
    if not parts or not 0 < confidence < 1:
        raise ValueError("a combined quantile needs at least one part and a confidence between 0 and 1")
    quantiles = [float(stdtrit(part.df, confidence)) for part in parts]
    total = math.fsum(part.variance for part in parts)
    if total <= 0:
        return max(quantiles, key=abs)
    return math.fsum(q * part.variance for q, part in zip(quantiles, parts, strict=True)) / total


@dataclass(frozen=True)
class CrossedMean:
    """The mean of a seeds x units table with what other seeds and other units would change.

    seed, unit: squared standard error over seeds and over units; each holds the interaction's share once, so
    `variance` takes it off once. seed alone bounds the mean for these very units, unit alone for these very
    seeds. seeds, units, cells: how many went in.
    """

    estimate: float
    seed: Part
    unit: Part
    interaction: float
    seeds: int
    units: int
    cells: int

    @property
    def variance(self) -> float:
        """Squared standard error over seeds and units, never below either part alone."""
        both = self.seed.variance + self.unit.variance - self.interaction
        return max(both, self.seed.variance, self.unit.variance)

    def half_width(self, confidence: float) -> float:
        """How far a bound of this one-sided confidence lies from the estimate."""
        return combined_quantile((self.seed, self.unit), confidence) * math.sqrt(self.variance)

    def interval(self, condition: str, *, level: float = LEVEL) -> Interval:
        """The two-sided interval as a record. Nothing is drawn, so its draws and seed are 0."""
        half = self.half_width((1 + level) / 2)
        return Interval(
            low=self.estimate - half,
            high=self.estimate + half,
            kind=f"t interval over {self.seeds} training seeds and {self.units} units, crossed",
            level=level,
            draws=0,
            seed=0,
            condition=condition,
        )


def crossed_mean(values: ArrayLike, weights: ArrayLike | None = None) -> CrossedMean | Undefined:
    """Weighted mean over seeds and units, both random, with its two-way variance.

    values (S, U): one number a seed and unit; NaN where the seed does not have the unit (another bundle, a
    missing run). weights (S, U): at least 0, not all 0, any scale; equal where not given. NaN cells weigh 0.
    The order of the seeds changes nothing, to the last bit.

    Model: value = mean + seed + unit + interaction, each drawn independently. The interaction's variance
    comes from the residuals of the additive fit; those of seeds and units from the spread of seed means
    and unit means about the whole, solved so that each is free of the others. On a complete table with
    equal weights this is var(seed means) / S + var(unit means) / U - residual mean square / (S U), all
    plug-in (the two-way analysis of variance; Owen 2007 for crossed sampling). Bounds:
    `combined_quantile`.

    Undefined with one seed, one unit, or where seeds and units hang together so loosely that the parts cannot
    be told apart. Where no unit recurs at another seed the seeds are independent and their spread holds
    everything; where no seed has two units, likewise the units'. Raises ValueError for infinite values or
    misshapen or negative weights.
    """
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ValueError(f"needed a table (seeds, units) of finite numbers or NaN, found shape {table.shape}")
    given = np.ones_like(table) if weights is None else np.array(weights, dtype=np.float64)
    if given.shape != table.shape or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(f"weights must be finite, at least 0 and of shape {table.shape}")
    present = np.isfinite(table) & (given > 0)
    table, given = (_used(item, present) for item in (np.where(present, table, 0.0), given * present))
    order = np.lexsort(np.concatenate([table, given], axis=1).T)
    table, given = table[order], given[order]
    present = given > 0
    seeds, units = table.shape if table.size else (0, 0)
    if seeds < 2:
        return Undefined(undefined="one training run: how another would come out is not known")
    if units < 2:
        return Undefined(undefined="one unit: how others would come out is not known")
    share = given / given.sum()
    mean = float((share * table).sum())
    seed_spread, seed_loads, seed_df = _spread(table, share, mean)
    unit_spread, unit_loads, unit_df = _spread(table.T, share.T, mean)
    of_seeds, of_units = float((share.sum(axis=1) ** 2).sum()), float((share.sum(axis=0) ** 2).sum())
    square = float((share**2).sum())
    interaction, df = _residual(table, present)
    if df > 0:
        # spread = own load * own variance + the other's load * its variance + cell load * interaction
        loads = np.array([[seed_loads[0], seed_loads[1]], [unit_loads[1], unit_loads[0]]])
        spreads = np.array([seed_spread, unit_spread]) - interaction * np.array(
            [seed_loads[2], unit_loads[2]]
        )
        if np.linalg.cond(loads) < 1e8:
            seed_variance, unit_variance = np.linalg.solve(loads, spreads)
            shared = interaction * square
            seed = max(0.0, float(seed_variance) * of_seeds + shared)
            unit = max(0.0, float(unit_variance) * of_units + shared)
            return _result(mean, Part(seed, seed_df), Part(unit, unit_df), shared, present)
    elif (present.sum(axis=0) == 1).all():
        seed = seed_spread / (1 - of_seeds)
        return _result(mean, Part(seed, seed_df), Part(0.0, seed_df), 0.0, present)
    elif (present.sum(axis=1) == 1).all():
        unit = unit_spread / (1 - of_units)
        return _result(mean, Part(0.0, unit_df), Part(unit, unit_df), 0.0, present)
    return Undefined(undefined="the seeds share too few units to tell what seeds and what units change")


def _result(
    mean: float, seed: Part, unit: Part, interaction: float, present: NDArray[np.bool_]
) -> CrossedMean:
    seeds, units = present.shape
    return CrossedMean(mean, seed, unit, interaction, seeds, units, int(present.sum()))


def _used(table: Floats, present: NDArray[np.bool_]) -> Floats:
    """Without seeds and units that have no cell."""
    return np.asarray(table[present.any(axis=1)][:, present.any(axis=0)])


def _spread(table: Floats, share: Floats, mean: float) -> tuple[float, tuple[float, float, float], float]:
    """Weighted spread of the rows' means about the whole, what it is made of, and its degrees of freedom.

    The spread is sum_s W_s^2 (mean_s - mean)^2 with W_s the row's share. Its expectation is the three loads
    times the variances of rows, columns and cells. Degrees of freedom: those of a quadratic form in
    independent row means, trace^2 / trace of the square; S - 1 with equal weights.
    """
    weight = share.sum(axis=1)
    inside = share / weight[:, None]
    columns = share.sum(axis=0)
    gaps = (inside * table).sum(axis=1) - mean
    squared = weight**2
    own = 1 - 2 * weight + squared.sum()
    other = ((inside - columns) ** 2).sum(axis=1)
    cell = (inside**2).sum(axis=1) - 2 * (inside * share).sum(axis=1) + (share**2).sum()
    loads = tuple(float((squared * load).sum()) for load in (own, other, cell))
    centred = np.eye(len(weight)) - weight
    form = centred.T @ (squared[:, None] * centred)
    df = float(np.trace(form) ** 2 / (form**2).sum())
    return float((squared * gaps**2).sum()), (loads[0], loads[1], loads[2]), df


def _residual(table: Floats, present: NDArray[np.bool_]) -> tuple[float, int]:
    """Mean square about the additive fit of seeds and units to the present cells, and its degrees of freedom.

    Units are eliminated from the normal equations, which leaves one equation a seed.
    """
    mask = present.astype(np.float64)
    per_unit = mask.sum(axis=0)
    unit_means = (mask * table).sum(axis=0) / per_unit
    left = np.diag(mask.sum(axis=1)) - (mask / per_unit) @ mask.T
    right = (mask * (table - unit_means)).sum(axis=1)
    effects, _, rank, _ = np.linalg.lstsq(left, right, rcond=1e-10)
    df = int(mask.sum()) - table.shape[1] - int(rank)
    if df <= 0:
        return 0.0, 0
    about = table - effects[:, None]
    about = mask * (about - (mask * about).sum(axis=0) / per_unit)
    return float((about**2).sum()) / df, df
