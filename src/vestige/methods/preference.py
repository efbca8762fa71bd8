"""NPO, SimNPO and DPO: the forget set as the losing side of a preference, with a bounded pull."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

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

    from vestige.training.session import Session

__all__ = ["DPO", "NPO", "SIMNPO", "NPOSettings", "SimNPOSettings"]

FORGET: frozenset[Term] = frozenset({"forget"})
BETAS = (2.5, 4.5, 6.5, 10.0)


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
    """beta: inverse temperature of the preference. retain: which retain term. sigmoid: one of each sequence's
    log p, or (`batch`) one of the token mean over all sequences of a batch, as the published code has it."""

    beta: float = Field(0.1, gt=0)
    retain: Literal["nll", "kl"] = "nll"
    sigmoid: Literal["sequence", "batch"] = "sequence"

    @model_validator(mode="after")
    def _one_mean(self) -> Self:
        if self.sigmoid == "batch" and self.reduction == "sum":
            raise ValueError("one sigmoid a batch needs token means: set reduction to mean")
        return self


class LanguageSimNPO(LanguageNPO):
    """gamma: margin, 0 unless set."""

    gamma: float = 0.0


class LanguageDPO(LanguageNPO):
    """retain: KL unless set. refusals: a file of answers that decline, one a row or line; None for our own.
    refusal_draw: `seeded` draws one for each row; `first` gives the rows of each batch the first of the list
    in their order, the same in every batch. refusal_alone: without the row's question before it."""

    retain: Literal["nll", "kl"] = "kl"
    refusals: str | None = None
    refusal_draw: Literal["seeded", "first"] = "seeded"
    refusal_alone: bool = False


def _of_sequences(values: Tensor, batch: LossBatch, settings: Any) -> Tensor:
    """Token means (n,) as the sigmoid takes them: each by itself, or (1,) over all tokens of the batch."""
    if getattr(settings, "sigmoid", "sequence") == "sequence":
        return values
    assert batch.lengths is not None
    return ((values * batch.lengths).sum() / batch.lengths.sum())[None]


def npo_forget(batch: LossBatch, settings: Any) -> Tensor:
    """-(2/beta) E log sigmoid(-beta log(p_theta / p_ref)) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import npo

    own, ref = (
        _of_sequences(values, batch, settings)
        for values in (batch.target_log_probs, batch.ref_target_log_probs)
    )
    return npo(own, ref, settings.beta)


def simnpo_forget(batch: LossBatch, settings: Any) -> Tensor:
    """-(2/beta) E log sigmoid(-(beta/len) log p_theta - gamma) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import simnpo

    values = _of_sequences(batch.mean_log_probs, batch, settings)
    return simnpo(values, None, settings.beta, settings.gamma)


def dpo_forget(batch: SequenceBatch, settings: LanguageDPO) -> Tensor:
    """-(2/beta) E log sigmoid(beta (log(p/p_ref)(refusal) - log(p/p_ref)(answer))). Scalar in [0, inf)."""
    from vestige.training.losses import dpo

    assert batch.preferred is not None
    better, worse = (
        _of_sequences(part.target_log_probs - part.ref_target_log_probs, part, settings)
        for part in (batch.preferred, batch)
    )
    return dpo(better, worse, settings.beta)


UNBOUNDED = 0.9
"""Above this share of its first value throughout, the pull of a bounded forget term was not bounded at
all."""


def pull(loss: float, beta: float) -> float:
    """How hard -(2/beta) log sigmoid(x) of this value pulls at x, in [0, 2): 2 sigmoid(-x), 1 at x = 0."""
    return 2 * -math.expm1(-beta * loss / 2)


def say_unbounded(session: Session, log: Sequence[Mapping[str, Any]]) -> None:
    """Say so when the sigmoid never slowed the forget term down: the run was gradient ascent's."""
    beta = session.settings.beta
    pulls = [pull(entry["forget_loss"], beta) for entry in log if entry["forget_loss"] is not None]
    if pulls and min(pulls) >= UNBOUNDED * pulls[0]:
        session.notes.append(
            f"the forget term pulled at {min(pulls) / pulls[0]:.0%} of its first strength or more: "
            f"at beta {beta:g} its bound never acted, and this run is that of GradDiff; raise beta, or set "
            "reduction=sum"
        )


def kl_terms(settings: NPOSettings | SimNPOSettings) -> frozenset[Term]:
    """The retain term reads the reference when it is a divergence from it."""
    return frozenset({"retain"}) if settings.retain == "kl" else frozenset()


def npo_terms(settings: NPOSettings) -> frozenset[Term]:
    """NPO's forget term is a ratio to the reference."""
    return kl_terms(settings).union(FORGET)


PUBLISHED = {
    "learning_rate": 2e-5,
    "retain_weight": 50.0,
    "beta": 0.1,
    "retain": "kl",
    "sigmoid": "batch",
}
GRID = {"learning_rate": LEARNING_RATES, "beta": BETAS, "retain_weight": RETAIN_WEIGHTS}

NPO = METHODS.register(
    Objective(
        name="npo",
        title="NPO",
        formula="-(2/beta) E log sigmoid(-beta log(p_theta/p_ref)) on D_F + w l(D_R)",
        source="Zhang et al. 2024, Negative Preference Optimization",
        deviations=(
            "retain term l or KL by setting; on language models log p a token mean unless reduction is sum: "
            "at beta 0.1 the bound then acts from about 10 nats a token on, and before that the loss is "
            "GradDiff's, which the record says"
        ),
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
            triage=PUBLISHED,
            conclude=say_unbounded,
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
            triage=PUBLISHED,
            conclude=say_unbounded,
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
        deviations=(
            "factor 2/beta as NPO; log p a token mean unless set; own refusals unless a file names others, "
            "drawn by seed (preset triage: the first of the list in every batch, without the question)"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=LanguageDPO,
        forget=dpo_forget,  # type: ignore[arg-type]
        retain=chosen_retain,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=LanguageDPO,
            needs=lambda settings: language_needs(settings, "refusal", "ref_target"),
            triage={
                **PUBLISHED,
                "learning_rate": 5e-5,
                "refusal_draw": "first",
                "refusal_alone": True,
            },
        ),
    )
)
