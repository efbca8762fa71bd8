"""Logit margins of the gold option over seeds, and what relabelled seeds would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Interval, SeedEstimate, SeedModels, Undefined, View, ViewTables
from vestige.metrics.arrays import gold_columns, probability_rows
from vestige.metrics.oracle import CLIP

__all__ = ["RELABELLINGS", "logit_margin", "relabelled", "stacked_margins", "too_few"]

RELABELLINGS = 200
LEVEL = 0.95


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
