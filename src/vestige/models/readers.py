"""How a backbone reads utterances and a schema. A reader makes vectors; the head scores them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError, did_you_mean
from vestige.models.blocks import block_output
from vestige.models.in_context import InContextReader
from vestige.models.positions import refuse_unreadable
from vestige.models.reading import Ids, Path, Reader, Reading, in_order, is_causal, length_groups, pad

if TYPE_CHECKING:
    from vestige.models.backbones import Backbone

__all__ = ["READERS", "EncoderReader", "Reader", "Reading", "length_groups", "make_reader"]


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
        if is_causal(base):
            raise InputError(
                f"backbone '{backbone.record.name}' with the reader 'encoder'",
                f"{backbone.record.architecture}, a causal language model",
                "an encoder, whose tokens see each other both ways",
                "set model.reader to 'in_context'",
            )
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
    def path(self) -> Path:
        """Options in one sequence, utterances apart."""
        return "joint options"

    @property
    def model(self) -> nn.Module:
        """The network that reads: LoRA layers are inside it."""
        return self.backbone.model

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with special tokens, cut to `max_tokens`."""
        encoded = self.backbone.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)
        ids: list[list[int]] = encoded["input_ids"]
        refuse_unreadable(
            self.backbone.model,
            ids,
            subject=f"backbone '{self.backbone.record.name}', a text",
            remedy="lower model.max_tokens",
        )
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
        return Reading(utterances=vectors[in_order(groups, vectors.device)], options=options)

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
        order = in_order(groups, parts[0].device)
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
        hidden: Tensor = out.last_hidden_state.float()
        return hidden


READERS: dict[str, Callable[[Backbone, int], Reader]] = {
    "encoder": EncoderReader,
    "in_context": InContextReader,
}


def make_reader(name: str, backbone: Backbone, max_tokens: int) -> Reader:
    """The reader of this name. Raises InputError with a suggestion."""
    if name not in READERS:
        raise InputError(
            f"reader '{name}'", "no such reader", "a registered reader", did_you_mean(name, READERS)
        )
    return READERS[name](backbone, max_tokens)
