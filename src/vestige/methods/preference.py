"""NPO and SimNPO: the forget set as the losing side of a preference, with a bounded pull."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vestige.contracts import LossBatch, Objective, Term
from vestige.methods import METHODS
from vestige.methods.gradient import LEARNING_RATES, RETAIN_WEIGHTS, RetainWeighted, retain_kl, retain_nll

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NPO", "SIMNPO", "NPOSettings", "SimNPOSettings"]

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


def npo_forget(batch: LossBatch, settings: NPOSettings) -> Tensor:
    """-(2/beta) E log sigmoid(-beta log(p_theta / p_ref)) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import npo

    return npo(batch.target_log_probs, batch.ref_target_log_probs, settings.beta)


def simnpo_forget(batch: LossBatch, settings: SimNPOSettings) -> Tensor:
    """-(2/beta) E log sigmoid(-(beta/len) log p_theta - gamma) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import simnpo

    return simnpo(batch.target_log_probs, batch.lengths, settings.beta, settings.gamma)


def chosen_retain(batch: LossBatch, settings: NPOSettings | SimNPOSettings) -> Tensor:
    """l(D_R) or KL(p_ref to p_theta), as the settings say. Scalar in [0, inf)."""
    return retain_kl(batch, settings) if settings.retain == "kl" else retain_nll(batch, settings)


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
    )
)
