"""Tiny randomly initialised models, built on the spot: a real BERT of 2 blocks with a word tokenizer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from vestige.decision.schema import Option, Schema

WORDS = """
card lost stolen top up transfer fee cash refund pin change balance rate exchange please help why my is the a
not how do i can where when arrived pending failed wrong amount new old virtual phone app account close open
limit raise lower country travel verify identity code number
""".split()  # noqa: SIM905


OPTIONS = {
    "lost_card": "lost stolen card",
    "top_up": "top up failed",
    "exchange_rate": "exchange rate wrong",
    "pin": "change pin code",
    "limit": "raise limit account",
    "verify": "verify identity",
}


def tiny_schema() -> Schema:
    """Six options with names and no descriptions."""
    return Schema(tuple(Option(id=key, name=key) for key in OPTIONS))


def tiny_rows(n: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """(row ids, texts, gold): unequal lengths, the option's words among noise words."""
    rng = random.Random(seed)
    ids, texts, gold = [], [], []
    for i in range(n):
        option = rng.choice(sorted(OPTIONS))
        words = [*rng.sample(OPTIONS[option].split(), 2), *rng.choices(WORDS, k=rng.randint(1, 14))]
        rng.shuffle(words)
        ids.append(f"{seed}-{i:03d}")
        texts.append(" ".join(words))
        gold.append(option)
    return ids, texts, gold


def save_tiny_bert(folder: Path, *, labels: list[str] | None = None, dropout: float = 0.1) -> Path:
    """Write a BERT with random weights (seed 0) and its tokenizer, as transformers saves them."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

    from vestige.models.backbones import quiet_loading

    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*WORDS, "identity"})]
    tokenizer: Any = BertTokenizer(vocab={word: i for i, word in enumerate(vocab)})
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,  # wide enough that random blocks tell words apart
    )
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: i for i, label in enumerate(labels)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = BertForSequenceClassification(config) if labels else BertModel(config)
    with quiet_loading():
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    return folder
