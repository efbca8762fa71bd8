"""Hidden states of the model being trained and of the model as it was passed, for losses that read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from vestige.errors import InputError
from vestige.models.blocks import blocks_of, output_depends_on
from vestige.models.trainable import evaluation
from vestige.seeds import generator

if TYPE_CHECKING:
    from vestige.contracts import HiddenUse
    from vestige.decision.schema import Schema

__all__ = ["HiddenStates", "Scored", "frozen", "unmoved", "with_weights"]

NORM_ROWS = 64

Ids = Sequence[Sequence[int]]


class ShowsHidden(Protocol):
    """What is needed of a model; it is an `nn.Module` too."""

    def hidden(self, utterance_ids: Ids, schema: Schema, block: int) -> tuple[Tensor, Tensor]: ...
    def trainable_state(self) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class Scored:
    """One batch as the loss will see it; see `vestige.contracts.LossBatch` for shapes."""

    log_probs: Tensor
    hidden: Tensor | None = None
    ref_hidden: Tensor | None = None
    mask: Tensor | None = None
    steer: Tensor | None = None


def unmoved(block: int, found: str) -> InputError:
    """The refusal of a method that steers the output of a block which training cannot move."""
    return InputError(
        f"a method that steers the output of block {block}, counted from 0",
        found,
        "adapters at that block or below it",
        "raise model.lora_layers or leave it out, or leave the method out",
    )


@contextmanager
def frozen(model: nn.Module, names: set[str]) -> Iterator[None]:
    """Inside, the named parameters take no gradient."""
    held = [value for name, value in model.named_parameters() if name in names]
    for value in held:
        value.requires_grad_(False)
    try:
        yield
    finally:
        for value in held:
            value.requires_grad_(True)


@contextmanager
def with_weights(own: dict[str, Tensor], other: dict[str, Tensor]) -> Iterator[None]:
    """Inside, the live parameters `own` hold the values of `other`; nothing is copied."""
    kept = {name: value.data for name, value in own.items()}
    for name, value in own.items():
        value.data = other[name]
    try:
        yield
    finally:
        for name, value in own.items():
            value.data = kept[name]


class HiddenStates:
    """A block's output at the utterances' tokens, now and at the start.

    The reference is the model as passed: a copy of the parameters that the block's output depends on, put in
    place while the reference is read. `above`: names of the trainable parameters that it does not depend on.
    """

    def __init__(
        self, model: ShowsHidden, schema: Schema, use: HiddenUse, forget_ids: Ids, *, seed: int
    ) -> None:
        assert isinstance(model, nn.Module)
        self._model: ShowsHidden = model
        self._schema = schema
        self._terms = use.terms
        self.block = use.block(len(blocks_of(model)))
        own = {name: value for name, value in model.named_parameters() if value.requires_grad}
        output, _ = model.hidden(forget_ids[:1], schema, self.block)
        below = output_depends_on(output, own) if output.requires_grad else set()
        if not below:
            raise unmoved(self.block, "nothing that is trained lies at or below it")
        self.above = own.keys() - below
        self._start = {name: own[name].detach().clone() for name in sorted(below)}
        norm = self._mean_norm(forget_ids)
        vector = use.steer(generator(seed, "steering direction"), output.shape[-1], norm)
        self.steer = torch.from_numpy(vector).to(output)

    def score(self, ids: Ids, cut: int) -> Scored:
        """The forget rows `ids[:cut]` and the retain rows after them, the reference where a term reads it."""
        reference = self._reference(ids, cut)
        hidden, mask = self._model.hidden(ids, self._schema, self.block)
        ref = None
        if reference is not None:
            first, states = reference
            ref = hidden.new_zeros(hidden.shape)
            ref[first : first + len(states), : states.shape[1]] = states
        return Scored(hidden.new_zeros(len(ids), 0), hidden, ref, mask, self.steer)

    def _reference(self, ids: Ids, cut: int) -> tuple[int, Tensor] | None:
        """(place of its first row, states) of the rows whose term reads the reference."""
        first = 0 if "forget" in self._terms else cut
        wanted = ids[first:] if "retain" in self._terms else ids[first:cut]
        if not wanted:
            return None
        own = {name: value for name, value in self._model.trainable_state().items() if name in self._start}
        with with_weights(own, self._start), self._still():
            states, _ = self._model.hidden(wanted, self._schema, self.block)
        return first, states.clone()

    def _mean_norm(self, ids: Ids) -> float:
        """Mean length of the hidden state over the real tokens of these rows, as the model stands."""
        order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), i))
        total, tokens = 0.0, 0
        with self._still():
            for start in range(0, len(order), NORM_ROWS):
                rows = [ids[i] for i in order[start : start + NORM_ROWS]]
                hidden, mask = self._model.hidden(rows, self._schema, self.block)
                total += float(hidden.double().norm(dim=-1)[mask].sum())
                tokens += int(mask.sum())
        return total / tokens

    @contextmanager
    def _still(self) -> Iterator[None]:
        assert isinstance(self._model, nn.Module)
        with evaluation(self._model):
            yield
