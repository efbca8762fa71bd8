"""The `recovery` section of a study file: what is adapted, on how many rows, and how it is evaluated."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from pydantic import Field, ValidationError

from vestige.contracts import Record
from vestige.errors import InputError, did_you_mean
from vestige.study.deletion_plan import BundleLabels, each_once
from vestige.training.adaptation import AdaptSettings

__all__ = ["RecoveryPlan", "check_recovery"]


class RecoveryPlan(Record):
    """Recovery of every unlearned model of a class deletion, beside the full model and the oracle.

    budgets: rows a forgotten class, nested. adapt_seeds: choose the rows and their order. evaluations:
    updates after which models are scored. learning_rate: constant; 1e-4 suits large models, small encoders
    need a rate chosen on bundle 00. batch: rows an update, fewer where fewer are exposed. methods: labels;
    None: all.
    controls: seen rows and the label swap. fresh_heads: new heads on each frozen backbone. bundles, seeds: a
    part of the study's; None: all.
    """

    budgets: tuple[int, ...] = (1, 5, 20)
    adapt_seeds: tuple[int, ...] = (0, 1)
    evaluations: tuple[int, ...] = (0, 1, 5, 10, 25)
    learning_rate: float = Field(1e-4, gt=0)
    batch: int = Field(16, ge=1)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    methods: tuple[str, ...] | None = None
    controls: bool = True
    fresh_heads: int = Field(3, ge=0)
    bundles: BundleLabels | None = None
    seeds: tuple[int, ...] | None = None

    @property
    def settings(self) -> AdaptSettings:
        """How each checkpoint is adapted. Raises ValidationError for evaluations that do not rise from 0."""
        return AdaptSettings(
            learning_rate=self.learning_rate,
            batch=self.batch,
            evaluations=self.evaluations,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Every (budget, adaptation seed): the settings, budgets first."""
        return tuple((k, seed) for k in self.budgets for seed in self.adapt_seeds)


def check_recovery(
    plan: RecoveryPlan, granularity: str, bundles: Collection[str], seeds: Collection[int], subject: str
) -> None:
    """What types cannot say. bundles, seeds: of the study. Raises InputError."""
    if granularity != "class":
        raise InputError(
            subject,
            f"a deletion of granularity '{granularity}'",
            "a class deletion: recovery trains rows of whole forgotten classes and scores their unseen rows",
            "remove the section, or delete classes",
        )
    for key in ("budgets", "adapt_seeds"):
        if not getattr(plan, key) and not (key == "budgets" and plan.fresh_heads):
            raise InputError(f"{subject}: {key}", "an empty list", "at least one number", "add one")
        each_once(getattr(plan, key), f"{subject}: {key}")
    if any(k < 1 for k in plan.budgets) or any(b < a for a, b in pairwise(plan.budgets)):
        raise InputError(
            f"{subject}: budgets",
            ", ".join(map(str, plan.budgets)),
            "rising numbers of rows, 1 or more",
            "for example 1, 5, 20",
        )
    if any(not 0 <= seed < 2**63 for seed in plan.adapt_seeds):
        raise InputError(
            f"{subject}: adapt_seeds",
            "a negative or huge seed",
            "seeds of 0 or more, below 2^63",
            "correct it",
        )
    try:
        _ = plan.settings
    except ValidationError:
        raise InputError(
            f"{subject}: evaluations",
            ", ".join(map(str, plan.evaluations)) or "an empty list",
            "two or more updates that rise from 0",
            "for example 0, 1, 5, 10, 25",
        ) from None
    for label in plan.bundles or ():
        if label not in bundles:
            raise InputError(
                f"{subject}: bundles",
                f"'{label}'",
                "bundles of the study",
                did_you_mean(label, sorted(bundles)),
            )
    for seed in plan.seeds or ():
        if seed not in seeds:
            known = ", ".join(map(str, sorted(seeds)))
            raise InputError(f"{subject}: seeds", str(seed), f"seeds of the study ({known})", "correct it")
