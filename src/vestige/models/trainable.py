"""What every trainable decision model shares: its parameters by name, log-probabilities, modes and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from vestige.decision.schema import Schema

__all__ = ["TrainableModule", "evaluation", "seeded"]


class TrainableModule(nn.Module):
    """A module with `logits(utterance ids, schema)`; the loop trains it through these methods."""

    def logits(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor:
        """(n,) id lists -> (n, C) logits in the schema's order; each model has its own."""
        raise NotImplementedError(f"{type(self).__name__} scores no options")

    def log_probs(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor:
        """(n,) id lists -> (n, C) log-probabilities with gradient."""
        return torch.log_softmax(self.logits(utterance_ids, schema), dim=-1)

    def hidden(
        self, utterance_ids: Sequence[Sequence[int]], schema: Schema, block: int
    ) -> tuple[Tensor, Tensor]:
        """(n,) id lists -> output of a 0-based block at the utterances (n, L, d), with gradient, and a mask
        (n, L), True at their real tokens. Nothing above the block is computed."""
        raise NotImplementedError(f"{type(self).__name__} shows no hidden states")

    def trainable_state(self) -> dict[str, Tensor]:
        """The parameters that training moves, by name; live references."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}

    def load_trainable_state(self, state: dict[str, Tensor]) -> None:
        """Copy values in. Raises ValueError when the names differ."""
        own = self.trainable_state()
        if own.keys() != state.keys():
            raise ValueError(f"parameter names differ: {sorted(own.keys() ^ state.keys())[:5]}")
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(state[name])


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the training flag of every module is restored."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, training in flags:
            module.training = training


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator set to `seed` inside, restored after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        yield
