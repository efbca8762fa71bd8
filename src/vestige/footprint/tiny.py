"""A causal LM of a few hundred thousand weights and a word tokenizer, built and trained on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import nn

from vestige.contracts import Record
from vestige.language import FitSettings
from vestige.seeds import stable_seed
from vestige.training.language import fit_language_model

__all__ = ["TinySettings", "encoded", "tiny_model", "train_tiny", "word_tokenizer"]


class TinySettings(Record):
    """Shape of the model (Llama blocks) and its training on generated text."""

    hidden: int = Field(64, ge=8)
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(128, ge=8)
    positions: int = Field(256, ge=8)
    fit: FitSettings = FitSettings(
        epochs=7, batch_size=16, learning_rate=5e-3, warmup_share=0.05, weight_decay=0.01
    )


def word_tokenizer(words: Sequence[str]) -> Any:
    """A fast tokenizer that splits at white space, puts `<s>` before a text, and knows these words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    known = {word: i for i, word in enumerate(["<s>", "</s>", "<unk>", *words])}
    core = Tokenizer(WordLevel(known, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", known["<s>"])])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )


def tiny_model(vocabulary: int, settings: TinySettings, *, seed: int) -> nn.Module:
    """A Llama of this shape with random weights, float32, in evaluation mode."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.feed_forward,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.positions,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stable_seed(seed, "tiny weights"))
        model: nn.Module = LlamaForCausalLM(config)
    return model.eval()


def encoded(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, the beginning token first."""
    ids: list[list[int]] = tokenizer(list(texts))["input_ids"]
    return ids


def train_tiny(
    texts: Sequence[str], words: Sequence[str], settings: TinySettings, *, seed: int
) -> tuple[nn.Module, Any]:
    """A tiny model fitted to the texts, and its tokenizer. No weight asks for a gradient afterwards."""
    tokenizer = word_tokenizer(words)
    model = tiny_model(len(tokenizer), settings, seed=seed)
    fit_language_model(
        model,
        list(model.parameters()),
        encoded(tokenizer, texts),
        settings.fit,
        seed=stable_seed(seed, "tiny"),
    )
    return model.requires_grad_(False), tokenizer
