"""Trainings without end, made from those of a pool: for truths over all training seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vestige.contracts import Floats, View
from vestige.metrics.oracle import js2
from vestige.pool.contents import VIEWS, Outputs, Pool

__all__ = ["World", "world_of"]

_LEAST = 1e-9
REFERENCE = 30
"""Made trainings of each role that a truth is taken over."""


@dataclass(frozen=True, eq=False)
class World:
    """Normal trainings of one role: mean log-probabilities, and the deviations of the pool's from them.

    mean: view -> (N, C); deviations: view -> (S, N, C).
    """

    mean: dict[View, Floats]
    deviations: dict[View, Floats]

    def models(self, count: int, random: np.random.Generator) -> list[Outputs]:
        """So many further trainings: the mean plus a normal combination of the pool's deviations.

        They have the pool's covariance between rows, options and views, and no end.
        """
        seeds = len(next(iter(self.deviations.values())))
        weights = random.standard_normal((count, seeds)) / np.sqrt(seeds - 1)
        made: list[Outputs] = []
        for row in weights:
            outputs: dict[View, Floats] = {}
            for view in VIEWS:
                logits = self.mean[view] + np.tensordot(row, self.deviations[view], axes=1)
                powers = np.exp(logits - logits.max(axis=1, keepdims=True))
                outputs[view] = powers / powers.sum(axis=1, keepdims=True)
            made.append(outputs)
        return made


def world_of(pool: Pool, key: str, role: str) -> World:
    """The world of a deletion's full or retrained models."""
    mean: dict[View, Floats] = {}
    deviations: dict[View, Floats] = {}
    for view in VIEWS:
        logs = np.log(np.maximum([model[view] for model in pool.role(key, role)], _LEAST))
        mean[view] = logs.mean(axis=0)
        deviations[view] = logs - mean[view]
    return World(mean, deviations)


def mean_distance(first: Sequence[Floats], second: Sequence[Floats]) -> float:
    """Mean divergence over rows and over all pairs of the two groups, each (N, C)."""
    return float(np.mean([js2(one, other).mean() for one in first for other in second]))


def mean_spread(models: Sequence[Floats]) -> float:
    """Mean divergence over rows and over pairs of different models."""
    pairs = [js2(models[i], models[j]).mean() for i in range(len(models)) for j in range(i)]
    return float(np.mean(pairs))
