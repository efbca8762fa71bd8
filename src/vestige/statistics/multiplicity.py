"""p-values: one-sided from centred resamples, intersection-union over views, Holm over methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Undefined
from vestige.errors import InputError

__all__ = ["holm", "intersection_union", "one_sided_p"]


def one_sided_p(estimate: float, draws_values: Floats) -> float | Undefined:
    """One-sided p of `true gain <= 0` from centred resamples: (1 + #{g*_b - g >= g}) / (B + 1).

    estimate: the gain g. draws_values (B,): its resamples g*_b; NaN ones are left out and not counted in B.
    In (0, 1]; at B = 5000 at least 1/5001. Undefined where the gain or every resample is.
    Source: Davison and Hinkley 1997, section 4.4.
    """
    defined = draws_values[~np.isnan(draws_values)]
    if np.isnan(estimate) or not len(defined):
        return Undefined(undefined="no gain to test")
    extreme = np.count_nonzero(defined - estimate >= estimate)
    return float((1 + extreme) / (len(defined) + 1))


def intersection_union(p_f: float | Undefined, p_g: float | Undefined) -> float | Undefined:
    """p of `a gain on both views`: the larger of the two, without correction. Berger 1982.

    Undefined when either is.
    """
    if isinstance(p_f, Undefined):
        return p_f
    if isinstance(p_g, Undefined):
        return p_g
    return max(p_f, p_g)


@overload
def holm(p_values: Mapping[str, float]) -> dict[str, float]: ...
@overload
def holm(p_values: Sequence[float] | Floats) -> NDArray[np.float64]: ...
def holm(
    p_values: Mapping[str, float] | Sequence[float] | Floats,
) -> dict[str, float] | NDArray[np.float64]:
    """Holm's step-down adjusted p-values, in [0, 1], in the order given.

    p_values: a mapping name -> p (returns a dict) or a sequence of m (returns (m,) float64). The i-th
    smallest is multiplied by m - i + 1, running maxima are taken, values are cut at 1. Raises InputError for
    values outside [0, 1] or NaN. Source: Holm 1979.
    """
    if isinstance(p_values, Mapping):
        return dict(zip(p_values, map(float, _holm(list(p_values.values()))), strict=True))
    return _holm(p_values)


def _holm(p_values: Sequence[float] | Floats) -> NDArray[np.float64]:
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise InputError("p_values", f"{p.tolist()}", "numbers in [0, 1]", "pass one p-value a method")
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
