"""Tiny randomly initialised causal language models with a word tokenizer, built on the spot."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.tiny import WORDS

VOCABULARY = ["<unk>", "<s>", "</s>", *sorted(set(WORDS)), ":", "Question", "Answer"]
LETTERS = ("A", "B", "C", "D")
"""Words to add (`extra`) for models that answer multiple-choice questions."""


def tiny_tokenizer(
    *,
    bos: bool = True,
    pad: str | None = "</s>",
    chat_template: str | None = None,
    extra: tuple[str, ...] = (),
) -> Any:
    """Words and white space; adds `<s>` before a text when `bos`; `pad` is the end token by default."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: i for i, word in enumerate([*VOCABULARY, *extra])}
    words = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if bos:
        words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token=pad
    )
    if chat_template is not None:
        made.chat_template = chat_template
    return made


def tiny_llama(
    *,
    layers: int = 2,
    seed: int = 0,
    dtype: str = "float32",
    spread: float = 0.2,
    extra: tuple[str, ...] = (),
) -> Any:
    """A Llama with grouped-query attention and random weights. spread: standard deviation of the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(VOCABULARY) + len(extra),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=spread,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()


def save_tiny_llama(folder: Path, **kwargs: Any) -> Path:
    """Write `tiny_llama` and its tokenizer as transformers saves them."""
    from vestige.models.backbones import quiet_loading

    with quiet_loading():
        tiny_llama(**kwargs).save_pretrained(str(folder))
        tiny_tokenizer(extra=kwargs.get("extra", ())).save_pretrained(str(folder))
    return folder


def tiny_texts(n: int, *, seed: int = 0, longest: int = 20, words: list[str] | None = None) -> list[str]:
    """Texts of 3 to `longest` words of the vocabulary."""
    rng = random.Random(seed)
    pool = words or sorted(set(WORDS))
    return [" ".join(rng.choices(pool, k=rng.randint(3, longest))) for _ in range(n)]


def write_corpus(path: Path, texts: list[str]) -> Path:
    """JSONL with a text column."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def save_byte_llama(folder: Path, texts: list[str], *, vocabulary: int = 400, positions: int = 512) -> Path:
    """A very small random Llama whose tokenizer reads any text: byte-level BPE, learned from `texts`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from vestige.models.backbones import quiet_loading

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    config = LlamaConfig(
        vocab_size=core.get_vocab_size(),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]), quiet_loading():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    return folder
