"""GradAscent, GradDiff and GradDiff-KL: the forget set's likelihood is pushed down by its own gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from vestige.contracts import LossBatch, Objective, UnlearnSettings
from vestige.methods import METHODS

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GRAD_ASCENT", "GRAD_DIFF", "GRAD_DIFF_KL", "RetainWeighted"]

LEARNING_RATES = (3e-5, 1e-4, 2e-4)
RETAIN_WEIGHTS = (0.5, 1.0)


class RetainWeighted(UnlearnSettings):
    """Settings of methods with a retain term, weighted by `retain_weight`."""

    retain_weight: float = Field(1.0, ge=0)


def ascent(batch: LossBatch, settings: UnlearnSettings) -> Tensor:
    """-l(D_F): the mean log-likelihood of the forget batch. Scalar in (-inf, 0]."""
    from vestige.training.losses import nll

    return -nll(batch.target_log_probs)


def retain_nll(batch: LossBatch, settings: UnlearnSettings) -> Tensor:
    """l(D_R): mean negative log-likelihood of the retain batch. Scalar in [0, inf)."""
    from vestige.training.losses import nll

    return nll(batch.target_log_probs)


def retain_kl(batch: LossBatch, settings: UnlearnSettings) -> Tensor:
    """KL(p_ref to p_theta) on the retain batch. Scalar in [0, inf)."""
    from vestige.training.losses import kl_from_reference

    assert batch.ref_log_probs is not None
    return kl_from_reference(batch.log_probs, batch.ref_log_probs)


GRAD_ASCENT = METHODS.register(
    Objective(
        name="grad_ascent",
        title="GradAscent",
        formula="-l(D_F)",
        source="Jang et al. 2023, Knowledge Unlearning; Yao et al. 2023",
        deviations="no retain term",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=UnlearnSettings,
        forget=ascent,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        grid={"learning_rate": LEARNING_RATES},
    )
)

GRAD_DIFF = METHODS.register(
    Objective(
        name="grad_diff",
        title="GradDiff",
        formula="-l(D_F) + w l(D_R)",
        source="Liu et al. 2022, Continual Learning and Private Unlearning",
        deviations="none",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=RetainWeighted,
        forget=ascent,
        retain=retain_nll,
        reference_terms=lambda settings: frozenset(),
        grid={"learning_rate": LEARNING_RATES, "retain_weight": RETAIN_WEIGHTS},
    )
)

GRAD_DIFF_KL = METHODS.register(
    Objective(
        name="grad_diff_kl",
        title="GradDiff-KL",
        formula="-l(D_F) + w KL(p_ref to p_theta) on D_R",
        source="Maini et al. 2024, TOFU (KL minimisation)",
        deviations="sum over options, mean over rows; the reference is the full model",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=RetainWeighted,
        forget=ascent,
        retain=retain_kl,
        reference_terms=lambda settings: frozenset({"retain"}),
        grid={"learning_rate": LEARNING_RATES, "retain_weight": RETAIN_WEIGHTS},
    )
)
