"""The in-context reader of causal language models: option texts first, then the utterance."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError
from vestige.models.blocks import block_output
from vestige.models.positions import refuse_unreadable
from vestige.models.reading import Ids, Path, Reading, in_order, is_causal, length_groups, pad

if TYPE_CHECKING:
    from vestige.models.backbones import Backbone

__all__ = ["InContextReader", "SchemaPrefix"]

BEFORE_OPTIONS = "Options:\n"
AFTER_OPTIONS = "\nMessage:\n"
LINE_END = "\n"
TOKENS_AT_ONCE = 32768
"""Rows go through the network in parts of at most so many tokens, prefix counted for each row: a bound on
memory that has no part in the results."""


@dataclass(frozen=True)
class SchemaPrefix:
    """A schema as read once. options (C, d) in the schema's order; tokens: the prefix; cache: the keys and
    values of every block for it, None where the architecture keeps states that rows cannot share."""

    options: Tensor
    tokens: list[int]
    cache: Any | None


class InContextReader:
    """The options, one a line, then the utterance on a line, read as one text from left to right.

    An option's vector is the state at its last token, the utterance's the state at its own. No option sees
    the utterance, so that all rows share one reading of the options; each option sees those before it, so
    that the order matters: it is drawn anew at each reading while training, from torch's generator (which the
    training loop seeds by its seed and step), and is the schema's own otherwise.

    The prefix's keys and values are computed once and shared by the rows, with gradient in training. Networks
    with recurrent or convolutional states read the prefix again before each row (`path`).
    """

    def __init__(self, backbone: Backbone, max_tokens: int) -> None:
        self.backbone = backbone
        self.max_tokens = max_tokens
        model: Any = backbone.model
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        if not is_causal(base):
            raise InputError(
                f"backbone '{backbone.record.name}' with the reader 'in_context'",
                f"{backbone.record.architecture}, an encoder",
                "a causal language model, which reads from left to right",
                "set model.reader to 'encoder'",
            )
        self._config = base.config
        self._shared = _cache_can_be_shared(base.config)
        named = inspect.signature(base.forward).parameters
        self._cache_name = "cache" if "cache" in named else "past_key_values"
        tokenizer = backbone.tokenizer
        plain = self._plain
        self._end = (
            plain(LINE_END)
            or [token for token in (tokenizer.eos_token_id, tokenizer.sep_token_id) if token is not None][:1]
        )
        if not self._end:
            raise InputError(
                f"backbone '{backbone.record.name}'",
                "a tokenizer without a line end or an end token",
                "a token that ends an option",
                "use another backbone",
            )
        self._before = [*_leading(tokenizer), *plain(BEFORE_OPTIONS)]
        self._after = plain(AFTER_OPTIONS)

    @property
    def path(self) -> Path:
        """Whether rows share the prefix's keys and values."""
        return "cached prefix" if self._shared else "full sequences"

    @property
    def model(self) -> nn.Module:
        """The network that reads: LoRA layers are inside it."""
        return self.backbone.model

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids without special tokens, cut to `max_tokens`."""
        encoded = self.backbone.tokenizer(
            list(texts), truncation=True, max_length=self.max_tokens, add_special_tokens=False
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def options(self, option_ids: Sequence[Ids]) -> SchemaPrefix:
        """One pass over all options, in random order while the network is in training mode."""
        order = list(range(len(option_ids)))
        if self.model.training:
            order = torch.randperm(len(order)).tolist()
        return self._prefix(option_ids, order)

    def read(self, utterance_ids: Sequence[Ids], options: SchemaPrefix) -> Reading:
        """(n,) id lists -> vectors (n, d) after the prefix, in groups of like length."""
        rows = [[*ids, *self._end] for ids in utterance_ids]
        groups = self._groups(rows, options)
        parts = []
        for group in groups:
            part = [rows[i] for i in group]
            hidden = self.model(**self._inputs(part, options), return_dict=True).last_hidden_state
            skipped = hidden.shape[1] - max(len(ids) for ids in part)
            last = torch.tensor([skipped + len(ids) - 1 for ids in part], device=hidden.device)
            parts.append(hidden[torch.arange(len(part), device=hidden.device), last].float())
        vectors = torch.cat(parts)
        return Reading(utterances=vectors[in_order(groups, vectors.device)], options=options.options)

    def states(
        self, utterance_ids: Sequence[Ids], option_ids: Sequence[Ids], block: int
    ) -> tuple[Tensor, Tensor]:
        """See `Reader.states`: after the options in the schema's own order, training or not."""
        prefix = self._prefix(option_ids, list(range(len(option_ids))))
        width = max(len(ids) for ids in utterance_ids)
        groups = self._groups(utterance_ids, prefix)
        parts = []
        for group in groups:
            part = [utterance_ids[i] for i in group]
            longest = max(len(ids) for ids in part)
            hidden = block_output(self.model, block, **self._inputs(part, prefix))
            own = hidden[:, hidden.shape[1] - longest :]
            parts.append(nn.functional.pad(own, (0, 0, 0, width - longest)))
        order = in_order(groups, parts[0].device)
        lengths = torch.tensor([len(ids) for ids in utterance_ids], device=order.device)
        mask = torch.arange(width, device=order.device)[None] < lengths[:, None]
        return torch.cat(parts)[order], mask

    def _prefix(self, option_ids: Sequence[Ids], order: Sequence[int]) -> SchemaPrefix:
        tokens = list(self._before)
        last = [0] * len(option_ids)
        for i in order:
            tokens += [*option_ids[i], *self._end]
            last[i] = len(tokens) - 1
        tokens += self._after
        refuse_unreadable(
            self.model,
            [tokens],
            subject=f"backbone '{self.backbone.record.name}', the options",
            remedy="shorten the options' texts, or use another backbone",
        )
        batch = torch.tensor([tokens], device=self._device)
        cache = _empty_cache(self._config) if self._shared else None
        inputs = {"input_ids": batch, "use_cache": self._shared, self._cache_name: cache}
        states = self.model(**inputs, return_dict=True).last_hidden_state[0]
        options = states[torch.tensor(last, device=states.device)].float()
        return SchemaPrefix(options, tokens, _frozen(cache) if self._shared else None)

    def _inputs(self, rows: Sequence[Ids], prefix: SchemaPrefix) -> dict[str, Any]:
        """The network's inputs for rows after the prefix. Padding stands to the right, where no real token of
        a causal network looks, so that no mask is needed."""
        if prefix.cache is None:
            rows = [[*prefix.tokens, *ids] for ids in rows]
        tokens, _ = pad(rows, self._end[-1])
        inputs: dict[str, Any] = {"input_ids": tokens.to(self._device), "use_cache": prefix.cache is not None}
        if prefix.cache is not None:
            inputs[self._cache_name] = prefix.cache
        return inputs

    def _groups(self, rows: Sequence[Ids], prefix: SchemaPrefix) -> list[list[int]]:
        """Groups of like length, cut so that each stays within `TOKENS_AT_ONCE`. Raises InputError for a row
        that does not fit behind the options."""
        refuse_unreadable(
            self.model,
            rows,
            subject=f"backbone '{self.backbone.record.name}', a text behind the options",
            remedy="lower model.max_tokens, shorten the options' texts, or use another backbone",
            before=len(prefix.tokens),
        )
        parts = []
        for group in length_groups([len(ids) for ids in rows]):
            longest = len(prefix.tokens) + max(len(rows[i]) for i in group)
            step = max(1, TOKENS_AT_ONCE // longest)
            parts += [group[start : start + step] for start in range(0, len(group), step)]
        return parts

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.backbone.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _leading(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    start = next((i for i in range(len(full)) if full[i : i + len(plain)] == plain), 0) if plain else 0
    leading: list[int] = full[:start]
    return leading


def _empty_cache(config: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=config)


def _cache_can_be_shared(config: Any) -> bool:
    """Whether every block keeps keys and values alone. Recurrent and convolutional states are overwritten in
    place as tokens come, without gradient: rows cannot go on from one of them."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    try:
        layers = _empty_cache(config).layers
    except (AttributeError, KeyError, TypeError, ValueError):  # a state that this cache does not know
        return False
    return all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) or type(layer).__name__ == "DummyLayer"
        for layer in layers
    )


def _frozen(cache: Any) -> Any:
    """The cache with layers that join new keys and values to the prefix's, for any number of rows, and keep
    none of them: it can be read from again and again."""
    out = copy.copy(cache)
    out.layers = []
    for layer in cache.layers:
        twin = copy.copy(layer)
        if getattr(layer, "keys", None) is not None:
            twin.update = partial(_joined, layer.keys, layer.values)
        out.layers.append(twin)
    return out


def _joined(
    before: Tensor, values_before: Tensor, keys: Tensor, values: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    """Keys and values (n, heads, L, e) after the prefix's (1, heads, P, e), which every row gets."""
    rows = keys.shape[0]
    return (
        torch.cat([before.expand(rows, -1, -1, -1), keys], dim=-2),
        torch.cat([values_before.expand(rows, -1, -1, -1), values], dim=-2),
    )
