"""LoKU without its start: the forgotten tokens lose to the likeliest other one, by a bounded hinge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vestige.contracts import Objective, Term
from vestige.language import LanguageSettings, LanguageUse, Need, SequenceBatch
from vestige.methods import METHODS
from vestige.methods.gradient import retain_nll

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LOKU", "LOKU_TRIAGE", "hinged", "loku_needs"]

LOKU_TRIAGE = {"learning_rate": 1e-4, "retain_weight": 1.0}


def hinged(batch: SequenceBatch, settings: LanguageSettings) -> Tensor:
    """1 + p(y) - max over other tokens of p, on D_F. Scalar in [0, 2]."""
    from vestige.training.losses import inverted_hinge

    assert batch.rows is not None
    assert batch.lengths is not None
    return inverted_hinge(batch.log_probs, batch.gold, batch.rows, batch.lengths)


def loku_needs(settings: LanguageSettings) -> Mapping[Term, frozenset[Need]]:
    """Scores alone: no term reads a reference."""
    return {"forget": frozenset({"scores"}), "retain": frozenset({"scores"})}


LOKU = METHODS.register(
    Objective(
        name="loku",
        title="LoKU (no FILA)",
        formula="1 + p(y) - max over other tokens of p, on D_F, + w l(D_R)",
        source="Cha et al. 2025, Towards Robust and Parameter-Efficient Knowledge Unlearning for LLMs",
        deviations=(
            "the hinge is averaged over a sequence's tokens, then over sequences; adapters start as LoRA's do"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=LanguageSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=LanguageSettings, needs=loku_needs, forget=hinged, retain=retain_nll, triage=LOKU_TRIAGE
        ),
    )
)
