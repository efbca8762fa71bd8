"""Losses as pure tensor functions. Natural logarithms; batch means; every function returns a scalar."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["hidden_mse", "kl_from_reference", "kl_from_uniform", "nll", "npo", "simnpo"]


def nll(target_log_probs: Tensor) -> Tensor:
    """Mean negative log-likelihood. target_log_probs (n,) at most 0; returns a scalar in [0, inf)."""
    return -target_log_probs.mean()


def npo(target_log_probs: Tensor, ref_target_log_probs: Tensor, beta: float) -> Tensor:
    """Negative preference optimisation, -(2/beta) E log sigmoid(-beta log(p/p_ref)); (n,), (n,), beta > 0.

    Scalar in [0, inf); (2/beta) log 2 where p = p_ref; tends to GradAscent's loss as beta -> 0 up to a
    constant. Zhang et al. 2024, "Negative Preference Optimization".
    """
    return -(2 / beta) * logsigmoid(-beta * (target_log_probs - ref_target_log_probs)).mean()


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


def kl_from_uniform(log_probs: Tensor) -> Tensor:
    """KL(uniform to p): -log C - mean over options of log p, mean over rows. (n, C); scalar in [0, inf)."""
    return -math.log(log_probs.shape[-1]) - log_probs.mean(-1).mean()


def hidden_mse(hidden: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean over rows of the mean squared difference at a row's real tokens.

    hidden (n, L, d); target (n, L, d), or (d,) for all tokens alike; mask (n, L), True at real tokens, at
    least one a row. Scalar in [0, inf).
    """
    squares = (hidden - target).square().mean(-1).masked_fill(~mask, 0.0)
    return (squares.sum(-1) / mask.sum(-1)).mean()


def finite(*values: Tensor) -> bool:
    """Whether every element of every tensor is finite."""
    return all(bool(torch.isfinite(value).all()) for value in values)
