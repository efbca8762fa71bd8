"""Perplexity against scoring one token at a time, and its ratios."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers
from tests.tiny_lm import tiny_llama, tiny_texts, tiny_tokenizer

from vestige.data.corpora import Corpus, Document, draw_sample
from vestige.errors import InputError
from vestige.footprint.perplexity import Perplexity, log10_perplexity_ratio, perplexity, windows


def reference(
    model: Any, tokenizer: Any, texts: list[str], limit: int, window: int, stride: int
) -> Perplexity:
    """Each token alone, after the tokens of the first window that holds it, as the definition says."""
    bos = [1] if tokenizer("a")["input_ids"][0] == 1 else []
    ids = tokenizer("\n\n".join(texts), add_special_tokens=False)["input_ids"][:limit]
    room = window - len(bos)
    total = 0.0
    for i in range(1, len(ids)):
        start = 0
        while start + room <= i:
            start += stride
        context = torch.tensor([[*bos, *ids[start:i]]])
        with torch.inference_mode():
            logits = model(input_ids=context).logits[0, -1].double()
        total -= float(torch.log_softmax(logits, 0)[ids[i]])
    return Perplexity(total, len(ids) - 1)


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize(
    ("window", "stride", "limit"), [(16, 5, 60), (16, 15, 60), (64, 7, 40), (200, 50, 60)]
)
def test_equal_to_one_token_at_a_time(bos: bool, window: int, stride: int, limit: int) -> None:
    model, tokenizer = tiny_llama(dtype="float64"), tiny_tokenizer(bos=bos)
    texts = tiny_texts(12)
    stride = min(stride, window - 2)
    found = perplexity(model, tokenizer, texts, max_tokens=limit, window=window, stride=stride)
    expected = reference(model, tokenizer, texts, limit, min(window, 128), stride)
    assert found.tokens == expected.tokens == limit - 1
    # float64 throughout; sums in another order.
    assert found.nll == pytest.approx(expected.nll, rel=1e-9)
    assert found.log10 == pytest.approx(expected.nll / expected.tokens / math.log(10))


def byte_tokenizer() -> Any:
    """A token a byte, so that a window may begin inside a character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({sign: i for i, sign in enumerate(signs)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=signs[0])


def test_windows_inside_a_character_are_scored_by_their_tokens() -> None:
    tokenizer = byte_tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.3,
    )
    model = transformers.LlamaForCausalLM(config).double().eval()
    documents = (Document("0", "你好世界" * 20), Document("1", "naïve café"))
    corpus = Corpus(name="c", role="forget", documents=documents)
    sample = draw_sample(corpus, tokenizer, units=4, subsets=1, max_length=31)
    parts = [unit.own for unit in sample.subsets[0]]
    windows = [part for part in parts if not isinstance(part, str)]
    assert len(windows) == 3
    assert any("\ufffd" in tokenizer.decode(part) for part in windows)  # cut inside a character
    gap = tokenizer("\n\n")["input_ids"]
    ids: list[int] = []
    for part in parts:
        own = tokenizer(part)["input_ids"] if isinstance(part, str) else part
        ids += [*(gap if ids else []), *own]
    with torch.inference_mode():
        scores = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, :-1], -1)
    slow = -float(scores.gather(1, torch.tensor(ids[1:])[:, None]).sum())
    found = perplexity(model, tokenizer, parts)
    assert found.tokens == len(ids) - 1
    assert found.nll == pytest.approx(slow, rel=1e-9)


@pytest.mark.parametrize(
    ("tokens", "window", "stride"), [(2, 5, 2), (5, 5, 2), (6, 5, 2), (101, 20, 7), (40, 5, 4)]
)
def test_windows_score_every_token_but_the_first_once(tokens: int, window: int, stride: int) -> None:
    parts = list(windows(tokens, window=window, stride=stride))
    scored = [i for part in parts for i in range(part.scored, part.end)]
    assert scored == list(range(1, tokens))
    assert all(part.end - part.start <= window and part.scored > part.start for part in parts)
    assert parts[-1].end == tokens


def test_ratios_are_means_of_logarithms() -> None:
    base = [Perplexity(math.log(10) * 5, 5), Perplexity(math.log(10) * 4, 4)]
    after = [Perplexity(math.log(10) * 5 * 113, 5), Perplexity(math.log(10) * 4 * 113, 4)]
    assert log10_perplexity_ratio(base, after) == pytest.approx(112)
    assert log10_perplexity_ratio(base, base) == 0
    with pytest.raises(ValueError, match="same subsets"):
        log10_perplexity_ratio(base, after[:1])


def test_a_text_of_one_token_has_no_perplexity() -> None:
    with pytest.raises(InputError, match="1 tokens"):
        perplexity(tiny_llama(layers=1), tiny_tokenizer(), ["card"])
    with pytest.raises(ValueError, match="stride"):
        list(windows(10, window=4, stride=4))
