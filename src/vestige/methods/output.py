"""Methods that act on the output distribution: Uniformization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.contracts import LossBatch, Objective, UnlearnSettings
from vestige.methods import METHODS
from vestige.methods.gradient import LEARNING_RATES, RETAIN_WEIGHTS, RetainWeighted, retain_nll

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["UNIFORMIZATION"]


def to_uniform(batch: LossBatch, settings: UnlearnSettings) -> Tensor:
    """KL(uniform to p_theta) on D_F. Scalar in [0, inf), 0 iff every row is uniform."""
    from vestige.training.losses import kl_from_uniform

    return kl_from_uniform(batch.log_probs)


UNIFORMIZATION = METHODS.register(
    Objective(
        name="uniformization",
        title="Uniformization",
        formula="KL(uniform to p_theta) on D_F + w l(D_R)",
        source="DecisionUnlearn-Bench 2026, control",
        deviations="none",
        models=("decision",),
        role="control",
        settings=RetainWeighted,
        forget=to_uniform,
        retain=retain_nll,
        reference_terms=lambda settings: frozenset(),
        grid={"learning_rate": LEARNING_RATES, "retain_weight": RETAIN_WEIGHTS},
    )
)
