"""Whether a corpus is adjacent to what was forgotten: similarity and overlap of large entries. No torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Undefined

__all__ = ["mean_cosine", "overlap", "semantic_check", "similarity_ratio"]


def mean_cosine(first: Floats, second: Floats) -> float:
    """Mean cosine over all pairs of rows, in [-1, 1]. first (n, d), second (m, d), rows of length 1.

    It is the dot product of the two mean rows, so that the cost is linear in n + m.
    """
    if not len(first) or not len(second):
        raise ValueError("needed at least one embedding on each side")
    return float(first.mean(0, dtype=np.float64) @ second.mean(0, dtype=np.float64))


def semantic_check(sim_f_a: float, sim_a_g: float) -> bool:
    """Whether the adjacent corpus is closer to the forget corpus than to generic text."""
    return sim_f_a > sim_a_g


def similarity_ratio(sim_f_a: float, sim_a_g: float) -> float | Undefined:
    """sim(F, A) / sim(A, G). Undefined unless sim(A, G) is above 0."""
    return sim_f_a / sim_a_g if sim_a_g > 0 else Undefined(undefined="sim(A, G) is not above 0")


def overlap(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Share of the k distinct indices of `first` that `second`, as long, has too; in [0, 1]."""
    if len(first) != len(second) or not len(first):
        raise ValueError(f"needed as many indices on both sides, found {len(first)} and {len(second)}")
    return len(np.intersect1d(first, second)) / len(first)
