"""What every pass over text shares: batches of like length, padding, and the loss of a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

__all__ = [
    "Reduction",
    "batch_loss",
    "batches",
    "logits_of",
    "measured",
    "padded",
    "scored",
    "sequence_losses",
    "token_losses",
    "weights_of",
]

Reduction = Literal["mean", "sum"]
"""The loss of a sequence: the mean or the sum of its scored tokens' negative log-likelihoods, in nats."""


def weights_of(model: nn.Module) -> nn.Module:
    """The module whose weights are measured: a prompt encoder's own language model, else the model itself."""
    prompted = getattr(model, "prompted", None)
    return prompted.get_base_model() if prompted is not None else model


class HasIds(Protocol):
    """Anything with token ids."""

    @property
    def ids(self) -> tuple[int, ...]: ...


def batches(
    sequences: Sequence[HasIds], *, batch_tokens: int = 1024, batch_size: int | None = None
) -> list[list[int]]:
    """Positions of the sequences in batches of like length, longest first; every position once.

    A batch holds at most `batch_tokens` tokens with its padding (one sequence always fits) and at most
    `batch_size` sequences where that is given.
    """
    order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i].ids), i))
    found: list[list[int]] = []
    for i in order:
        width = len(sequences[found[-1][0]].ids) if found else 0
        full = found and (
            width * (len(found[-1]) + 1) > batch_tokens
            or (batch_size is not None and len(found[-1]) >= batch_size)
        )
        if not found or full:
            found.append([])
        found[-1].append(i)
    return found


def padded(
    sequences: Sequence[HasIds],
    *,
    device: torch.device | str = "cpu",
    pad_id: int = 0,
    side: Literal["right", "left"] = "right",
) -> tuple[Tensor, Tensor]:
    """Ids (n, L) and mask (n, L), int64. The mask alone says what is padding: `pad_id` is any valid id."""
    width = max(len(sequence.ids) for sequence in sequences)
    ids = torch.full((len(sequences), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(sequences), width), dtype=torch.long)
    for i, sequence in enumerate(sequences):
        length = len(sequence.ids)
        place = slice(0, length) if side == "right" else slice(width - length, width)
        ids[i, place] = torch.tensor(sequence.ids, dtype=torch.long)
        mask[i, place] = 1
    return ids.to(device), mask.to(device)


def logits_of(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """The model's logits (n, L, V) at every position.

    Padding on the right needs no mask: a causal model's real positions never look at it. Padding on the left
    is masked, and positions count real tokens.
    """
    extra: dict[str, Tensor] = {}
    if not bool(mask[:, 0].all()):
        extra = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    logits: Tensor = model(input_ids=ids, use_cache=False, **extra).logits
    return logits


def token_losses(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Negative log-likelihood in nats of each token after a sequence's first, (n, L - 1), 0 where not scored.

    logits (n, L, V), ids (n, L), mask (n, L). Position t is scored where t and t - 1 are no padding, whatever
    its id: real end-of-text tokens are. float32, or float64 for float64 logits.
    """
    wide = logits[:, :-1]
    wide = wide if wide.dtype == torch.float64 else wide.float()
    targets = ids[:, 1:]
    losses = nn.functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets) * scored(mask)


def scored(mask: Tensor) -> Tensor:
    """Which of the positions 1 to L - 1 are scored, (n, L - 1) bool."""
    return (mask[:, 1:] > 0) & (mask[:, :-1] > 0)


def sequence_losses(logits: Tensor, ids: Tensor, mask: Tensor, reduction: Reduction) -> Tensor:
    """Each sequence's loss, (n,), at least 0: see `Reduction`."""
    sums = token_losses(logits, ids, mask).sum(1)
    return sums if reduction == "sum" else sums / scored(mask).sum(1).clamp(min=1)


def batch_loss(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """The mean over all scored tokens of the batch, (), at least 0."""
    return token_losses(logits, ids, mask).sum() / scored(mask).sum().clamp(min=1)


@contextmanager
def measured(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; no parameter asks for a gradient; the graph begins at the input embeddings' output.

    Training flags and requires_grad are restored, the hook is taken away.
    """
    flags = [(module, module.training) for module in model.modules()]
    asked = [(value, value.requires_grad) for value in model.parameters()]
    embeddings = model.get_input_embeddings()  # type: ignore[operator]

    def begin(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return output.detach().requires_grad_() if torch.is_grad_enabled() else output

    model.eval()
    for value, _ in asked:
        value.requires_grad_(False)
    hook = embeddings.register_forward_hook(begin)
    try:
        yield
    finally:
        hook.remove()
        for value, wanted in asked:
            value.requires_grad_(wanted)
        for module, training in flags:
            module.training = training
