"""What readers share: their interface, groups of rows of like length, padding, causality of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from vestige.models.trainable import evaluation

__all__ = ["Ids", "Path", "Reader", "Reading", "in_order", "is_causal", "length_groups", "pad"]

Path = Literal["joint options", "cached prefix", "full sequences"]
"""How a schema is read: options in one sequence beside the utterances; as a prefix whose keys and values the
rows share; or again before every row."""
Ids = Sequence[int]


@dataclass(frozen=True)
class Reading:
    """utterances (n, d); options (C, d) where all rows share one reading, else (n, C, d)."""

    utterances: Tensor
    options: Tensor


class Reader(Protocol):
    """Turns token ids into vectors. What `options` returns holds while the weights stand still."""

    @property
    def path(self) -> Path:
        """How it reads a schema with this backbone."""
        ...

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, special tokens included, cut to the reader's limit."""
        ...

    def options(self, option_ids: Sequence[Ids]) -> Any:
        """Whatever the reader keeps of a schema: one pass over all option texts."""
        ...

    def read(self, utterance_ids: Sequence[Ids], options: Any) -> Reading:
        """Utterances given what `options` returned."""
        ...

    def states(
        self, utterance_ids: Sequence[Ids], option_ids: Sequence[Ids], block: int
    ) -> tuple[Tensor, Tensor]:
        """Output of a 0-based block at the utterances' own tokens (n, L, d); mask (n, L) of the real ones.

        Where utterances see the options, they are read after these; the options' states are not in it.
        """
        ...


def length_groups(lengths: Sequence[int], waste: float = 0.15) -> list[list[int]]:
    """Row indices in groups of like length: no group's padding exceeds `waste` of its area.

    Groups are runs of the rows in order of length, so that a batch costs about its real tokens whatever rows
    it holds.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    groups: list[list[int]] = []
    real = 0
    for i in order:
        area = lengths[i] * (len(groups[-1]) + 1) if groups else 0
        if not groups or (area - real - lengths[i]) > waste * area:
            groups.append([])
            real = 0
        groups[-1].append(i)
        real += lengths[i]
    return groups


def pad(ids: Sequence[Ids], pad_id: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids (n, L) and mask (n, L), both int64."""
    width = max(len(row) for row in ids)
    batch = torch.full((len(ids), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(ids), width), dtype=torch.long)
    for i, row in enumerate(ids):
        batch[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[i, : len(row)] = 1
    return batch, mask


def in_order(groups: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Index (n,) that puts the concatenated rows of the groups back in their order."""
    return torch.tensor([i for group in groups for i in group], device=device).argsort()


def is_causal(model: nn.Module) -> bool:
    """Whether a token's state depends on no later token: as its attention says, else tried out."""
    said = {
        module.is_causal for module in model.modules() if isinstance(getattr(module, "is_causal", None), bool)
    }
    if said:
        return True in said
    device = next(model.parameters()).device
    with evaluation(model):
        first, second = (
            model(input_ids=torch.tensor([ids], device=device)).last_hidden_state[0, :-1].float()
            for ids in ([1, 2, 1, 2], [1, 2, 1, 1])
        )
    return bool((first - second).abs().max() <= 1e-4 * first.abs().max())
