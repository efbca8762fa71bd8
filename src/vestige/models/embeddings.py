"""The frozen sentence encoder: normalised mean-pooled vectors, for neighbours and nearest-row views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vestige.contracts import Floats
from vestige.models.backbones import Backbone, load_backbone
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import refuse_unreadable
from vestige.models.reading import length_groups, pad

__all__ = ["SentenceEncoder", "sentence_encoder"]


class SentenceEncoder:
    """Mean of the last hidden states over real tokens, divided by its length. Never trained."""

    def __init__(self, backbone: Backbone, max_tokens: int = 128) -> None:
        self._backbone = backbone
        self._max_tokens = max_tokens
        self.record = backbone.record

    def embed(self, texts: Sequence[str]) -> Floats:
        """(N,) texts -> (N, d) float64, rows of Euclidean length 1. Equal texts get equal rows."""
        if not len(texts):
            return np.zeros((0, self.record.hidden_size))
        distinct = sorted(set(texts))
        tokenizer: Any = self._backbone.tokenizer
        ids = tokenizer(distinct, truncation=True, max_length=self._max_tokens)["input_ids"]
        refuse_unreadable(self._backbone.model, ids, subject=f"sentence encoder '{self.record.name}', a text")
        rows = np.zeros((len(distinct), self.record.hidden_size))
        for group in length_groups([len(row) for row in ids], waste=0.0):
            for start in range(0, len(group), 256):
                part = group[start : start + 256]
                tokens, mask = pad([ids[i] for i in part], tokenizer.pad_token_id or 0)
                with torch.inference_mode():
                    out = self._backbone.model(input_ids=tokens, attention_mask=mask).last_hidden_state
                weights = mask[..., None].double()
                means = (out.double() * weights).sum(1) / weights.sum(1)
                refuse_no_numbers(means, f"sentence encoder '{self.record.name}', vectors")
                rows[part] = torch.nn.functional.normalize(means, dim=-1).numpy()
        position = {text: i for i, text in enumerate(distinct)}
        return rows[[position[text] for text in texts]]


@lru_cache(maxsize=2)
def sentence_encoder(name: str = "minilm", max_tokens: int = 128) -> SentenceEncoder:
    """The encoder of this backbone name that reads so many word pieces of a text, loaded once a process."""
    return SentenceEncoder(load_backbone(name), max_tokens)
