"""KLoM: how far the margins of unlearned models are distributed from those of oracles."""

from __future__ import annotations

import numpy as np

from vestige.contracts import Floats, SeedEstimate, SeedMetric, SeedModels, Undefined, View
from vestige.metrics import SEED_METRICS
from vestige.metrics.several.margins import power_of_half, power_words, relabelled, stacked_margins, too_few

__all__ = ["BINS", "LEAST_SEEDS", "SMOOTHING", "margin_divergence"]

BINS = 20
LEAST_SEEDS = 8
SMOOTHING = 1e-5
"""Added to the share of each bin, so that an empty bin of the oracles gives a finite divergence."""
_SEED = 501
_VIEWS: tuple[View, ...] = ("F", "G", "R")


def margin_divergence(unlearned: Floats, oracle: Floats) -> Floats:
    """KL(unlearned || oracle) of each row's binned margins, in nats. (S1, N), (S2, N) -> (N,), at least 0.

    Each row's 20 equal bins reach from its smallest to its largest margin over both groups; both ends are
    counted. Shares are raised by 1e-5 and renormalised. A row whose margins are all equal gives 0.
    """
    both = np.concatenate([unlearned, oracle])
    low, high = both.min(axis=0), both.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    p, q = (_shares(values, low, width) for values in (unlearned, oracle))
    return np.asarray((p * np.log(p / q)).sum(axis=1), dtype=np.float64)


def _shares(values: Floats, low: Floats, width: Floats) -> Floats:
    """Smoothed share of each bin, (S, N) -> (N, 20). The largest value falls in the last bin."""
    place = np.minimum((values - low) / width * BINS, BINS - 1).astype(np.intp)
    counts = np.zeros((values.shape[1], BINS))
    np.add.at(counts, (np.broadcast_to(np.arange(values.shape[1]), place.shape), place), 1.0)
    return (counts / len(values) + SMOOTHING) / (1 + BINS * SMOOTHING)


def _mean(unlearned: Floats, oracle: Floats) -> float:
    return float(margin_divergence(unlearned, oracle).mean())


def _klom(models: SeedModels) -> SeedEstimate:
    few = too_few(models, "KLoM", LEAST_SEEDS)
    if few is not None:
        return few
    values, rows = {}, {}
    chance = power = None
    for view in _VIEWS:
        gold = models.gold.get(view)
        if gold is None or not len(gold):
            continue
        unlearned, oracle = (
            stacked_margins(group, gold, view) for group in (models.unlearned, models.oracle)
        )
        values[view], rows[view] = _mean(unlearned, oracle), len(gold)
        if view == "F":
            chance = relabelled(_mean, unlearned, oracle, seed=_SEED, what="KLoM on F")
            power = power_of_half(_mean, unlearned, oracle, seed=_SEED)
    return SeedEstimate(
        value=values.pop("F", Undefined(undefined="no rows")),
        chance=chance,
        power=power,
        beside={f"on {view}": value for view, value in values.items()},
        seeds={"unlearned": len(models.unlearned), "oracle": len(models.oracle)},
        rows={str(view): count for view, count in rows.items()},
        note="few models a row leave most bins empty: read the value beside its chance band, not against 0"
        + (power_words(power, models) if power is not None else ""),
    )


SEED_METRICS.register(
    SeedMetric(
        name="klom",
        title="KLoM",
        definition=(
            "mean over F rows of KL(unlearned || oracle), in nats, between the seeds' distributions of the "
            "margin log p_y - log(1 - p_y) in 20 shared bins, both ends counted, shares raised by 1e-5"
        ),
        source="Georgiev et al. 2024; smoothing, order and chance band ours",
        direction="lower",
        views=_VIEWS,
        needs=("unlearned", "oracle"),
        least_seeds=LEAST_SEEDS,
        compute=_klom,
    )
)
