"""Membership AUC: whether gold probability tells deleted training rows from rows that no model has seen."""

from __future__ import annotations

import numpy as np

from vestige.contracts import SeedEstimate, SeedMetric, SeedModels, Undefined, ViewTables
from vestige.metrics import SEED_METRICS
from vestige.metrics.confidence import gold_probability
from vestige.statistics.ranks import auc, auc_band

__all__ = ["membership_auc", "two_sided"]


def membership_auc(tables: ViewTables, models: SeedModels) -> float:
    """P(gold probability of an F row > of a G row), ties count half. In [0, 1]."""
    f, g = (gold_probability(tables[view], models.gold[view]) for view in ("F", "G"))
    return auc(f, g)


def two_sided(value: float) -> float:
    """The AUC of whoever may guess either way, in [0.5, 1]: rows forgotten too much show as well."""
    return max(value, 1 - value)


def _membership(models: SeedModels) -> SeedEstimate:
    sizes = {"F": len(models.gold["F"]), "G": len(models.gold["G"])}
    counts = {"unlearned": len(models.unlearned), "oracle": len(models.oracle), "full": len(models.full)}
    if not models.unlearned or min(sizes.values()) == 0:
        reason = "no unlearned model" if not models.unlearned else "no rows"
        return SeedEstimate(value=Undefined(undefined=reason), seeds=counts, rows=sizes)
    found = {str(seed): membership_auc(models.unlearned[seed], models) for seed in sorted(models.unlearned)}
    scores = [
        np.concatenate([gold_probability(tables[view], models.gold[view]) for view in ("F", "G")])
        for _, tables in sorted(models.unlearned.items())
    ]
    band = max((auc_band(score, sizes["F"], sizes["G"]) for score in scores), key=lambda item: item.high)
    outside = sum(not band.low <= value <= band.high for value in found.values())
    others = {"oracle": models.oracle, "full": models.full}
    return SeedEstimate(
        value=float(np.mean([two_sided(value) for value in found.values()])),
        by_seed=found,
        chance=band,
        beside={
            role: float(np.mean([two_sided(membership_auc(tables, models)) for tables in group.values()]))
            for role, group in others.items()
            if group
        },
        seeds=counts,
        rows=sizes,
        note=(
            f"{sizes['F']} members (F), {sizes['G']} non-members (G, rows that no model was trained on); "
            f"by seed one-sided, {outside} of {len(found)} seeds outside the chance band"
        ),
    )


SEED_METRICS.register(
    SeedMetric(
        name="membership_auc",
        title="Membership AUC",
        definition=(
            "mean over seeds of max(A, 1 - A), A the chance that a deleted training row has a larger gold "
            "probability than an unseen row of the deleted units, ties half; 0.5 is none"
        ),
        source="Yeom et al. 2018 (score); two-sided reading and chance band ours",
        direction="lower",
        views=("F", "G"),
        needs=("unlearned",),
        least_seeds=1,
        compute=_membership,
    )
)
