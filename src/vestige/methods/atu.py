"""ATU: states are moved until a predictor of their meaning no longer finds the concept in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from vestige.contracts import Objective, Term
from vestige.errors import InputError
from vestige.language import LanguageSettings, LanguageUse, Need, SequenceBatch
from vestige.methods import METHODS
from vestige.methods.gradient import retain_kl

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vestige.training.session import Session

__all__ = ["ATU", "ATUSettings", "closed_share", "forget_term"]

CLOSED = 0.9
"""Above this share of steps without a forget loss, the record warns."""


class ATUSettings(LanguageSettings):
    """threshold: cosine below which a state is left alone. align_steps, align_rate: of the predictor's own
    training. encoder: the text encoder, a backbone by name."""

    threshold: float = Field(0.5, ge=-1, lt=1)
    align_steps: int = Field(500, ge=2)
    align_rate: float = Field(1e-4, gt=0)
    encoder: str = "minilm"


def forget_term(batch: SequenceBatch, settings: ATUSettings, predictor: nn.Module, concept: Tensor) -> Tensor:
    """relu(cos(predicted, concept) - threshold) on D_F. concept (e,). Scalar in [0, 1 - threshold]."""
    from vestige.training.losses import cosine_gate, pooled

    assert batch.hidden is not None
    assert batch.hidden_mask is not None
    predicted = predictor(pooled(batch.hidden, batch.hidden_mask))
    return cosine_gate(predicted, concept, settings.threshold)


def needs(settings: ATUSettings) -> Mapping[Term, frozenset[Need]]:
    """Hidden states on the forget rows, both distributions on the retain rows."""
    return {"forget": frozenset({"hidden"}), "retain": frozenset({"scores", "ref_scores"})}


def align(session: Session) -> None:
    """Train the predictor, embed each topic's concept, and make the forget term of both."""
    import torch

    from vestige.models.embeddings import sentence_encoder
    from vestige.training.alignment import align

    for name, topic in session.topics.items():
        if not topic.concept.strip():
            raise InputError(
                f"topic '{name}'",
                "no concept text",
                "a description of what is to be forgotten",
                "give one with --concept",
            )
    settings: Any = session.settings
    encoder = sentence_encoder(settings.encoder)
    predictor = align(session, encoder, steps=settings.align_steps, learning_rate=settings.align_rate)
    weight = next(predictor.parameters())
    embedded = torch.from_numpy(encoder.embed([topic.concept for topic in session.topics.values()])).to(
        weight
    )
    concepts = dict(zip(session.topics, embedded, strict=True))

    def forget(batch: SequenceBatch, settings: ATUSettings) -> Tensor:
        return forget_term(batch, settings, predictor, concepts[batch.topic])

    session.forget = forget


def closed_share(log: Sequence[Mapping[str, Any]]) -> float:
    """Share of the logged steps whose forget loss is 0, in [0, 1]."""
    return sum(1 for entry in log if entry["forget_loss"] == 0) / len(log)


def warn(session: Session, log: Sequence[Mapping[str, Any]]) -> None:
    """Say so when hardly any step had a forget loss."""
    if log and (share := closed_share(log)) > CLOSED:
        threshold = getattr(session.settings, "threshold", 0.0)
        session.notes.append(
            f"warning: in {100 * share:.0f} % of the steps no text came closer to its concept than the "
            f"threshold {threshold:g}: nothing was unlearned there; lower the threshold or reword the concept"
        )


ATU = METHODS.register(
    Objective(
        name="atu",
        title="ATU",
        formula=(
            "relu(cos(P(mean h_layer), e(concept)) - threshold) on D_F + w KL(p_ref to p_theta) on D_R; "
            "before that P learns -cos(P(mean h_layer), e(text)) on D_F and D_R by turns"
        ),
        source="Spohn et al. 2025, Align-then-Unlearn: Embedding Alignment for LLM Unlearning",
        deviations=(
            "one embedding of the text from the mean state of block 7 (floor(L/4) of fewer than 16 "
            "blocks), not normalised, instead of one of the next tokens from each last state; alignment once,"
            " 500 steps with the model frozen, then the predictor frozen; MiniLM (preset triage: the "
            "published all-mpnet-base-v2); a KL term on retain rows"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=ATUSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=ATUSettings,
            needs=needs,
            retain=retain_kl,
            triage={
                "learning_rate": 5e-5,
                "retain_weight": 1.0,
                "threshold": 0.5,
                "align_rate": 1e-4,
                "encoder": "sentence-transformers/all-mpnet-base-v2",
            },
            prepare=align,
            conclude=warn,
            reads=frozenset({"concept"}),
        ),
    )
)
