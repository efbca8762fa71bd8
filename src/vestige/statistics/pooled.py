"""Units pooled over bundles: mean over bundles of the mean of their units' seed-averaged gains."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vestige.contracts import Floats, Interval, Undefined
from vestige.statistics.bootstrap import DRAWS, LEVEL, BootstrapResult, bootstrap_units
from vestige.statistics.hierarchical import Cell, hierarchical_bootstrap
from vestige.statistics.terms import ratio_of

__all__ = ["BUNDLE_SEEDS", "POOLED_SEEDS", "PooledResult", "pooled_units", "seed_averaged"]

POOLED_SEEDS = {"F": 301, "G": 302}
"""Of the unit bootstrap."""
BUNDLE_SEEDS = {"F": 401, "G": 402}
"""Of the bundle-then-unit bootstrap."""


@dataclass(frozen=True, eq=False)
class PooledResult:
    """A pooled gain. by_bundle: mean over the units of each bundle; their mean is the estimate.

    unit: all bundles' units drawn together; bundle: bundles drawn, then units inside each. units, bundles:
    how many.
    """

    estimate: float
    by_bundle: dict[str, float]
    unit: BootstrapResult
    bundle: Interval | Undefined
    units: int

    @property
    def bundles(self) -> int:
        """How many bundles."""
        return len(self.by_bundle)


def seed_averaged(cells: Sequence[Cell]) -> dict[str, Floats]:
    """Bundle -> (U,) gain of each unit averaged over the seeds that have the bundle, bundles sorted.

    cells: one a seed x bundle; a bundle has the same units, in the same order, at every seed. Raises
    ValueError otherwise.
    """
    found: dict[str, Floats] = {}
    for bundle in sorted({cell.bundle for cell in cells}):
        gains = [cell.unit_gains for cell in cells if cell.bundle == bundle]
        if len({len(item) for item in gains}) != 1 or not len(gains[0]):
            raise ValueError(f"bundle {bundle} needs the same units, at least one, at every seed")
        found[bundle] = np.mean(gains, axis=0)
    if not found:
        raise ValueError("a pooled gain needs at least one cell")
    return found


def pooled_units(
    cells: Sequence[Cell], *, view: str, condition: str, draws: int = DRAWS, level: float = LEVEL
) -> PooledResult:
    """Pool the units of all bundles. view: "F" or "G", for the seeds of the draws.

    Unit bootstrap: as many units as there are, drawn from all bundles together; a unit weighs 1 over the
    number of units in its bundle, so that bundles count alike, and weights are renormalised in each draw (all
    equal where bundles have equal numbers). Bundle-then-unit: bundles with replacement, then units inside
    each. Wu and Lim 2026 for the estimate; the weights ours.
    """
    averaged = seed_averaged(cells)
    gains = np.concatenate(list(averaged.values()))
    weights = np.concatenate([np.full(len(item), 1 / len(item)) for item in averaged.values()])
    terms = ratio_of(weights * gains, weights, above=0.0, undefined="no units")
    names = [f"{place:08d}" for place in range(len(gains))]
    unit = bootstrap_units({"": terms}, names, draws=draws, seed=POOLED_SEEDS[view], level=level)[""]
    by_bundle = {bundle: float(item.mean()) for bundle, item in averaged.items()}
    return PooledResult(
        estimate=float(np.mean(list(by_bundle.values()))),
        by_bundle=by_bundle,
        unit=dataclasses.replace(unit, kind="unit bootstrap, units of all bundles drawn together"),
        bundle=_bundle_interval(averaged, view, condition, draws, level),
        units=len(gains),
    )


def _bundle_interval(
    averaged: dict[str, Floats], view: str, condition: str, draws: int, level: float
) -> Interval | Undefined:
    if len(averaged) < 2:
        return Undefined(undefined="an interval over bundles needs at least two bundles, there is one")
    cells = [Cell("all", bundle, gains) for bundle, gains in averaged.items()]
    result = hierarchical_bootstrap(cells, draws=draws, seed=BUNDLE_SEEDS[view], level=level)
    kind = "bundle-then-unit bootstrap of seed-averaged units, percentile"
    return result.interval(condition).model_copy(update={"kind": kind})
