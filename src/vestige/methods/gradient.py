"""GradAscent, GradDiff and GradDiff-KL: the forget set's likelihood is pushed down by its own gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vestige.contracts import LossBatch, Objective, Term, UnlearnSettings
from vestige.language import LanguageSettings, LanguageUse, Need
from vestige.methods import METHODS

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "GRAD_ASCENT",
    "GRAD_DIFF",
    "GRAD_DIFF_KL",
    "RetainWeighted",
    "chosen_retain",
    "language_needs",
    "retain_kl",
    "retain_nll",
]

LEARNING_RATES = (3e-5, 1e-4, 2e-4)
RETAIN_WEIGHTS = (0.5, 1.0)


class RetainWeighted(UnlearnSettings):
    """Settings of methods with a retain term, weighted by `retain_weight`."""

    retain_weight: float = Field(1.0, ge=0)


class LanguageAscent(LanguageSettings):
    """retain: none, l(D_R), or KL(p_ref to p_theta) on D_R."""

    retain: Literal["none", "nll", "kl"] = "none"


class LanguageDifference(LanguageSettings):
    """retain: l(D_R), or KL(p_ref to p_theta) on D_R."""

    retain: Literal["nll", "kl"] = "nll"


class LanguageDifferenceKL(LanguageSettings):
    """retain: KL(p_ref to p_theta) on D_R."""

    retain: Literal["kl"] = "kl"


def ascent(batch: LossBatch, settings: Any) -> Tensor:
    """-l(D_F): the mean log-likelihood of the forget batch. Scalar in (-inf, 0]."""
    from vestige.training.losses import nll

    return -nll(batch.target_log_probs)


def retain_nll(batch: LossBatch, settings: Any) -> Tensor:
    """l(D_R): mean negative log-likelihood of the retain batch, a token mean of sequences. Scalar in [0,
    inf)."""
    from vestige.training.losses import nll

    return nll(batch.mean_log_probs)


def retain_kl(batch: LossBatch, settings: Any) -> Tensor:
    """KL(p_ref to p_theta) on the retain batch. Scalar in [0, inf)."""
    from vestige.training.losses import kl_from_reference

    assert batch.ref_log_probs is not None
    return kl_from_reference(batch.log_probs, batch.ref_log_probs)


def chosen_retain(batch: LossBatch, settings: Any) -> Tensor:
    """l(D_R) or KL(p_ref to p_theta), as the settings say. Scalar in [0, inf)."""
    return retain_kl(batch, settings) if settings.retain == "kl" else retain_nll(batch, settings)


def language_needs(settings: Any, *forget: Need) -> Mapping[Term, frozenset[Need]]:
    """What a language model's terms read: scores and `forget`, and what the chosen retain term compares."""
    needs: dict[Term, frozenset[Need]] = {"forget": frozenset({"scores", *forget})}
    if settings.retain == "nll":
        needs["retain"] = frozenset({"scores"})
    elif settings.retain == "kl":
        needs["retain"] = frozenset({"scores", "ref_scores"})
    return needs


GRAD_ASCENT = METHODS.register(
    Objective(
        name="grad_ascent",
        title="GradAscent",
        formula="-l(D_F)",
        source="Jang et al. 2023, Knowledge Unlearning; Yao et al. 2023",
        deviations="no retain term; on language models one by setting (KL in preset triage)",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=UnlearnSettings,
        forget=ascent,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        grid={"learning_rate": LEARNING_RATES},
        language=LanguageUse(
            settings=LanguageAscent,
            needs=language_needs,
            retain=chosen_retain,
            triage={"learning_rate": 1e-5, "retain_weight": 1.0, "retain": "kl"},
        ),
    )
)

GRAD_DIFF = METHODS.register(
    Objective(
        name="grad_diff",
        title="GradDiff",
        formula="-l(D_F) + w l(D_R)",
        source="Liu et al. 2022, Continual Learning and Private Unlearning",
        deviations="on language models KL by setting (preset triage: then GradAscent's loss)",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=RetainWeighted,
        forget=ascent,
        retain=retain_nll,
        reference_terms=lambda settings: frozenset(),
        grid={"learning_rate": LEARNING_RATES, "retain_weight": RETAIN_WEIGHTS},
        language=LanguageUse(
            settings=LanguageDifference,
            needs=language_needs,
            retain=chosen_retain,
            triage={"learning_rate": 1e-5, "retain_weight": 1.0, "retain": "kl"},
        ),
    )
)

GRAD_DIFF_KL = METHODS.register(
    Objective(
        name="grad_diff_kl",
        title="GradDiff-KL",
        formula="-l(D_F) + w KL(p_ref to p_theta) on D_R",
        source="Maini et al. 2024, TOFU (KL minimisation)",
        deviations="sum over options or vocabulary, mean over rows or predicted tokens; ref: full model",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=RetainWeighted,
        forget=ascent,
        retain=retain_kl,
        reference_terms=lambda settings: frozenset({"retain"}),
        grid={"learning_rate": LEARNING_RATES, "retain_weight": RETAIN_WEIGHTS},
        language=LanguageUse(
            settings=LanguageDifferenceKL,
            needs=language_needs,
            retain=chosen_retain,
            triage={"learning_rate": 1e-5, "retain_weight": 1.0},
        ),
    )
)
