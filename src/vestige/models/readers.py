"""How a backbone reads utterances and a schema. A reader makes vectors; the head scores them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from vestige.errors import InputError, did_you_mean
from vestige.models.blocks import block_output

if TYPE_CHECKING:
    from vestige.models.backbones import Backbone

__all__ = ["READERS", "EncoderReader", "Reader", "Reading", "length_groups", "make_reader"]

Ids = Sequence[int]


@dataclass(frozen=True)
class Reading:
    """utterances (n, d); options (C, d) where all rows share one reading, else (n, C, d)."""

    utterances: Tensor
    options: Tensor


class Reader(Protocol):
    """Turns token ids into vectors. What `options` returns holds while the weights stand still."""

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
        """Output of a 0-based block at the utterances' own tokens (n, L, d); mask (n, L) bool of the real ones.

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


class EncoderReader:
    """All option texts in one sequence; position ids restart at each option; options attend to each other.

    An option's vector is the mean of its span, the utterance's the mean of its real tokens, encoded apart.
    Exactly equivariant to option order up to rounding, because attention sees a set of (token, position).
    """

    def __init__(self, backbone: Backbone, max_tokens: int) -> None:
        self.backbone = backbone
        self.max_tokens = max_tokens
        model: Any = backbone.model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        if "position_ids" not in inspect.signature(base.forward).parameters:
            raise InputError(
                f"backbone '{backbone.record.name}'",
                f"{backbone.record.architecture}, which takes no position ids",
                "an encoder whose positions can restart at each option",
                "use another backbone (BERT, RoBERTa, ModernBERT and their kin)",
            )
        config: Any = base.config
        roberta_like = config.model_type in {"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"}
        self._first_position = (config.pad_token_id + 1) if roberta_like else 0
        self._pad = backbone.tokenizer.pad_token_id
        if self._pad is None:
            self._pad = backbone.tokenizer.eos_token_id or 0

    @property
    def model(self) -> nn.Module:
        """The network that reads: LoRA layers are inside it."""
        return self.backbone.model

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with special tokens, cut to `max_tokens`."""
        encoded = self.backbone.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def options(self, option_ids: Sequence[Ids]) -> Tensor:
        """One sequence of all options -> (C, d), the mean of each span."""
        lengths = [len(ids) for ids in option_ids]
        tokens = torch.tensor([token for ids in option_ids for token in ids], dtype=torch.long)[None]
        positions = torch.cat([torch.arange(length) for length in lengths])[None] + self._first_position
        device = next(self.model.parameters()).device
        hidden = self._hidden(tokens.to(device), torch.ones_like(tokens).to(device), positions.to(device))[0]
        spans = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)
        sums = hidden.new_zeros(len(lengths), hidden.shape[-1]).index_add(0, spans, hidden)
        means: Tensor = sums / torch.tensor(lengths, device=device, dtype=hidden.dtype)[:, None]
        return means

    def read(self, utterance_ids: Sequence[Ids], options: Tensor) -> Reading:
        """(n,) id lists -> vectors (n, d), in groups of like length."""
        groups = length_groups([len(ids) for ids in utterance_ids])
        vectors = torch.cat([self._utterances([utterance_ids[i] for i in group]) for group in groups])
        order = torch.tensor([i for group in groups for i in group], device=vectors.device)
        return Reading(utterances=vectors[torch.argsort(order)], options=options)

    def states(
        self, utterance_ids: Sequence[Ids], option_ids: Sequence[Ids], block: int
    ) -> tuple[Tensor, Tensor]:
        """See `Reader.states`: utterances are encoded apart, so that the options play no part."""
        width = max(len(ids) for ids in utterance_ids)
        groups = length_groups([len(ids) for ids in utterance_ids])
        parts, masks = [], []
        for group in groups:
            tokens, mask, positions = self._padded([utterance_ids[i] for i in group])
            attention = None if bool(mask.all()) else mask
            hidden = block_output(
                self.model, block, input_ids=tokens, attention_mask=attention, position_ids=positions
            )
            missing = width - tokens.shape[1]
            parts.append(nn.functional.pad(hidden, (0, 0, 0, missing)))
            masks.append(nn.functional.pad(mask, (0, missing)))
        order = torch.tensor([i for group in groups for i in group], device=parts[0].device).argsort()
        return torch.cat(parts)[order], torch.cat(masks)[order].bool()

    def _utterances(self, ids: Sequence[Ids]) -> Tensor:
        tokens, mask, positions = self._padded(ids)
        hidden = self._hidden(tokens, mask, positions)
        weights = mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)

    def _padded(self, ids: Sequence[Ids]) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, mask and positions, each (n, L), on the model's device."""
        tokens, mask = pad(ids, self._pad)
        device = next(self.model.parameters()).device
        tokens, mask = tokens.to(device), mask.to(device)
        positions = torch.arange(tokens.shape[1], device=device)[None].expand_as(tokens)
        return tokens, mask, positions + self._first_position

    def _hidden(self, tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        full = bool(mask.all())
        out = self.model(
            input_ids=tokens, attention_mask=None if full else mask, position_ids=positions, return_dict=True
        )
        hidden: Tensor = out.last_hidden_state
        return hidden


READERS = {"encoder": EncoderReader}


def make_reader(name: str, backbone: Backbone, max_tokens: int) -> Reader:
    """The reader of this name. Raises InputError with a suggestion."""
    if name not in READERS:
        raise InputError(
            f"reader '{name}'", "no such reader", "a registered reader", did_you_mean(name, READERS)
        )
    return READERS[name](backbone, max_tokens)
