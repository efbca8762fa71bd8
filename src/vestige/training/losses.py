"""Losses as pure tensor functions. Natural logarithms; batch means; every function returns a scalar."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, logsigmoid, relu

__all__ = [
    "argmax_nll",
    "cosine_gate",
    "dpo",
    "hidden_mse",
    "inverted_hinge",
    "kl_from_reference",
    "kl_from_uniform",
    "kl_to_muted",
    "kl_to_reference",
    "logits_mse",
    "muted",
    "negative_cosine",
    "nll",
    "npo",
    "pooled",
    "sequence_mean",
    "simnpo",
    "wide",
]


def nll(target_log_probs: Tensor) -> Tensor:
    """Mean negative log-likelihood. target_log_probs (n,) at most 0; returns a scalar in [0, inf)."""
    return -target_log_probs.mean()


def npo(target_log_probs: Tensor, ref_target_log_probs: Tensor, beta: float) -> Tensor:
    """Negative preference optimisation, -(2/beta) E log sigmoid(-beta log(p/p_ref)); (n,), (n,), beta > 0.

    Scalar in [0, inf); (2/beta) log 2 where p = p_ref; tends to GradAscent's loss as beta -> 0 up to a
    constant. Zhang et al. 2024, "Negative Preference Optimization".
    """
    return -(2 / beta) * logsigmoid(-beta * (target_log_probs - ref_target_log_probs)).mean()


def dpo(preferred: Tensor, other: Tensor, beta: float) -> Tensor:
    """Direct preference optimisation, -(2/beta) E log sigmoid(beta (preferred - other)).

    preferred, other (n,): log(p/p_ref) of the answer that is to win and of the one that is to lose. Scalar in
    [0, inf); (2/beta) log 2 where p = p_ref. Rafailov et al. 2023, with NPO's factor 2/beta for 1.
    """
    return -(2 / beta) * logsigmoid(beta * (preferred - other)).mean()


def simnpo(target_log_probs: Tensor, lengths: Tensor | None, beta: float, gamma: float) -> Tensor:
    """Reference-free NPO, -(2/beta) E log sigmoid(-(beta/len) log p - gamma).

    target_log_probs (n,) summed over `lengths` (n,) positions, None: 1 each. Scalar in [0, inf).
    Fan et al. 2024, "Simplicity Prevails: Rethinking Negative Preference Optimization".
    """
    per_position = target_log_probs if lengths is None else target_log_probs / lengths
    return -(2 / beta) * logsigmoid(-beta * per_position - gamma).mean()


def kl_from_reference(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """KL(p_ref to p): summed over the options, mean over rows. (n, C) twice; scalar in [0, inf)."""
    return (ref_log_probs.exp() * (ref_log_probs - log_probs)).sum(-1).mean()


def kl_to_reference(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """KL(p to p_ref): summed over the vocabulary, mean over positions. (P, V) twice; scalar in [0, inf)."""
    return (log_probs.exp() * (log_probs - ref_log_probs)).sum(-1).mean()


def kl_from_uniform(log_probs: Tensor) -> Tensor:
    """KL(uniform to p): -log C - mean over options of log p, mean over rows. (n, C); scalar in [0, inf)."""
    return -math.log(log_probs.shape[-1]) - log_probs.mean(-1).mean()


def hidden_mse(hidden: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean over rows of the mean squared difference at a row's real tokens.

    hidden (n, L, d); target (n, L, d), or (d,) for all tokens alike; mask (n, L), True at real tokens, at
    least one a row. Scalar in [0, inf), in float32 or better.
    """
    squares = (wide(hidden) - target).square().mean(-1).masked_fill(~mask, 0.0)
    return (squares.sum(-1) / mask.sum(-1)).mean()


def sequence_mean(values: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
    """Mean over sequences of the mean over a sequence's positions: no sequence weighs more for its length.

    values (P,); rows (P,): the sequence of each, 0-based; lengths (n,): positions of each, at least 1.
    """
    sums = values.new_zeros(len(lengths)).index_add(0, rows, values)
    return (sums / lengths).mean()


def inverted_hinge(log_probs: Tensor, gold: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
    """1 + p(y) - max over other tokens of p, token mean, then batch mean. Scalar in [0, 2].

    log_probs (P, V), V at least 2; gold, rows (P,); lengths (n,). Cha et al. 2025, "Towards Robust and
    Parameter-Efficient Knowledge Unlearning for LLMs" (LoKU).
    """
    of_gold = log_probs.gather(1, gold[:, None])[:, 0]
    others = log_probs.scatter(1, gold[:, None], -math.inf).amax(-1)
    return sequence_mean(1 + of_gold.exp() - others.exp(), rows, lengths)


def muted(logits: Tensor, tokens: Tensor) -> Tensor:
    """`logits` (P, V) without gradient, those of the token ids `tokens` (k,) multiplied by 0."""
    return logits.detach().index_fill(1, tokens, 0.0)


def kl_to_muted(log_probs: Tensor, logits: Tensor, tokens: Tensor) -> Tensor:
    """KL(q to p), q the softmax of p's own logits with those of `tokens` muted, q without gradient.

    log_probs (P, V) with gradient, logits (P, V); sum over the vocabulary, mean over positions. Scalar in
    [0, inf). Xu et al. 2025, "OBLIVIATE: Robust and Practical Machine Unlearning for LLMs".
    """
    return kl_from_reference(log_probs, muted(logits, tokens).log_softmax(-1))


def logits_mse(logits: Tensor, ref_logits: Tensor) -> Tensor:
    """Mean squared difference over vocabulary and positions, (P, V) twice. Scalar in [0, inf)."""
    return (logits - ref_logits).square().mean()


def argmax_nll(log_probs: Tensor, ref_logits: Tensor, *, skipped: Sequence[int] = ()) -> Tensor:
    """Mean negative log-likelihood of the reference's likeliest token at each position, (P, V) twice.

    skipped: positions with one of these tokens as the likeliest are left out; 0 where none is left.
    """
    likeliest = ref_logits.argmax(-1)
    values = -log_probs.gather(1, likeliest[:, None])[:, 0]
    if not skipped:
        return values.mean()
    counted = ~torch.isin(likeliest, torch.tensor(skipped, device=likeliest.device))
    return (values * counted).sum() / counted.sum().clamp(min=1)


def pooled(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean of a sequence's states over its real tokens, (n, L, d) and (n, L) bool to (n, d)."""
    kept = wide(hidden).masked_fill(~mask[..., None], 0.0)
    return kept.sum(1) / mask.sum(-1, keepdim=True)


def negative_cosine(predicted: Tensor, target: Tensor) -> Tensor:
    """-cos(predicted, target), batch mean. (n, e); target (n, e) or (e,). Scalar in [-1, 1]."""
    return -cosine_similarity(predicted, target.expand_as(predicted), dim=-1).mean()


def cosine_gate(predicted: Tensor, concept: Tensor, threshold: float) -> Tensor:
    """relu(cos(predicted, concept) - threshold), batch mean. (n, e) and (e,). Scalar in [0, 1 - threshold].

    Spohn et al. 2025, "Align-then-Unlearn: Embedding Alignment for LLM Unlearning".
    """
    return relu(cosine_similarity(predicted, concept.expand_as(predicted), dim=-1) - threshold).mean()


def wide(values: Tensor) -> Tensor:
    """At least float32: squares, exponentials and sums of narrower numbers lose what they are about."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def finite(*values: Tensor) -> bool:
    """Whether every element of every tensor is finite."""
    return all(bool(torch.isfinite(value).all()) for value in values)
