"""Fitting a causal language model to token sequences: next-token loss, AdamW, a stated schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from vestige.contracts import Record
from vestige.errors import Diverged
from vestige.seeds import generator

__all__ = ["FitSettings", "fit_language_model", "next_token_loss"]


class FitSettings(Record):
    """AdamW, gradient clipping, a linear warm-up over `warmup_share` of the steps, then linear decay or none.

    learning_rate: per step. batch_size: sequences. max_steps: stop there, the schedule is made for it.
    """

    epochs: int = Field(8, ge=1)
    batch_size: int = Field(1, ge=1)
    learning_rate: float = Field(2e-4, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup_share: float = Field(0.03, ge=0, lt=1)
    decay: bool = True
    max_grad_norm: float = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)


def next_token_loss(model: nn.Module, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Mean negative log-likelihood in nats of all tokens but each sequence's first, ()."""
    device = next(model.parameters()).device
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    labels = torch.full((len(sequences), width), -100)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = labels[row, : len(sequence)] = torch.tensor(sequence)
    ids, labels = ids.to(device), labels.to(device)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.transpose(1, 2).float(), labels[:, 1:])


def fit_language_model(
    model: nn.Module,
    parameters: Iterable[nn.Parameter],
    sequences: Sequence[Sequence[int]],
    settings: FitSettings,
    *,
    seed: int,
    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> float:
    """Train `parameters` on the sequences (token ids, at least two each); returns the last step's loss.

    Every epoch passes over all sequences in an order of its own, drawn from `seed`; the last batch may be
    smaller. The model's modes and requires_grad are the caller's. progress(step, steps, loss) after each
    step. Raises Diverged for a loss or gradient that is not finite.
    """
    if not sequences or min(map(len, sequences)) < 2:
        raise ValueError("needed sequences of at least two tokens")
    trained = list(parameters)
    per_epoch = math.ceil(len(sequences) / settings.batch_size)
    steps = min(per_epoch * settings.epochs, settings.max_steps or per_epoch * settings.epochs)
    optimiser = torch.optim.AdamW(
        trained,
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        betas=(0.9, 0.999),
        fused=True,
    )
    loss = math.nan
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        if place == 0:
            order = generator(seed, "order", epoch).permutation(len(sequences))
        chosen = order[place * settings.batch_size : (place + 1) * settings.batch_size]
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _factor(step, steps, settings)
        value = next_token_loss(model, [sequences[i] for i in chosen])
        gradients = torch.autograd.grad(value, trained)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        norm = nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
        loss = float(value.detach())
        if not (math.isfinite(loss) and math.isfinite(float(norm))):
            rows = [str(i) for i in chosen]
            raise Diverged("loss or gradient", step + 1, rows, settings.learning_rate, "nothing was kept")
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        progress(step + 1, steps, loss)
    return loss


def _factor(step: int, steps: int, settings: FitSettings) -> float:
    """The share of the learning rate at a 0-based step, in (0, 1]."""
    warmup = math.ceil(settings.warmup_share * steps)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / (steps - warmup) if settings.decay else 1.0
