"""What training seeds alone do to a model's distributions: the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Interval, RowTerms, Undefined
from vestige.metrics.oracle import js2
from vestige.statistics.noise import noise_interval
from vestige.statistics.terms import mean_of, value_of

__all__ = ["NoiseFloor", "noise_floor"]


@dataclass(frozen=True, eq=False)
class NoiseFloor:
    """Mean JS between models that differ in their training seed only.

    value: mean over pairs of the mean over rows, in [0, 1]; Undefined with fewer than two models or no rows.
    terms: the per-row mean over pairs as a statistic, for intervals; None with fewer than two models.
    pairs: how many pairs; models: how many models. distances (models, models): mean over rows of each pair.
    """

    value: float | Undefined
    terms: RowTerms | None
    pairs: int
    models: int
    distances: Floats

    def over_seeds(self, condition: str) -> Interval | Undefined:
        """Where the floor of many seeds may lie, given these rows: see `noise_interval`."""
        return noise_interval(self.distances, condition=condition)


def noise_floor(models: Sequence[ArrayLike]) -> NoiseFloor:
    """Noise floor of models of different seeds on the same rows, each (N, C).

    Full models give noise_full (they saw the F rows and agree there), oracles of one request noise_oracle.
    Wu and Lim 2026 for full models; for oracles ours.
    """
    distances = np.zeros((len(models), len(models)))
    pairs = list(combinations(range(len(models)), 2))
    if not pairs:
        none = Undefined(undefined="a noise floor needs at least two seeds")
        return NoiseFloor(none, None, 0, len(models), distances)
    rows = [js2(models[first], models[second]) for first, second in pairs]
    for (first, second), values in zip(pairs, rows, strict=True):
        distances[first, second] = distances[second, first] = values.mean() if len(values) else 0.0
    terms = mean_of(np.mean(rows, axis=0))
    return NoiseFloor(value_of(terms), terms, len(pairs), len(models), distances)
