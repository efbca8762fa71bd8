"""Which option a model chooses, and whether that is right. A tie between options is no choice. No torch.

Taking the first of equal options would let an option's spelling decide: p .5/.5 would be right for one of two
names and wrong for the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats

__all__ = ["best_options", "is_right", "same_choice"]


def best_options(p: Floats) -> NDArray[np.bool_]:
    """(N, C) -> (N, C): the options with the largest probability of their row, several in a tie."""
    return np.asarray(p == p.max(axis=1, keepdims=True))


def is_right(p: Floats, gold: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(N, C), (N,) columns -> (N,): gold is more probable than every other option. A tie counts as wrong."""
    best = best_options(p)
    return np.asarray(best[np.arange(len(p)), gold] & (best.sum(axis=1) == 1))


def same_choice(p: Floats, q: Floats) -> NDArray[np.bool_]:
    """(N, C), (N, C) -> (N,): the same option is the most probable, or the same options where they tie."""
    return np.asarray((best_options(p) == best_options(q)).all(axis=1))
