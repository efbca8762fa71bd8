"""Logit margins of the gold option over seeds, and what relabelled seeds would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Interval, SeedEstimate, SeedModels, Undefined, View, ViewTables
from vestige.metrics.arrays import gold_columns, probability_rows
from vestige.metrics.oracle import CLIP

__all__ = [
    "RELABELLINGS",
    "WANTED_POWER",
    "logit_margin",
    "power_of_half",
    "power_words",
    "relabelled",
    "stacked_margins",
    "too_few",
]

RELABELLINGS = 200
LEVEL = 0.95
WANTED_POWER = 0.8
SHIFT = 0.5
"""In standard deviations of a row's margin over training seeds."""


def logit_margin(p: ArrayLike, gold: ArrayLike) -> Floats:
    """log p_y - log(1 - p_y) of the gold option. (N, C), (N,) columns -> (N,), finite.

    Rows are clipped to 1e-12 and renormalised; 1 - p_y is the sum of the other options, so that certainty is
    not rounded away. Carlini et al. 2022 (logit scaling).
    """
    rows = np.maximum(probability_rows(p), CLIP)
    place = np.arange(len(rows)), gold_columns(gold, rows.shape)
    own = rows[place]
    rows[place] = 0.0
    return np.asarray(np.log(own) - np.log(rows.sum(axis=1)), dtype=np.float64)


def stacked_margins(models: Mapping[int, ViewTables], gold: ArrayLike, view: View) -> Floats:
    """Margins of every model on one view, (S, N), in order of seed."""
    return np.stack([logit_margin(models[seed][view], gold) for seed in sorted(models)])


def relabelled(
    statistic: Callable[[Floats, Floats], float], first: Floats, second: Floats, *, seed: int, what: str
) -> Interval:
    """Central 95 % of a two-sample statistic when its models change sides at random.

    first (S1, N), second (S2, N): one row a model. Models are exchangeable when unlearning and retraining are
    the same; that an unlearned model and an oracle share a training seed is not used.
    """
    models = np.concatenate([first, second])
    random = np.random.default_rng(seed)
    values = []
    for _ in range(RELABELLINGS):
        order = random.permutation(len(models))
        values.append(statistic(models[order[: len(first)]], models[order[len(first) :]]))
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(
        low=float(low),
        high=float(high),
        kind=f"chance band: {what} of models whose labels are drawn anew",
        level=LEVEL,
        draws=RELABELLINGS,
        seed=seed,
        condition=f"{len(first)} unlearned models and {len(second)} oracles",
    )


def power_of_half(
    statistic: Callable[[Floats, Floats], float], first: Floats, second: Floats, *, seed: int
) -> float:
    """How often this many models would show that margins lie half a standard deviation off.

    first (S1, N), second (S2, N): one row a model. Each side's margins are centred row by row and change
    sides as in `relabelled`; once more with half the standard deviation over seeds added to every row of
    the first side. Returns the share of the second kind above the central 95 % of the first, in [0, 1].
    Rows keep their correlation: a hundred rows that move together count as one.
    """
    sides = [(side - side.mean(axis=0)) * np.sqrt(len(side) / (len(side) - 1)) for side in (first, second)]
    models = np.concatenate(sides)
    shift = SHIFT * np.sqrt((models**2).mean(axis=0))
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(models)) for _ in range(RELABELLINGS)]
    null, moved = (
        [statistic(models[one[: len(first)]] + by, models[one[len(first) :]]) for one in orders]
        for by in (0.0, shift)
    )
    return float(np.mean(np.array(moved) > np.quantile(null, (1 + LEVEL) / 2)))


def power_words(power: float, models: SeedModels) -> str:
    """What a power below 80 % means for the reader, with a separator before it; empty at 80 % and above."""
    if power >= WANTED_POWER:
        return ""
    counts = f"{len(models.unlearned)} unlearned models and {len(models.oracle)} oracles"
    return (
        f"; {counts} are too few: a difference of half a standard deviation over seeds would leave the "
        f"chance band {100 * power:.0f} % of the time, {100 * WANTED_POWER:.0f} % is wanted, "
        "so a value inside the band shows little"
    )


def too_few(models: SeedModels, name: str, least: int) -> SeedEstimate | None:
    """An undefined estimate when there are fewer than `least` unlearned models or oracles, else None."""
    counts = {"unlearned": len(models.unlearned), "oracle": len(models.oracle)}
    if min(counts.values()) >= least:
        return None
    reason = (
        f"{name} needs at least {least} unlearned models and {least} oracles of different seeds, there are "
        f"{counts['unlearned']} and {counts['oracle']}"
    )
    return SeedEstimate(value=Undefined(undefined=reason), seeds=counts)
