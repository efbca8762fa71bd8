"""LoKU+FILA: LoKU with adapters that start where weights matter to the forget rows and not to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vestige.contracts import Objective
from vestige.language import LanguageSettings, LanguageUse
from vestige.methods import METHODS
from vestige.methods.gradient import retain_nll
from vestige.methods.loku import LOKU_TRIAGE, hinged, loku_needs

if TYPE_CHECKING:
    from vestige.training.session import Session

__all__ = ["LOKU_FILA", "FILASettings"]


class FILASettings(LanguageSettings):
    """importance_batches: most batches of each set that importances are measured on. importance_batch: their
    sequences. reload: `whole` saves merged weights; `published` the adapter alone, which is then put on the
    base as it was: what the base lost at the start is there twice."""

    importance_batches: int = Field(200, ge=1)
    importance_batch: int = Field(2, ge=1)
    reload: Literal["whole", "published"] = "whole"


def start(session: Session) -> None:
    """Measure the importances, split every adapted weight, and make the start the reference."""
    from vestige.training.low_rank import start_from_importance

    start_from_importance(session)


LOKU_FILA = METHODS.register(
    Objective(
        name="loku_fila",
        title="LoKU+FILA",
        formula=(
            "1 + p(y) - max over other tokens of p, on D_F, + w l(D_R); adapters start at the rank-r part of "
            "diag(v) W, v_i = sqrt(sum_j F_forget / (1e-5 + F_retain)), which the base weight loses"
        ),
        source="Cha et al. 2025, Towards Robust and Parameter-Efficient Knowledge Unlearning for LLMs",
        deviations=(
            "importances: squared gradients of a batch's mean loss a token, weighted by its tokens, over at "
            "most 200 batches of 2 sequences, topics in turn, in file order; "
            "B = diag(1 / (v + 1e-5)) U sqrt(S / scaling), A = sqrt(S / scaling) V', and the base loses "
            "scaling B A: together they start at W; saved merged, as whole weights (preset triage: the "
            "adapter alone, so that the reloaded model is not the trained one)"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=FILASettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=FILASettings,
            needs=loku_needs,
            forget=hinged,
            retain=retain_nll,
            triage={**LOKU_TRIAGE, "reload": "published"},
            prepare=start,
            saves_whole=True,
        ),
    )
)
