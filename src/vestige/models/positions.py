"""How long a sequence a model reads. Past that some architectures fail and others answer all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from vestige.errors import InputError

__all__ = ["positions", "refuse_unreadable"]

_AFTER_PADDING = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"})
"""Model types whose first position stands behind the one of padding."""


def positions(model: nn.Module) -> int | None:
    """The longest sequence of tokens that a model was made for, beside a prompt's virtual ones; None where
    its configuration sets no limit."""
    whole: Any = getattr(model, "config", None)
    if whole is None:
        return None
    config = whole.get_text_config()
    found = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    if not isinstance(found, int) or found < 1:
        return None
    if config.model_type in _AFTER_PADDING:
        found -= int(config.pad_token_id or 0) + 1
    ropes = getattr(config, "rope_parameters", None) or {}
    each = [ropes, *ropes.values()] if isinstance(ropes, Mapping) else []
    for rope in each:
        if isinstance(rope, Mapping) and isinstance(rope.get("factor"), int | float):
            original = rope.get("original_max_position_embeddings") or found
            found = max(found, int(original * rope["factor"]))  # stretched beyond what it was trained on
    virtual: Any = getattr(model, "virtual_tokens", 0)
    return found - (virtual if isinstance(virtual, int) else 0)


def refuse_unreadable(
    model: nn.Module,
    sequences: Iterable[Sequence[int]],
    *,
    subject: str,
    remedy: str = "give shorter text",
    before: int = 0,
) -> None:
    """Raise InputError for a sequence of token ids that is longer than the model reads, or that has a token
    without an embedding. before: positions that stand before each sequence."""
    room, base = positions(model), getattr(model, "get_input_embeddings", None)
    tokens = int(base().weight.shape[0]) if base is not None else None
    for ids in sequences:
        if room is not None and before + len(ids) > room:
            raise InputError(
                subject,
                f"{before + len(ids)} tokens" + (f", {before} of them before the text" if before else ""),
                f"at most {room}, the positions of the model",
                remedy,
            )
        if tokens is not None and len(ids) and max(ids) >= tokens:
            raise InputError(
                subject,
                f"the token {max(ids)}",
                f"tokens that the model has embeddings for (0 to {tokens - 1})",
                "take the tokenizer that the model was trained with, or leave the text out",
            )
