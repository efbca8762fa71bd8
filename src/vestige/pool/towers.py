"""The light models of the pool: two small towers over frozen vectors of texts and of options.

Half a CPU second a model, and still trained: two seeds differ about as much as small fine-tuned encoders do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vestige.contracts import Floats
from vestige.seeds import stable_seed
from vestige.training.adaptation import AdaptSettings, adaptation_batches

__all__ = ["ADAPTATION", "Weights", "adapted", "fresh", "log_probabilities", "mixed", "noised", "trained"]

Weights = dict[str, NDArray[np.float32]]
"""`text_in`, `option_in` (d, hidden), `text_out`, `option_out` (hidden, out), and the scalar `scale`."""

HIDDEN, OUT = 128, 64
EPOCHS, BATCH, RATE, DECAY, DROPOUT = 15, 32, 2e-3, 0.01, 0.1
_GAIN = 4.0
"""Vectors have length 1: their entries are multiplied by this before the nonlinearity."""
_LOG_SCALE = 2.5
"""Where the logarithm of the factor of the cosine begins."""
ADAPTATION = AdaptSettings(learning_rate=3e-4)
"""How a model of the pool is trained again on a few deleted rows."""


def fresh(seed: int, width: int = 384) -> Weights:
    """Untrained weights of this seed. width: of the vectors."""
    random = torch.Generator().manual_seed(stable_seed("pool", "towers", seed))

    def drawn(rows: int, columns: int) -> NDArray[np.float32]:
        values = torch.randn(rows, columns, generator=random) / rows**0.5
        return np.asarray(values.numpy(), dtype=np.float32)

    return {
        "text_in": drawn(width, HIDDEN),
        "text_out": drawn(HIDDEN, OUT),
        "option_in": drawn(width, HIDDEN),
        "option_out": drawn(HIDDEN, OUT),
        "scale": np.zeros((), dtype=np.float32),
    }


def log_probabilities(weights: Weights, texts: Floats, options: Floats) -> Floats:
    """(N, C) float64 log-probabilities. texts (N, d), options (C, d): their vectors."""
    with torch.no_grad():
        logits = _logits(_tensors(weights), _tensor(texts), _tensor(options))
        return np.asarray(functional.log_softmax(logits.double(), dim=-1).numpy())


def trained(texts: Floats, gold: NDArray[np.intp], options: Floats, *, seed: int) -> Weights:
    """Weights trained from `fresh(seed)` on all rows given: cross-entropy, AdamW, its rate falling to 0.

    texts (N, d), gold (N,) columns, options (C, d). The seed sets weights, order of rows and dropout.
    """
    start = fresh(seed, texts.shape[1])
    weights = {name: torch.nn.Parameter(value) for name, value in _tensors(start).items()}
    vectors, right, offered = _tensor(texts), torch.as_tensor(gold), _tensor(options)
    random = torch.Generator().manual_seed(stable_seed("pool", "order", seed))
    steps = EPOCHS * -(-len(right) // BATCH)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(right), generator=random), BATCH):
            kept = torch.rand(len(rows), vectors.shape[1], generator=random) > DROPOUT
            logits = _logits(weights, vectors[rows] * kept / (1 - DROPOUT), offered)
            optimiser.zero_grad()
            functional.cross_entropy(logits, right[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return {name: value.detach().numpy() for name, value in weights.items()}


def adapted(
    start: Weights,
    texts: Floats,
    gold: NDArray[np.intp],
    options: Floats,
    *,
    offset: Floats | None = None,
    rng: np.random.Generator,
    evaluate: Callable[[Callable[[Floats], Floats]], None],
) -> None:
    """Train `start` again on a few rows, under `ADAPTATION`. offset (C,): added to its logits throughout.

    evaluate: called at each of the settings' evaluations with a function from vectors (N, d) to probabilities
    (N, C).
    """
    weights = {name: torch.nn.Parameter(value.clone()) for name, value in _tensors(start).items()}
    vectors, right, offered = _tensor(texts), torch.as_tensor(gold), _tensor(options)
    added = torch.zeros(len(options)) if offset is None else _tensor(offset)
    optimiser = torch.optim.AdamW(list(weights.values()), lr=ADAPTATION.learning_rate, weight_decay=0.0)

    def answers(rows: Floats) -> Floats:
        with torch.no_grad():
            logits = _logits(weights, _tensor(rows), offered) + added
            return np.asarray(functional.softmax(logits.double(), dim=-1).numpy())

    evaluate(answers)
    batches = adaptation_batches(len(right), ADAPTATION.batch, ADAPTATION.updates, rng)
    for update, batch in enumerate(batches, start=1):
        rows = list(batch)
        optimiser.zero_grad()
        logits = _logits(weights, vectors[rows], offered) + added
        functional.cross_entropy(logits, right[rows]).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights.values(), ADAPTATION.max_grad_norm)
        optimiser.step()
        if update in ADAPTATION.evaluations:
            evaluate(answers)


def mixed(first: Weights, second: Weights, share: float) -> Weights:
    """`share` of the first and the rest of the second, weight by weight."""
    return {name: (share * first[name] + (1 - share) * second[name]).astype(np.float32) for name in first}


def noised(weights: Weights, size: float, rng: np.random.Generator) -> Weights:
    """Every matrix with normal noise of `size` times its own root mean square."""
    return {
        name: value
        + np.float32(size * np.sqrt((value**2).mean())) * rng.standard_normal(value.shape, np.float32)
        if value.ndim
        else value
        for name, value in weights.items()
    }


def _logits(weights: Mapping[str, Any], texts: Tensor, options: Tensor) -> Tensor:
    def tower(name: str, vectors: Tensor) -> Tensor:
        inner = functional.gelu(vectors @ weights[f"{name}_in"] * _GAIN)
        return functional.normalize(inner @ weights[f"{name}_out"], dim=-1)

    cosine = tower("text", texts) @ tower("option", options).T
    return cosine * torch.exp(weights["scale"] + _LOG_SCALE)


def _tensors(weights: Weights) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value) for name, value in weights.items()}


def _tensor(values: Floats) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float32))
