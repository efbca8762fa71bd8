"""Replication over training seeds x bundles: nested bootstrap as published, crossed interval, the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Interval, Undefined
from vestige.statistics.bootstrap import DRAWS, LEVEL, unit_sums
from vestige.statistics.crossed import CrossedMean, crossed_mean
from vestige.statistics.decision_rules import Replication, replicates

__all__ = [
    "HIERARCHICAL_SEEDS",
    "Cell",
    "HierarchicalResult",
    "ReplicationResult",
    "crossed_cells",
    "hierarchical_bootstrap",
    "leave_one_out",
    "nested_mean",
    "replication",
    "unit_means",
]

HIERARCHICAL_SEEDS = {"F": 201, "G": 202}
_BLOCK = 2_000_000
"""Drawn units of one chunk."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One seed x bundle of a method on one view. unit_gains (U,): mean gain of each unit, U >= 1."""

    seed: str
    bundle: str
    unit_gains: Floats


@dataclass(frozen=True, eq=False)
class HierarchicalResult:
    """Estimate, percentile bounds and resamples (B,) of the nested mean; how many seeds and cells went in."""

    estimate: float
    low: float
    high: float
    draws_values: Floats
    seeds: int
    cells: int
    level: float
    seed: int

    def interval(self, condition: str) -> Interval:
        """The interval as a record."""
        return Interval(
            low=self.low,
            high=self.high,
            kind="hierarchical bootstrap over seeds, bundles and units, percentile",
            level=self.level,
            draws=len(self.draws_values),
            seed=self.seed,
            condition=condition,
        )


@dataclass(frozen=True, eq=False)
class ReplicationResult:
    """Whether the gain of one method replicates, with what that rests on.

    decision: by the published rule, from the nested intervals f and g. crossed: by the same rule from the
    lower bounds of crossed_f and crossed_g, which count a unit once however often it recurs.
    """

    decision: Replication | Undefined
    crossed: Replication | Undefined
    f: HierarchicalResult
    g: HierarchicalResult
    crossed_f: CrossedMean | Undefined
    crossed_g: CrossedMean | Undefined
    left_out_f: dict[str, float]
    left_out_g: dict[str, float]
    infeasible: tuple[str, ...]


def unit_means(values: ArrayLike, units: Sequence[str] | NDArray[np.str_]) -> Floats:
    """Mean of per-row values in each unit. (N,), (N,) -> (U,), units in sorted order of their names."""
    column = np.asarray(values, dtype=np.float64)
    sums = unit_sums(np.stack([column, np.ones_like(column)], axis=1), units)
    return np.asarray(sums[:, 0] / sums[:, 1], dtype=np.float64)


def nested_mean(cells: Sequence[Cell]) -> float:
    """Mean over seeds of the mean over bundles of the mean over units of the unit's mean gain."""
    by_seed = _by_seed(cells)
    return math.fsum(
        math.fsum(float(cell.unit_gains.mean()) for cell in group) / len(group) for group in by_seed
    ) / len(by_seed)


def leave_one_out(cells: Sequence[Cell]) -> dict[str, float]:
    """The nested mean without each seed and without each bundle: `seed 17`, `bundle 01` -> estimate.

    Leaving out the only seed or the only bundle leaves nothing, so those are absent.
    """
    left: dict[str, float] = {}
    for seed in sorted({cell.seed for cell in cells}):
        rest = [cell for cell in cells if cell.seed != seed]
        if rest:
            left[f"seed {seed}"] = nested_mean(rest)
    for bundle in sorted({cell.bundle for cell in cells}):
        rest = [cell for cell in cells if cell.bundle != bundle]
        if rest:
            left[f"bundle {bundle}"] = nested_mean(rest)
    return left


def hierarchical_bootstrap(
    cells: Sequence[Cell], *, draws: int = DRAWS, seed: int, level: float = LEVEL
) -> HierarchicalResult:
    """Nested bootstrap of the mean gain over seeds x bundles.

    Each draw takes as many seeds as there are, with replacement; inside each drawn seed as many of its
    bundles; inside each drawn cell as many of its units. A seed may lack bundles and cells may differ in
    units. The statistic is the nested mean of what was drawn. Order of `cells` changes nothing. Wu and Lim
    2026.
    """
    groups = _by_seed(cells)
    flat = [cell for group in groups for cell in group]
    sizes = np.array([len(group) for group in groups])
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    unit_sizes = np.array([len(cell.unit_gains) for cell in flat])
    gains = np.zeros((len(flat), unit_sizes.max()))
    for row, cell in zip(gains, flat, strict=True):
        row[: len(cell.unit_gains)] = cell.unit_gains
    of_seeds, of_bundles, of_units = np.random.default_rng(seed).spawn(3)
    chunk = max(1, _BLOCK // (len(groups) * int(sizes.max()) * gains.shape[1]))
    values = []
    for start in range(0, draws, chunk):
        b = min(chunk, draws - start)
        drawn = of_seeds.integers(0, len(groups), (b, len(groups)))
        bundles = _draw(of_bundles, sizes[drawn], int(sizes.max()))
        cell_of = starts[drawn][..., None] + bundles
        units = _draw(of_units, unit_sizes[cell_of], gains.shape[1])
        means = _mean_of_first(gains[cell_of[..., None], units], unit_sizes[cell_of])
        values.append(_mean_of_first(means, sizes[drawn]).mean(axis=1))
    resampled = np.concatenate(values)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return HierarchicalResult(
        estimate=nested_mean(cells),
        low=float(low),
        high=float(high),
        draws_values=resampled,
        seeds=len(groups),
        cells=len(flat),
        level=level,
        seed=seed,
    )


def crossed_cells(cells: Sequence[Cell]) -> CrossedMean | Undefined:
    """The nested mean with its two-way variance over training seeds and units.

    cells: one a seed x bundle; a bundle has the same units, in the same order, at every seed, and may be
    missing at some. Weights are those of `nested_mean`: 1 over seeds, bundles of the seed, units of the
    bundle. Undefined with one seed or one unit: see `crossed_mean`. Raises ValueError for units that differ.
    """
    groups = _by_seed(cells)
    sizes: dict[str, int] = {}
    for cell in sorted(cells, key=lambda cell: cell.bundle):
        if sizes.setdefault(cell.bundle, len(cell.unit_gains)) != len(cell.unit_gains):
            raise ValueError(f"bundle {cell.bundle} needs the same units at every seed")
    starts = dict(zip(sizes, np.r_[0, np.cumsum(list(sizes.values()))], strict=False))
    values = np.full((len(groups), sum(sizes.values())), np.nan)
    weights = np.zeros_like(values)
    for row, group in enumerate(groups):
        for cell in group:
            place = slice(starts[cell.bundle], starts[cell.bundle] + sizes[cell.bundle])
            values[row, place] = cell.unit_gains
            weights[row, place] = 1 / (len(group) * sizes[cell.bundle])
    return crossed_mean(values, weights)


def replication(
    cells_f: Sequence[Cell],
    cells_g: Sequence[Cell],
    feasible: Sequence[bool],
    *,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> ReplicationResult:
    """Bounds of both views, nested as published and crossed, and the replication rule on each.

    cells_f, cells_g: the same seeds x bundles in the same order; feasible: whether each of those cells is.
    With one training seed both decisions are undefined: bundles of one training run do not say how another
    would come out.
    """
    names = [(cell.seed, cell.bundle) for cell in cells_f]
    if names != [(cell.seed, cell.bundle) for cell in cells_g] or len(names) != len(feasible):
        raise ValueError("F, G and feasibility must be given for the same cells in the same order")
    f = hierarchical_bootstrap(cells_f, draws=draws, seed=HIERARCHICAL_SEEDS["F"], level=level)
    g = hierarchical_bootstrap(cells_g, draws=draws, seed=HIERARCHICAL_SEEDS["G"], level=level)
    left_f, left_g = leave_one_out(cells_f), leave_one_out(cells_g)
    crossed_f, crossed_g = crossed_cells(cells_f), crossed_cells(cells_g)

    def decided(bounds: list[float]) -> Replication | Undefined:
        return replicates(bounds, [*left_f.values(), *left_g.values()], feasible, seeds=f.seeds)

    crossed: Replication | Undefined
    if isinstance(crossed_f, Undefined):
        crossed = crossed_f
    elif isinstance(crossed_g, Undefined):
        crossed = crossed_g
    else:
        # A difference of two divergences lies in [-1, 1]; a t bound on few seeds need not.
        bounds = [one.estimate - one.half_width((1 + level) / 2) for one in (crossed_f, crossed_g)]
        crossed = decided([max(-1.0, bound) for bound in bounds])
    return ReplicationResult(
        decision=decided([f.low, g.low]),
        crossed=crossed,
        f=f,
        g=g,
        crossed_f=crossed_f,
        crossed_g=crossed_g,
        left_out_f=left_f,
        left_out_g=left_g,
        infeasible=tuple(
            f"seed {seed}, bundle {bundle}"
            for (seed, bundle), fits in zip(names, feasible, strict=True)
            if not fits
        ),
    )


def _by_seed(cells: Sequence[Cell]) -> list[list[Cell]]:
    if not cells:
        raise ValueError("a hierarchical statistic needs at least one cell")
    names = [(cell.seed, cell.bundle) for cell in cells]
    if len(set(names)) != len(names):
        raise ValueError(f"a seed x bundle occurs twice: {sorted(names)}")
    if any(not len(cell.unit_gains) or not np.isfinite(cell.unit_gains).all() for cell in cells):
        raise ValueError("every cell needs at least one unit and finite gains")
    ordered = sorted(cells, key=lambda cell: (cell.seed, cell.bundle))
    seeds = sorted({cell.seed for cell in ordered})
    return [[cell for cell in ordered if cell.seed == seed] for seed in seeds]


def _draw(generator: np.random.Generator, sizes: NDArray[np.int_], width: int) -> NDArray[np.int64]:
    """Indices below each size, (*sizes.shape, width); places beyond a size are drawn too and not used."""
    return generator.integers(0, np.broadcast_to(sizes[..., None], (*sizes.shape, width)))


def _mean_of_first(values: Floats, sizes: NDArray[np.int_]) -> Floats:
    """Mean over the last axis of the first `sizes` entries."""
    used = np.arange(values.shape[-1]) < sizes[..., None]
    return np.asarray(np.where(used, values, 0.0).sum(axis=-1) / sizes, dtype=np.float64)
