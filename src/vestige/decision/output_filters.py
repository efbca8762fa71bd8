"""Whether a table is another model's own output with the columns of some options multiplied. No torch.

Dividing the deleted options' probabilities and letting the rows sum to 1 again moves every distance towards
retraining, and changes no model: whoever asks without the filter has everything back. Training changes how
probability is shared among the other options too, and differently in every row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vestige.contracts import Floats
from vestige.decision.predictions import Predictions

__all__ = ["OutputFilter", "output_filter"]

LEAST_ROWS = 5
"""Rows of F and G that can tell; with fewer nothing is said."""
LEAST_SHARE = 0.02
"""A row can tell where the options left alone have at least this much probability in both tables."""
SAME = 0.02
"""Largest distance of log-factors that count as one factor, and of the shares that the options left alone
have among themselves. Files of four decimals stay below it, trained models far above."""
VARIED = 0.1
"""So far at least from their mean the shares of some row must lie: rows that are all alike tell nothing."""
CHANGED = np.log(1.2)
"""Smallest log-factor that counts as a change."""


@dataclass(frozen=True)
class OutputFilter:
    """What was done to a table. factors: option -> by how much its probability was multiplied against the
    options left alone, 0 where it was taken out. rows: of F and G that show it."""

    factors: dict[str, float]
    rows: int


def output_filter(full: Predictions, other: Predictions) -> OutputFilter | None:
    """The filter that makes `other` of `full` on the deleted and unseen rows, or None.

    full, other: aligned. At least half of the options, and two, have to be left alone: their shares among
    themselves are then the same in both tables, row by row, and every other option is multiplied by one
    number.
    """
    rows = full.view != "R"
    before, after = full.p[rows], other.p[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.log(after) - np.log(before)
    both = np.where(np.isfinite(change), np.minimum(before, after), 0.0)
    # The options left alone are most of the options, or most of the probability.
    for weights in (both, (both > 0).astype(np.float64)):
        log_factors = _log_factors(before, after, change, weights)
        if log_factors is None:
            continue
        found = _checked(full.options, before, after, log_factors)
        if found is not None:
            return found
    return None


def _checked(
    options: tuple[str, ...], before: Floats, after: Floats, log_factors: Floats
) -> OutputFilter | None:
    """The filter of these log-factors (C,), if the rows of both tables are what it makes of each other."""
    alone = np.abs(log_factors) <= SAME
    scaled = np.abs(log_factors) >= CHANGED
    if not scaled.any() or not (alone | scaled).all() or alone.sum() < max(2, len(alone) / 2):
        return None
    kept, left = before[:, alone].sum(axis=1), after[:, alone].sum(axis=1)
    telling = (kept >= LEAST_SHARE) & (left >= LEAST_SHARE)
    if telling.sum() < LEAST_ROWS:
        return None
    before, after, kept, left = before[telling], after[telling], kept[telling], left[telling]
    shares, others = before[:, alone] / kept[:, None], after[:, alone] / left[:, None]
    if (np.abs(shares - others).sum(axis=1) / 2).max() > SAME:
        return None
    if (np.abs(shares - shares.mean(axis=0)).sum(axis=1) / 2).max() < VARIED:
        return None
    factors = np.exp(log_factors[scaled])
    expected = before[:, scaled] / kept[:, None] * factors
    if np.abs(after[:, scaled] / left[:, None] - expected).max() > SAME * max(1.0, float(expected.max())):
        return None
    names = [name for name, was in zip(options, scaled, strict=True) if was]
    return OutputFilter(dict(zip(names, factors.tolist(), strict=True)), int(telling.sum()))


def _log_factors(before: Floats, after: Floats, change: Floats, weights: Floats) -> Floats | None:
    """(N, C) each -> (C,) the log-factor of each option against a row's median one, -inf where it is always 0
    afterwards. weights: in the median. None where an option cannot be read."""
    gone = (after == 0) & (before > 0)
    readable = np.isfinite(change)
    found = np.full(before.shape[1], np.nan)
    reference = np.array([_weighted_median(row, own) for row, own in zip(change, weights, strict=True)])
    for column in range(before.shape[1]):
        own = readable[:, column] & np.isfinite(reference)
        if own.any():
            found[column] = np.median(change[own, column] - reference[own])
        elif gone[:, column].any():
            found[column] = -np.inf
        elif (before[:, column] == after[:, column]).all():
            found[column] = 0.0
    return None if np.isnan(found).any() else found


def _weighted_median(values: Floats, weights: Floats) -> float:
    """The value at half of the weight; NaN without weight."""
    if weights.sum() <= 0:
        return float("nan")
    order = np.argsort(np.where(weights > 0, values, np.inf))
    place = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[place]])
