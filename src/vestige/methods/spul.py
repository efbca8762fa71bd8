"""SPUL: the weights stay, a learned prompt before the text makes the model forget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vestige.contracts import Objective, Term
from vestige.language import LanguageSettings, LanguageUse, Need, SequenceBatch
from vestige.methods import METHODS
from vestige.methods.gradient import ascent, retain_nll

if TYPE_CHECKING:
    from torch import Tensor

    from vestige.training.session import Session

__all__ = ["SPUL", "SPULSettings", "anchored"]


class SPULSettings(LanguageSettings):
    """beta: weight of the divergence from the unprompted model; divergence: its direction, as in the paper
    or as in its code. virtual_tokens, encoder_hidden: of the prompt and of the network that makes it.
    tune_steps, tune_rate: of the fine-tuning before, with the adapters that `lora` describes; tune_once: at
    most one pass. reload: `whole` saves the fine-tuned weights with the prompt; `published` the prompt
    alone, which is then put before the model that was there before the fine-tuning."""

    learning_rate: float = Field(1e-3, gt=0)
    beta: float = Field(1.0, ge=0)
    virtual_tokens: int = Field(20, ge=1)
    encoder_hidden: int = Field(128, ge=1)
    tune_steps: int = Field(300, ge=1)
    tune_rate: float = Field(1e-4, gt=0)
    tune_once: bool = False
    divergence: Literal["prompted to frozen", "frozen to prompted"] = "prompted to frozen"
    reload: Literal["whole", "published"] = "whole"


def anchored(batch: SequenceBatch, settings: SPULSettings) -> Tensor:
    """w l(D_R) + beta KL between p_theta and p_ref on D_R, w the topic's retain weight. Scalar in [0,
    inf)."""
    from vestige.training.losses import kl_from_reference, kl_to_reference, nll

    assert batch.ref_log_probs is not None
    forward = settings.divergence == "prompted to frozen"
    divergence = kl_to_reference if forward else kl_from_reference
    apart = divergence(batch.log_probs, batch.ref_log_probs)
    return settings.weight(batch.topic) * nll(batch.mean_log_probs) + settings.beta * apart


def needs(settings: SPULSettings) -> Mapping[Term, frozenset[Need]]:
    """Scores; the unprompted model's on the retain rows."""
    return {"forget": frozenset({"scores"}), "retain": frozenset({"scores", "ref_scores"})}


def tune_needs(settings: LanguageSettings) -> Mapping[Term, frozenset[Need]]:
    """Scores alone."""
    return {"forget": frozenset({"scores"}), "retain": frozenset({"scores"})}


def tune_and_prompt(session: Session) -> None:
    """Fine-tune on both sets and merge; then put an untrained prompt encoder before the frozen model."""
    from vestige.training.prompts import tune_and_prompt

    tune_and_prompt(session, TUNING)


TUNING = Objective(
    name="spul_tuning",
    title="SPUL, phase 1",
    formula="l(D_F) + l(D_R)",
    source="TRIAGE",
    deviations="none",
    models=("causal-lm",),
    role="control",
    settings=LanguageSettings,
    forget=retain_nll,
    retain=retain_nll,
    reference_terms=lambda settings: frozenset(),
    language=LanguageUse(settings=LanguageSettings, needs=tune_needs),
)
"""Both sets are learned: what SPUL's prompt is put before. Not a method of its own."""

SPUL = METHODS.register(
    Objective(
        name="spul",
        title="SPUL",
        formula=(
            "-l(D_F) + w l(D_R) + beta KL(p_prompted to p_unprompted) on D_R, in a prompt alone; before that "
            "the weights are fine-tuned with l(D_F) + l(D_R)"
        ),
        source="Bhaila et al. 2025, Soft Prompting for Unlearning in Large Language Models",
        deviations=(
            "the divergence as the paper writes it (preset triage: the reverse, as its code), mean over real "
            "predicted positions; a P-tuning encoder (multilayer perceptron) of 20 virtual tokens, hidden "
            "size 128; virtual positions are no part of any loss; saved with the fine-tuned weights (preset "
            "triage: without them, so that the reloaded model is not the trained one)"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=SPULSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=SPULSettings,
            needs=needs,
            forget=ascent,
            retain=anchored,
            triage={
                "learning_rate": 1e-3,
                "retain_weight": 1.0,
                "beta": 1.0,
                "virtual_tokens": 20,
                "tune_once": True,
                "divergence": "frozen to prompted",
                "reload": "published",
            },
            prepare=tune_and_prompt,
            saves_whole=True,
            weighted=False,
        ),
    )
)
