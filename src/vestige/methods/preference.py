"""NPO, SimNPO and DPO: the forget set as the losing side of a preference, with a bounded pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vestige.contracts import LossBatch, Objective, Term
from vestige.language import LanguageSettings, LanguageUse, SequenceBatch
from vestige.methods import METHODS
from vestige.methods.gradient import (
    LEARNING_RATES,
    RETAIN_WEIGHTS,
    RetainWeighted,
    chosen_retain,
    language_needs,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DPO", "NPO", "SIMNPO", "NPOSettings", "SimNPOSettings"]

FORGET: frozenset[Term] = frozenset({"forget"})
BETAS = (2.5, 4.5, 10.0)


class NPOSettings(RetainWeighted):
    """beta: inverse temperature of the preference. retain: which retain term."""

    beta: float = Field(2.5, gt=0)
    retain: Literal["nll", "kl"] = "nll"


class SimNPOSettings(RetainWeighted):
    """beta: inverse temperature. gamma: margin, 0 unless set. retain: which retain term."""

    beta: float = Field(4.5, gt=0)
    gamma: float = 0.0
    retain: Literal["nll", "kl"] = "nll"


class LanguageNPO(LanguageSettings):
    """beta: inverse temperature of the preference. retain: which retain term."""

    beta: float = Field(0.1, gt=0)
    retain: Literal["nll", "kl"] = "nll"


class LanguageSimNPO(LanguageNPO):
    """gamma: margin, 0 unless set."""

    gamma: float = 0.0


class LanguageDPO(LanguageNPO):
    """retain: KL unless set."""

    retain: Literal["nll", "kl"] = "kl"


def npo_forget(batch: LossBatch, settings: Any) -> Tensor:
    """-(2/beta) E log sigmoid(-beta log(p_theta / p_ref)) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import npo

    return npo(batch.target_log_probs, batch.ref_target_log_probs, settings.beta)


def simnpo_forget(batch: LossBatch, settings: Any) -> Tensor:
    """-(2/beta) E log sigmoid(-(beta/len) log p_theta - gamma) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import simnpo

    return simnpo(batch.summed_log_probs, batch.lengths, settings.beta, settings.gamma)


def dpo_forget(batch: SequenceBatch, settings: LanguageDPO) -> Tensor:
    """-(2/beta) E log sigmoid(beta (log(p/p_ref)(refusal) - log(p/p_ref)(answer))). Scalar in [0, inf)."""
    from vestige.training.losses import dpo

    assert batch.preferred is not None
    better = batch.preferred.target_log_probs - batch.preferred.ref_target_log_probs
    return dpo(better, batch.target_log_probs - batch.ref_target_log_probs, settings.beta)


def kl_terms(settings: NPOSettings | SimNPOSettings) -> frozenset[Term]:
    """The retain term reads the reference when it is a divergence from it."""
    return frozenset({"retain"}) if settings.retain == "kl" else frozenset()


def npo_terms(settings: NPOSettings) -> frozenset[Term]:
    """NPO's forget term is a ratio to the reference."""
    return kl_terms(settings).union(FORGET)


GRID = {"learning_rate": LEARNING_RATES, "beta": BETAS, "retain_weight": RETAIN_WEIGHTS}

NPO = METHODS.register(
    Objective(
        name="npo",
        title="NPO",
        formula="-(2/beta) E log sigmoid(-beta log(p_theta/p_ref)) on D_F + w l(D_R)",
        source="Zhang et al. 2024, Negative Preference Optimization",
        deviations="retain term l or KL by setting",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=NPOSettings,
        forget=npo_forget,
        retain=chosen_retain,
        reference_terms=npo_terms,
        grid=GRID,
        language=LanguageUse(
            settings=LanguageNPO,
            needs=lambda settings: language_needs(settings, "ref_target"),
            triage={"learning_rate": 2e-5, "retain_weight": 50.0, "beta": 0.1, "retain": "kl"},
        ),
    )
)

SIMNPO = METHODS.register(
    Objective(
        name="simnpo",
        title="SimNPO",
        formula="-(2/beta) E log sigmoid(-(beta/len) log p_theta - gamma) on D_F + w l(D_R)",
        source="Fan et al. 2024, Simplicity Prevails",
        deviations="len is 1 on decision models; retain term l or KL by setting",
        models=("decision", "causal-lm"),
        role="candidate",
        settings=SimNPOSettings,
        forget=simnpo_forget,
        retain=chosen_retain,
        reference_terms=kl_terms,
        grid=GRID,
        language=LanguageUse(
            settings=LanguageSimNPO,
            needs=language_needs,
            triage={"learning_rate": 2e-5, "retain_weight": 50.0, "beta": 0.1, "retain": "kl"},
        ),
    )
)

DPO = METHODS.register(
    Objective(
        name="dpo",
        title="DPO (refusal)",
        formula=(
            "-(2/beta) E log sigmoid(beta (log(p_theta/p_ref)(refusal) - log(p_theta/p_ref)(D_F))) "
            "+ w KL(p_ref to p_theta) on D_R"
        ),
        source="Rafailov et al. 2023, Direct Preference Optimization; Maini et al. 2024, TOFU",
        deviations="factor 2/beta as NPO; log p a token mean unless set; own refusals, drawn by seed",
        models=("causal-lm",),
        role="candidate",
        settings=LanguageDPO,
        forget=dpo_forget,  # type: ignore[arg-type]
        retain=chosen_retain,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=LanguageDPO,
            needs=lambda settings: language_needs(settings, "refusal", "ref_target"),
            triage={"learning_rate": 5e-5, "retain_weight": 50.0, "beta": 0.1, "retain": "kl"},
        ),
    )
)
