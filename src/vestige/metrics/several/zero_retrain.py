"""ZRF: how much a model's answers on F look like those of a random model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vestige.contracts import SeedEstimate, SeedMetric, SeedModels, Undefined, ViewTables
from vestige.metrics import SEED_METRICS
from vestige.metrics.oracle import js2

__all__ = ["zero_retrain_forgetting"]


def zero_retrain_forgetting(model: ViewTables, random: ViewTables) -> float:
    """1 - mean over F rows of the base-2 Jensen-Shannon divergence to the random model. In [0, 1]."""
    return 1 - float(js2(model["F"], random["F"]).mean())


def _zrf(models: SeedModels) -> SeedEstimate:
    rows = {"F": len(models.gold["F"])}
    shared = sorted(set(models.unlearned) & set(models.random))
    if not shared or not rows["F"]:
        reason = "no random model of the same seed" if not shared else "no rows"
        return SeedEstimate(value=Undefined(undefined=reason), rows=rows)

    def over(group: Mapping[int, ViewTables]) -> list[float]:
        common = sorted(set(group) & set(models.random))
        return [zero_retrain_forgetting(group[seed], models.random[seed]) for seed in common]

    found = over(models.unlearned)
    others = {"oracle": over(models.oracle), "full": over(models.full)}
    return SeedEstimate(
        value=float(np.mean(found)),
        by_seed={str(seed): value for seed, value in zip(shared, found, strict=True)},
        beside={role: float(np.mean(values)) for role, values in others.items() if values},
        seeds={"unlearned": len(shared), "random": len(shared)},
        rows=rows,
        note="the oracle's value is what retraining gives: higher than that is no better",
    )


SEED_METRICS.register(
    SeedMetric(
        name="zrf",
        title="Zero-retrain forgetting (ZRF)",
        definition=(
            "mean over seeds of 1 - mean base-2 Jensen-Shannon divergence on F to a model of that seed "
            "with random trainable weights"
        ),
        source="Chundawat et al. 2023; base 2 and what is random in the random model ours",
        direction="",
        views=("F",),
        needs=("unlearned", "random"),
        least_seeds=1,
        compute=_zrf,
    )
)
