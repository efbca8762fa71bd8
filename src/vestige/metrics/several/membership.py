"""Membership AUC: whether gold probability tells deleted training rows from rows that no model has seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Interval, SeedEstimate, SeedMetric, SeedModels, Undefined, ViewTables
from vestige.metrics import SEED_METRICS
from vestige.metrics.confidence import gold_probability
from vestige.statistics.ranks import permuted_auc, stratified_auc

__all__ = ["PERMUTATIONS", "membership_auc", "two_sided"]

PERMUTATIONS = 1000
LEVEL = 0.95
_SEED = 503


def membership_auc(tables: Sequence[ViewTables], models: SeedModels) -> Floats | Undefined:
    """P(gold probability of an F row > of a G row of its class), ties half; of each table, in [0, 1].

    Pairs of one class alone are compared: where classes mix otherwise in F than in G, a model that is
    surer of some classes than of others tells the views apart without having seen either. Classes are
    pooled as `stratified_auc` does. Undefined where no class has rows in both views.
    """
    return stratified_auc(*_scored(tables, models))


def two_sided(value: Floats) -> Floats:
    """The AUC of whoever may guess either way, in [0.5, 1]: rows forgotten too much show as well."""
    return np.maximum(value, 1 - value)


def _scored(
    tables: Sequence[ViewTables], models: SeedModels
) -> tuple[Floats, NDArray[np.bool_], NDArray[np.intp]]:
    """Gold probabilities (S, N) of F rows, then of G rows; which are F; their classes."""
    scores = [
        np.concatenate([gold_probability(table[view], models.gold[view]) for view in ("F", "G")])
        for table in tables
    ]
    classes = np.concatenate([models.gold["F"], models.gold["G"]])
    return np.stack(scores), np.arange(len(classes)) < len(models.gold["F"]), classes


def _membership(models: SeedModels) -> SeedEstimate:
    sizes = {"F": len(models.gold["F"]), "G": len(models.gold["G"])}
    counts = {"unlearned": len(models.unlearned), "oracle": len(models.oracle), "full": len(models.full)}
    if not models.unlearned or min(sizes.values()) == 0:
        reason = "no unlearned model" if not models.unlearned else "no rows"
        return SeedEstimate(value=Undefined(undefined=reason), seeds=counts, rows=sizes)
    seeds = sorted(models.unlearned)
    scored = _scored([models.unlearned[seed] for seed in seeds], models)
    found = stratified_auc(*scored)
    if isinstance(found, Undefined):
        reason = "no class has rows in both F and G: pairs of different classes say nothing of membership"
        return SeedEstimate(value=Undefined(undefined=reason), seeds=counts, rows=sizes)
    chance = permuted_auc(*scored, draws=PERMUTATIONS, seed=_SEED)
    values = two_sided(chance).mean(axis=1)
    value = float(two_sided(found).mean())
    band = Interval(
        low=0.5,
        high=float(np.quantile(values, LEVEL)),
        kind="chance band: members and non-members of each class change places",
        level=LEVEL,
        draws=PERMUTATIONS,
        seed=_SEED,
        condition=f"{sizes['F']} members and {sizes['G']} non-members, rows of a class exchangeable",
    )
    outside = two_sided(found) > np.quantile(two_sided(chance), LEVEL, axis=0)
    shared = np.isin(models.gold["F"], models.gold["G"]), np.isin(models.gold["G"], models.gold["F"])
    lost = int((~shared[0]).sum() + (~shared[1]).sum())
    beside = {}
    for role, group in (("oracle", models.oracle), ("full", models.full)):
        areas = membership_auc(list(group.values()), models) if group else None
        if areas is not None and not isinstance(areas, Undefined):
            beside[role] = float(two_sided(areas).mean())
    return SeedEstimate(
        value=value,
        by_seed={str(seed): float(one) for seed, one in zip(seeds, found, strict=True)},
        chance=band,
        beside=beside,
        seeds=counts,
        rows=sizes,
        note=(
            f"{sizes['F']} members (F), {sizes['G']} non-members (G, rows that no model was trained on)"
            + (f", {lost} of them of a class that the other view lacks: left out" if lost else "")
            + f"; by seed one-sided, {int(outside.sum())} of {len(seeds)} seeds outside the chance band"
        ),
    )


SEED_METRICS.register(
    SeedMetric(
        name="membership_auc",
        title="Membership AUC",
        definition=(
            "mean over seeds of max(A, 1 - A), A the chance that a deleted training row has a larger gold "
            "probability than an unseen row of the same class (G), ties half, classes pooled; 0.5 is none"
        ),
        source="Yeom et al. 2018 (score); van Elteren 1960 (pooling); two-sided reading and chance band ours",
        direction="lower",
        views=("F", "G"),
        needs=("unlearned",),
        least_seeds=1,
        compute=_membership,
    )
)
