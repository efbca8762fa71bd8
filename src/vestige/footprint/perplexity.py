"""Perplexity over sliding windows, each token but the first scored exactly once; ratios by logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vestige.data.corpora import TokenSequence, adds_bos
from vestige.errors import InputError
from vestige.footprint.passes import logits_of, measured, padded, token_losses
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import positions, refuse_unreadable

__all__ = ["Perplexity", "Window", "log10_perplexity_ratio", "perplexity", "windows"]


@dataclass(frozen=True)
class Perplexity:
    """nll: summed negative log-likelihood in nats over `tokens` scored tokens, at least 1."""

    nll: float
    tokens: int

    @property
    def log10(self) -> float:
        """log10 of the perplexity, at least 0."""
        return self.nll / self.tokens / math.log(10)


@dataclass(frozen=True)
class Window:
    """Tokens start to end - 1 are read; those from `scored` on are scored."""

    start: int
    scored: int
    end: int


def windows(tokens: int, *, window: int, stride: int) -> Iterator[Window]:
    """Windows of at most `window` tokens that begin `stride` apart; the last ends with the text.

    Each scores what none before it did, so that tokens 1 to tokens - 1 are scored once each, token 0 never.
    """
    if not 1 <= stride <= window - 1:
        raise ValueError(f"stride must lie between 1 and window - 1, not {stride} with a window of {window}")
    done = 1
    start = 0
    while done < tokens:
        end = min(start + window, tokens)
        yield Window(start, done, end)
        done = end
        start += stride


def perplexity(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str | Sequence[int]],
    *,
    max_tokens: int = 50_000,
    window: int = 2048,
    stride: int = 512,
) -> Perplexity:
    """Perplexity of texts joined by two newlines: their first `max_tokens` tokens.

    A window is given as its token ids, which are scored as they are: they may begin inside a character.
    A beginning token, where the tokenizer adds one, opens every window: it lies inside `window` and is never
    scored, nor is the text's first token. `window` is cut to the positions that the model has. Token
    log-likelihoods in float32 or better, summed in float64. Raises InputError below two tokens, and where a
    log-likelihood is no number.
    """
    ids = _joined(tokenizer, texts)[:max_tokens]
    if len(ids) < 2:
        raise InputError(
            "text for perplexity", f"{len(ids)} tokens", "at least two tokens", "give longer documents"
        )
    opening = (tokenizer.bos_token_id,) if adds_bos(tokenizer) else ()
    refuse_unreadable(model, ([token] for token in set(ids)), subject="text for perplexity")
    room = min(window, positions(model) or window) - len(opening)
    device = next(model.parameters()).device
    nll, scored = 0.0, 0
    with measured(model), torch.inference_mode():
        for part in windows(len(ids), window=room, stride=min(stride, room - 1)):
            sequence = TokenSequence((*opening, *ids[part.start : part.end]), "", part.start, "")
            tokens, mask = padded([sequence], device=device)
            losses = token_losses(logits_of(model, tokens, mask), tokens, mask)[0]
            fresh = part.end - part.scored
            refuse_no_numbers(losses[-fresh:], "perplexity, token log-likelihoods")
            nll += float(losses[-fresh:].double().sum())
            scored += fresh
    return Perplexity(nll=nll, tokens=scored)


def _joined(tokenizer: Any, texts: Sequence[str | Sequence[int]]) -> list[int]:
    """Token ids of the texts with two newlines between them; texts that follow each other are read as one."""
    found: list[int] = []
    text = ""

    def read() -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []

    for number, part in enumerate(texts):
        text += "\n\n" if number else ""
        if isinstance(part, str):
            text += part
            continue
        found += [*read(), *part]
        text = ""
    return [*found, *read()]


def log10_perplexity_ratio(base: Sequence[Perplexity], after: Sequence[Perplexity]) -> float:
    """Mean over subsets of log10(PPL after / PPL base): 112 stands for a ratio of 10^112."""
    if not base or len(base) != len(after):
        raise ValueError(f"needed the same subsets of both models, found {len(base)} and {len(after)}")
    return math.fsum(now.log10 - was.log10 for was, now in zip(base, after, strict=True)) / len(base)
