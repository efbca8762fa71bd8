"""U-LiRA: whether a likelihood-ratio test tells an unlearned model from a retrained one by its F rows."""

from __future__ import annotations

import numpy as np

from vestige.contracts import Floats, SeedEstimate, SeedMetric, SeedModels, Undefined
from vestige.metrics import SEED_METRICS
from vestige.metrics.several.margins import power_of_half, power_words, relabelled, stacked_margins, too_few
from vestige.statistics.ranks import auc

__all__ = ["LEAST_SEEDS", "SMALLEST_SPREAD", "likelihood_ratios"]

LEAST_SEEDS = 8
SMALLEST_SPREAD = 1e-6
"""Standard deviations of margins below this count as this: seeds that agree exactly."""
_SEED = 502


def likelihood_ratios(unlearned: Floats, oracle: Floats) -> tuple[Floats, Floats]:
    """Log likelihood ratio `unlearned : oracle` of each model's margin on each row, the model held out.

    (S1, N), (S2, N), S1 and S2 at least 3 -> (S1, N), (S2, N). Both sides are normal with a mean a row and
    one spread over rows, as for few models (Carlini et al. 2022). Where a model is judged, it and the model
    of the same place on the other side (counting round) are left out of the fit, so that neither side is
    fitted on what it judges.
    """
    first, second = _held_out(unlearned), _held_out(oracle)
    mine = np.arange(len(unlearned)), np.arange(len(oracle))
    other = mine[0] % len(oracle), mine[1] % len(unlearned)
    return (
        _log_density(unlearned, first, mine[0]) - _log_density(unlearned, second, other[0]),
        _log_density(oracle, first, other[1]) - _log_density(oracle, second, mine[1]),
    )


def _held_out(values: Floats) -> tuple[Floats, Floats]:
    """Mean of each row (S, N) and spread over all rows (S,) without each model."""
    count = len(values)
    mean = values.mean(axis=0)
    without = (count * mean - values) / (count - 1)
    squares = ((values - mean) ** 2).sum(axis=0) - count / (count - 1) * (values - mean) ** 2
    variance = np.maximum(squares, 0.0).mean(axis=1) / (count - 2)
    return without, np.maximum(np.sqrt(variance), SMALLEST_SPREAD)


def _log_density(values: Floats, fit: tuple[Floats, Floats], left_out: np.ndarray) -> Floats:
    """Normal log density up to a constant, (S, N), under the fit that leaves each model's counterpart out."""
    mean, spread = fit[0][left_out], fit[1][left_out][:, None]
    return np.asarray(-(((values - mean) / spread) ** 2) / 2 - np.log(spread), dtype=np.float64)


def _auc(unlearned: Floats, oracle: Floats) -> float:
    positives, negatives = likelihood_ratios(unlearned, oracle)
    return auc(positives.ravel(), negatives.ravel())


def _u_lira(models: SeedModels) -> SeedEstimate:
    few = too_few(models, "likelihood-ratio membership", LEAST_SEEDS)
    if few is not None:
        return few
    gold = models.gold["F"]
    counts = {"unlearned": len(models.unlearned), "oracle": len(models.oracle)}
    if not len(gold):
        return SeedEstimate(value=Undefined(undefined="no rows"), seeds=counts)
    unlearned, oracle = (stacked_margins(group, gold, "F") for group in (models.unlearned, models.oracle))
    positives, negatives = likelihood_ratios(unlearned, oracle)
    power = power_of_half(_auc, unlearned, oracle, seed=_SEED)
    right = (float((positives > 0).mean()) + float((negatives < 0).mean())) / 2
    return SeedEstimate(
        value=auc(positives.ravel(), negatives.ravel()),
        by_seed={
            str(seed): auc(row, negatives.ravel())
            for seed, row in zip(sorted(models.unlearned), positives, strict=True)
        },
        chance=relabelled(_auc, unlearned, oracle, seed=_SEED, what="AUC"),
        power=power,
        beside={"balanced accuracy at ratio 1": right},
        seeds=counts,
        rows={"F": len(gold)},
        note="0.5: the test cannot tell unlearned from retrained models; 1: it always does"
        + power_words(power, models),
    )


SEED_METRICS.register(
    SeedMetric(
        name="u_lira",
        title="Likelihood-ratio membership (U-LiRA)",
        definition=(
            "AUC over F rows and held-out models of the likelihood ratio of the margin under unlearned and "
            "under retrained models; normal, a mean a row, one spread a side"
        ),
        source="Hayes et al. 2024; Carlini et al. 2022; held-out fit and chance band ours",
        direction="lower",
        views=("F",),
        needs=("unlearned", "oracle"),
        least_seeds=LEAST_SEEDS,
        compute=_u_lira,
    )
)
