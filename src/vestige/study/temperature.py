"""The temperature of a full model: searched for the development objective, and fitted by likelihood."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats
from vestige.study.tuning_rules import EpochResult

__all__ = ["BOUNDS", "nll_temperature", "search", "tempered"]

BOUNDS = (0.1, 100.0)
"""Where the likelihood's temperature is looked for."""
ROUNDS = 2
"""How often the surroundings of the best value are searched more finely [ours]."""
INSIDE = 9
"""Values that a round adds on either side of the best one."""


def tempered(p: Floats, temperature: float) -> Floats:
    """softmax(log p / T), which is softmax(logits / T). p (N, C), rows sum to 1; T > 0; returns (N, C)."""
    z = np.log(np.maximum(p, np.finfo(np.float64).tiny)) / temperature
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def search(values: Sequence[float], measure: Callable[[int, float], EpochResult]) -> list[EpochResult]:
    """Measure every value, then twice nine more on either side of the best feasible one, to its neighbours.

    measure: (number of the candidate from 1, T) -> its result, `settings["temperature"]` T. All results in
    order of number. The surroundings are cut at the smallest and the largest value.
    """
    numbers = itertools.count(1)
    found = {value: measure(next(numbers), value) for value in sorted(set(values))}
    for _ in range(ROUNDS):
        feasible = [(item.objective, value) for value, item in found.items() if item.feasible]
        if not feasible:
            break
        known = sorted(found)
        at = known.index(min(feasible)[1])
        for low, high in itertools.pairwise(known[max(at - 1, 0) : at + 2]):
            for value in np.geomspace(low, high, INSIDE + 2)[1:-1]:
                found[float(value)] = measure(next(numbers), float(value))
    return sorted(found.values(), key=lambda item: item.epoch)


def nll_temperature(p: Floats, columns: NDArray[np.intp]) -> tuple[float, bool]:
    """(T that minimises the mean negative log-likelihood, whether it lies at a bound of the search).

    p (N, C), columns (N,) of the gold option. The loss is convex in 1/T. Guo et al. 2017.
    """
    from scipy.optimize import minimize_scalar

    logs = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    rows = np.arange(len(columns))

    def loss(log_temperature: float) -> float:
        z = logs / np.exp(log_temperature)
        top = z.max(axis=1, keepdims=True)
        normaliser = top[:, 0] + np.log(np.exp(z - top).sum(axis=1))
        return float((normaliser - z[rows, columns]).mean())

    low, high = np.log(BOUNDS[0]), np.log(BOUNDS[1])
    best = float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)
    at_bound = min(best - low, high - best) < 1e-3
    return float(np.exp(best)), bool(at_bound)
