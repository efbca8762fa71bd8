"""ToW: one number for accuracy on F, R and G as close to the retrained model's."""

from __future__ import annotations

import numpy as np

from vestige.contracts import SeedEstimate, SeedMetric, SeedModels, Undefined, View, ViewTables
from vestige.metrics import SEED_METRICS
from vestige.metrics.accuracy import correct

__all__ = ["tug_of_war"]

_VIEWS: tuple[View, ...] = ("F", "R", "G")


def tug_of_war(unlearned: ViewTables, oracle: ViewTables, models: SeedModels) -> float:
    """(1 - |dacc_F|)(1 - |dacc_R|)(1 - |dacc_G|), d against the oracle. In [0, 1]; 1 at equal accuracies."""
    gaps = [
        float(
            correct(unlearned[view], models.gold[view]).mean()
            - correct(oracle[view], models.gold[view]).mean()
        )
        for view in _VIEWS
    ]
    return float(np.prod([1 - abs(gap) for gap in gaps]))


def _tow(models: SeedModels) -> SeedEstimate:
    shared = sorted(set(models.unlearned) & set(models.oracle))
    rows = {str(view): len(models.gold[view]) for view in _VIEWS}
    if not shared or min(rows.values()) == 0:
        reason = "no seed with both an unlearned model and an oracle" if not shared else "no rows"
        return SeedEstimate(value=Undefined(undefined=reason), rows=rows)
    found = {seed: tug_of_war(models.unlearned[seed], models.oracle[seed], models) for seed in shared}
    full = [
        tug_of_war(models.full[seed], models.oracle[seed], models) for seed in shared if seed in models.full
    ]
    return SeedEstimate(
        value=float(np.mean(list(found.values()))),
        by_seed={str(seed): value for seed, value in found.items()},
        beside={"full": float(np.mean(full))} if full else {},
        seeds={"unlearned": len(shared), "oracle": len(shared)},
        rows=rows,
        note="each unlearned model against the oracle of its own seed; mean over seeds",
    )


SEED_METRICS.register(
    SeedMetric(
        name="tow",
        title="Tug of war (ToW)",
        definition=(
            "mean over seeds of (1 - |dacc_F|)(1 - |dacc_R|)(1 - |dacc_G|), d the difference of accuracy to "
            "the oracle of the same seed"
        ),
        source="Zhao et al. 2024; G in the place of their test set, R unseen, as here",
        direction="higher",
        views=_VIEWS,
        needs=("unlearned", "oracle"),
        least_seeds=1,
        compute=_tow,
    )
)
