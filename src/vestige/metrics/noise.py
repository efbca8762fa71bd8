"""What training seeds alone do to a model's distributions: the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import RowTerms, Undefined
from vestige.metrics.oracle import js2
from vestige.statistics.terms import mean_of, value_of

__all__ = ["NoiseFloor", "noise_floor"]


@dataclass(frozen=True, eq=False)
class NoiseFloor:
    """Mean JS between models that differ in their training seed only.

    value: mean over pairs of the mean over rows, in [0, 1]; Undefined with fewer than two models or no rows.
    terms: the per-row mean over pairs as a statistic, for intervals; None with fewer than two models.
    pairs: how many pairs; models: how many models.
    """

    value: float | Undefined
    terms: RowTerms | None
    pairs: int
    models: int


def noise_floor(models: Sequence[ArrayLike]) -> NoiseFloor:
    """Noise floor of models of different seeds on the same rows, each (N, C).

    Full models give noise_full (they saw the F rows and agree there), oracles of one request noise_oracle.
    Wu and Lim 2026 for full models; for oracles ours.
    """
    pairs = list(combinations(models, 2))
    if not pairs:
        return NoiseFloor(Undefined(undefined="a noise floor needs at least two seeds"), None, 0, len(models))
    terms = mean_of(np.mean([js2(first, second) for first, second in pairs], axis=0))
    return NoiseFloor(value_of(terms), terms, len(pairs), len(models))
