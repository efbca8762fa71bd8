"""Recovery of forgotten classes under fine-tuning: areas, contrasts against the oracle, thresholds.

A curve is the gold probability p(t) after t updates, for one model. Rows x evaluations where rows matter.
Source: Wu and Lim 2026, recovery.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Record, RowTerms, Undefined
from vestige.errors import InputError
from vestige.statistics.terms import ReasonedTerms, divide

__all__ = [
    "THRESHOLDS",
    "FirstReached",
    "RecoveryContrasts",
    "average",
    "contrast_terms",
    "first_reached",
    "horizon_weights",
    "level_terms",
    "recovery_area",
    "recovery_contrasts",
    "recovery_headroom",
    "row_headroom_terms",
]

THRESHOLDS = (0.5, 0.8)
"""Gold probabilities whose first evaluated update is reported."""
_ALREADY_ONE = "a gold probability of 1 before the first update leaves no headroom"


class RecoveryContrasts(Record):
    """Recovery of an unlearned model against the oracle's, over one horizon of updates.

    area_unlearned, area_oracle: time-averaged gold probability, in [0, 1]. g_abs: their difference.
    g_adj: the same after each curve's start is taken off. g_headroom: difference of the shares of the
    headroom 1 - p(0) that were won, each a ratio of means. identity_residual:
    |g_abs - (p_U(0) - p_O(0) + g_adj)|.
    """

    updates: tuple[float, ...]
    weights: tuple[float, ...]
    start_unlearned: float
    start_oracle: float
    area_unlearned: float
    area_oracle: float
    adjusted_unlearned: float
    adjusted_oracle: float
    headroom_unlearned: float | Undefined
    headroom_oracle: float | Undefined
    g_abs: float
    g_adj: float
    g_headroom: float | Undefined
    identity_residual: float


class FirstReached(Record):
    """The first evaluated update at which p(t) is at least `threshold`.

    censored: not reached by the last evaluation, `update`, which is then a lower bound (right-censored).
    """

    threshold: float
    update: float
    censored: bool


def horizon_weights(updates: ArrayLike) -> Floats:
    """Trapezoid weights over the horizon, sum 1. updates (T,), rising from 0, T >= 2; returns (T,).

    0.02, 0.10, 0.18, 0.40, 0.30 for 0, 1, 5, 10, 25. Raises InputError.
    """
    t = np.asarray(updates, dtype=np.float64)
    if t.ndim != 1 or len(t) < 2 or not np.isfinite(t).all() or t[0] != 0 or (np.diff(t) <= 0).any():
        raise InputError(
            "updates",
            f"{t.tolist()}"[:80],
            "two or more numbers that rise from 0",
            "for example 0, 1, 5, 10, 25",
        )
    gaps = np.diff(t)
    weights = np.zeros(len(t))
    weights[:-1] += gaps / 2
    weights[1:] += gaps / 2
    return np.asarray(weights / t[-1])


def recovery_area(updates: ArrayLike, p: ArrayLike) -> Floats:
    """`A = sum_t w_t p(t)`, trapezoid over the horizon. updates (T,), p (..., T); returns (...) in [0, 1]."""
    weights = horizon_weights(updates)
    return np.asarray(_curves(p, len(weights), "p") @ weights)


def recovery_headroom(area: Floats, start: Floats) -> Floats:
    """`H = (A - p(0)) / (1 - p(0))`, at most 1, elementwise; NaN where p(0) is 1."""
    return divide(np.asarray(area) - start, 1 - np.asarray(start))


def recovery_contrasts(updates: ArrayLike, p_unlearned: ArrayLike, p_oracle: ArrayLike) -> RecoveryContrasts:
    """Absolute, adjusted and headroom contrast of two recovery curves.

    updates (T,): 0, 1, 5, 10, 25 or others that rise from 0. p_unlearned, p_oracle: mean gold probabilities
    (T,), or rows (N, T), which are averaged first: the headroom is a ratio of means. Raises InputError.
    """
    weights = horizon_weights(updates)
    curves = [
        _mean_curve(p, len(weights), name)
        for p, name in ((p_unlearned, "p_unlearned"), (p_oracle, "p_oracle"))
    ]
    areas = [float(curve @ weights) for curve in curves]
    starts = [float(curve[0]) for curve in curves]
    adjusted = [area - start for area, start in zip(areas, starts, strict=True)]
    headroom = [_share(area, start) for area, start in zip(areas, starts, strict=True)]
    first, second = headroom
    g_abs, g_adj = areas[0] - areas[1], adjusted[0] - adjusted[1]
    return RecoveryContrasts(
        updates=tuple(np.asarray(updates, dtype=np.float64).tolist()),
        weights=tuple(weights.tolist()),
        start_unlearned=starts[0],
        start_oracle=starts[1],
        area_unlearned=areas[0],
        area_oracle=areas[1],
        adjusted_unlearned=adjusted[0],
        adjusted_oracle=adjusted[1],
        headroom_unlearned=first,
        headroom_oracle=second,
        g_abs=g_abs,
        g_adj=g_adj,
        g_headroom=_minus(first, second),
        identity_residual=abs(g_abs - (starts[0] - starts[1] + g_adj)),
    )


def first_reached(updates: ArrayLike, p: ArrayLike, threshold: float) -> FirstReached:
    """First evaluated update with p(t) >= threshold. updates (T,), p (T,) mean gold probabilities."""
    horizon_weights(updates)
    t = np.asarray(updates, dtype=np.float64)
    reached = np.flatnonzero(_curves(p, len(t), "p") >= threshold)
    if len(reached):
        return FirstReached(threshold=threshold, update=float(t[reached[0]]), censored=False)
    return FirstReached(threshold=threshold, update=float(t[-1]), censored=True)


def contrast_terms(
    updates: ArrayLike, unlearned: ArrayLike, oracle: ArrayLike, scored: ArrayLike | None = None
) -> dict[str, RowTerms]:
    """`g_abs`, `g_adj`, `g_headroom` as additive statistics. unlearned, oracle (N, T), the same rows.

    scored (N,) bool: rows that count; the others are drawn with them and add nothing. None: all.
    """
    weights = horizon_weights(updates)
    u, o = _curves(unlearned, len(weights), "unlearned"), _curves(oracle, len(weights), "oracle")
    if u.shape != o.shape or u.ndim != 2:
        raise InputError(
            "recovery curves", f"arrays of shape {u.shape} and {o.shape}", "the same rows", "align rows by id"
        )
    one = np.ones(len(u)) if scored is None else np.asarray(scored, dtype=np.float64)
    area_u, area_o = u @ weights, o @ weights
    absolute = np.stack([area_u, area_o, one], axis=-1) * one[:, None]
    started = np.stack([area_u, area_o, u[:, 0], o[:, 0], one], axis=-1) * one[:, None]

    def g_abs(s: Floats) -> Floats:
        return divide(s[..., 0] - s[..., 1], s[..., 2])

    def g_adj(s: Floats) -> Floats:
        return divide((s[..., 0] - s[..., 2]) - (s[..., 1] - s[..., 3]), s[..., 4])

    def g_headroom(s: Floats) -> Floats:
        n = s[..., 4]
        return divide(s[..., 0] - s[..., 2], n - s[..., 2]) - divide(s[..., 1] - s[..., 3], n - s[..., 3])

    return {
        "g_abs": ReasonedTerms(absolute, g_abs),
        "g_adj": ReasonedTerms(started, g_adj),
        "g_headroom": ReasonedTerms(started, g_headroom, _ALREADY_ONE),
    }


def level_terms(
    unlearned: ArrayLike, oracle: ArrayLike, scored: ArrayLike | None = None
) -> dict[str, RowTerms]:
    """Levels at the ends of the attack as additive statistics. unlearned, oracle (N, T), the same rows.

    `level`: the unlearned model's gold probability after the last update less the oracle's after it.
    `start_level`: the unlearned model's before the first update less the oracle's after the last. `rise`: the
    unlearned model's after less before. Each in [-1, 1]. scored: see `contrast_terms`.
    """
    u, o = np.asarray(unlearned, dtype=np.float64), np.asarray(oracle, dtype=np.float64)
    if u.shape != o.shape or u.ndim != 2:
        raise InputError(
            "recovery curves", f"arrays of shape {u.shape} and {o.shape}", "the same rows", "align rows by id"
        )
    one = np.ones(len(u)) if scored is None else np.asarray(scored, dtype=np.float64)

    def mean(values: Floats) -> RowTerms:
        return ReasonedTerms(np.stack([values * one, one], axis=-1), lambda s: divide(s[..., 0], s[..., 1]))

    return {
        "level": mean(u[:, -1] - o[:, -1]),
        "start_level": mean(u[:, 0] - o[:, -1]),
        "rise": mean(u[:, -1] - u[:, 0]),
    }


def row_headroom_terms(
    updates: ArrayLike, unlearned: ArrayLike, oracle: ArrayLike, scored: ArrayLike | None = None
) -> RowTerms:
    """Mean over rows of the difference of row headrooms.

    Another estimand than `g_headroom`, which is a ratio of means. unlearned, oracle (N, T). Rows where
    either model starts at 1 have no headroom and are left out. scored: see `contrast_terms`.
    """
    weights = horizon_weights(updates)
    u, o = _curves(unlearned, len(weights), "unlearned"), _curves(oracle, len(weights), "oracle")
    gap = recovery_headroom(u @ weights, u[:, 0]) - recovery_headroom(o @ weights, o[:, 0])
    has = ~np.isnan(gap) if scored is None else ~np.isnan(gap) & np.asarray(scored, dtype=bool)
    terms = np.stack([np.where(has, gap, 0.0), has.astype(np.float64)], axis=-1)
    return ReasonedTerms(terms, lambda s: divide(s[..., 0], s[..., 1]), _ALREADY_ONE)


def average(items: Sequence[RowTerms]) -> RowTerms:
    """The mean of statistics of the same N rows, each finished under the same draw and then averaged."""
    widths = np.cumsum([0, *(item.terms.shape[1] for item in items)])

    def finish(sums: Floats) -> Floats:
        parts = [
            item.finish(sums[..., low:high])
            for item, low, high in zip(items, widths[:-1], widths[1:], strict=True)
        ]
        return np.asarray(np.mean(np.stack(parts), axis=0))

    return ReasonedTerms(
        np.hstack([item.terms for item in items]), finish, "one of the averaged values has no value"
    )


def _curves(p: ArrayLike, length: int, name: str) -> Floats:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] != length:
        raise InputError(
            name,
            f"an array of shape {values.shape}",
            f"{length} probabilities, one an update",
            "pass p at each",
        )
    if not np.isfinite(values).all() or (values < 0).any() or (values > 1).any():
        raise InputError(name, "values outside 0 to 1", "probabilities", "pass the gold option's probability")
    return values


def _mean_curve(p: ArrayLike, length: int, name: str) -> Floats:
    values = _curves(p, length, name)
    if values.ndim > 2 or not values.size:
        raise InputError(
            name, f"an array of shape {values.shape}", "a curve or rows of curves", "pass (N, T)"
        )
    return values if values.ndim == 1 else np.asarray(values.mean(axis=0))


def _share(area: float, start: float) -> float | Undefined:
    value = float(recovery_headroom(np.asarray(area), np.asarray(start)))
    return Undefined(undefined=_ALREADY_ONE) if np.isnan(value) else value


def _minus(first: float | Undefined, second: float | Undefined) -> float | Undefined:
    for value in (first, second):
        if isinstance(value, Undefined):
            return value
    assert isinstance(first, float)
    assert isinstance(second, float)
    return first - second
