"""Obliviate: on the forget rows, the model is distilled from itself with the sensitive tokens muted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vestige.contracts import Objective, Term
from vestige.errors import InputError, first_five
from vestige.language import LanguageSettings, LanguageUse, Need, SequenceBatch
from vestige.methods import METHODS

if TYPE_CHECKING:
    from torch import Tensor

    from vestige.training.session import Session

__all__ = ["OBLIVIATE", "ObliviateSettings", "forget_term", "kept", "sensitive_tokens"]


class ObliviateSettings(LanguageSettings):
    """lambda_1: of the squared difference of logits. lambda_2: of the cross-entropy to the reference's
    likeliest token. They take the place of retain_weight, which multiplies both. keyword_tokens: a keyword's
    tokens as it stands at a text's start alone, or after a space too. skip_ends: positions whose likeliest
    token is the end or padding token are not in the cross-entropy. no_keywords: a topic without any is
    refused, or has a forget term of zero."""

    lambda_1: float = Field(0.2, ge=0)
    lambda_2: float = Field(0.7, ge=0)
    keyword_tokens: Literal["start", "start and inside"] = "start and inside"
    skip_ends: bool = False
    no_keywords: Literal["refuse", "zero"] = "refuse"


def sensitive_tokens(
    topic: str, keywords: Iterable[str], tokenizer: Any, *, inside: bool = True
) -> list[int]:
    """Ids of the keywords' tokens, sorted: each keyword as it stands at a text's start and (`inside`) after a
    space.

    Special and unknown tokens and mere space are left out. Raises InputError without keywords, or when one
    of them has no token.
    """
    words = list(keywords)
    if not words:
        raise InputError(
            f"topic '{topic}'",
            "no keywords",
            "the words whose tokens Obliviate mutes",
            "give them with --keywords",
        )
    special = {*tokenizer.all_special_ids, tokenizer.unk_token_id}

    def spoken(token: int) -> bool:
        return token not in special and bool(tokenizer.decode([token]).strip())

    found: set[int] = set()
    empty = []
    for word in words:
        ids = {
            token
            for text in ((word, f" {word}") if inside else (word,))
            for token in tokenizer(text, add_special_tokens=False)["input_ids"]
            if spoken(token)
        }
        found |= ids
        empty += [word] if not ids else []
    if empty:
        raise InputError(
            f"topic '{topic}', keywords",
            f"{first_five(empty)}, without a token in the model's vocabulary",
            "words that its tokenizer knows",
            "take them out or spell them otherwise",
        )
    return sorted(found)


def forget_term(batch: SequenceBatch, settings: ObliviateSettings, tokens: Tensor) -> Tensor:
    """KL(q to p_theta) on D_F, q the softmax of theta's logits muted at `tokens` (k,). Scalar in [0, inf)."""
    from vestige.training.losses import kl_to_muted

    assert batch.logits is not None
    return kl_to_muted(batch.log_probs, batch.logits, tokens)


def kept(batch: SequenceBatch, settings: ObliviateSettings, ends: Sequence[int] = ()) -> Tensor:
    """lambda_1 MSE of logits to the reference's + lambda_2 CE to its likeliest token, on D_R; in [0, inf).

    ends: positions with one of these as the likeliest token are not in the cross-entropy.
    """
    from vestige.training.losses import argmax_nll, logits_mse

    assert batch.logits is not None
    assert batch.ref_logits is not None
    distilled = logits_mse(batch.logits, batch.ref_logits)
    imitated = argmax_nll(batch.log_probs, batch.ref_logits, skipped=ends)
    return settings.lambda_1 * distilled + settings.lambda_2 * imitated


def needs(settings: ObliviateSettings) -> Mapping[Term, frozenset[Need]]:
    """Logits and scores; the reference's logits where they are to be kept."""
    return {
        "forget": frozenset({"scores", "logits"}),
        "retain": frozenset({"scores", "logits", "ref_logits"}),
    }


def mute(session: Session) -> None:
    """Turn each topic's keywords into the token ids that the forget term mutes, and say them."""
    import torch

    settings: Any = session.settings
    tokens: dict[str, Tensor] = {}
    for name, topic in session.topics.items():
        if not topic.keywords and settings.no_keywords == "zero":
            tokens[name] = torch.tensor([], dtype=torch.long)
            session.notes.append(f"topic '{name}' has no sensitive tokens: its forget term is zero")
            continue
        inside = settings.keyword_tokens == "start and inside"
        ids = sensitive_tokens(name, topic.keywords, session.tokenizer, inside=inside)
        tokens[name] = torch.tensor(ids)
        shown = ", ".join(f"{session.tokenizer.convert_ids_to_tokens(i)} ({i})" for i in ids)
        session.notes.append(f"sensitive tokens of topic '{name}': {shown}")

    def forget(batch: SequenceBatch, settings: ObliviateSettings) -> Tensor:
        return forget_term(batch, settings, tokens[batch.topic].to(batch.gold.device))

    session.forget = forget
    if settings.skip_ends:
        ends = [session.tokenizer.eos_token_id, session.tokenizer.pad_token_id]
        known = tuple(dict.fromkeys(int(i) for i in ends if i is not None))
        session.retain = lambda batch, settings: kept(batch, settings, known)


OBLIVIATE = METHODS.register(
    Objective(
        name="obliviate",
        title="Obliviate",
        formula=(
            "KL(q to p_theta) on D_F + lambda_1 MSE(logits, logits_ref) + lambda_2 CE to argmax p_ref on D_R;"
            " q: softmax of theta's own logits, those of sensitive tokens times 0, no gradient"
        ),
        source="Xu et al. 2025, OBLIVIATE: Robust and Practical Machine Unlearning for LLMs",
        deviations=(
            "sensitive tokens: the union of a topic's keywords' tokens, at a text's start and after a "
            "space; multiplying logits by 0 depends on their level, as published; the retain cross-entropy "
            "is taken position by position; mean over real predicted positions; no world-fact term"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=ObliviateSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=ObliviateSettings,
            needs=needs,
            retain=kept,
            triage={
                "learning_rate": 1e-5,
                "lambda_1": 0.2,
                "lambda_2": 0.7,
                "retain_weight": 1.0,
                "keyword_tokens": "start",
                "skip_ends": True,
            },
            prepare=mute,
            reads=frozenset({"keywords"}),
        ),
    )
)
