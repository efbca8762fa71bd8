"""Answering multiple-choice questions with a causal LM: the option of the largest log-likelihood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from vestige.data.corpora import TokenSequence
from vestige.data.files import read_table
from vestige.errors import InputError
from vestige.footprint.passes import batches, logits_of, measured, padded, token_losses

__all__ = ["Answers", "Asked", "answer", "letter_questions", "read_questions"]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Asked(Protocol):
    """A prompt, the options that may follow it, and which one is right."""

    @property
    def prompt(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def answer(self) -> int: ...


@dataclass(frozen=True)
class _Letters:
    prompt: str
    options: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class Answers:
    """correct: the right option has the largest log-likelihood, ties lost. greedy: the model would write the
    right option by itself, token by token. chance: mean over questions of one over the options.
    """

    correct: tuple[bool, ...]
    greedy: tuple[bool, ...]
    chance: float

    @property
    def accuracy(self) -> float:
        """Share of correct answers, in [0, 1]."""
        return sum(self.correct) / len(self.correct)

    @property
    def cloze(self) -> float:
        """Share of right options that the model writes by itself, in [0, 1]."""
        return sum(self.greedy) / len(self.greedy)


def answer(
    model: nn.Module, tokenizer: Any, questions: Sequence[Asked], *, batch_tokens: int = 8192
) -> Answers:
    """Answer with the option whose tokens after the prompt have the largest summed log-likelihood.

    Options are put after the prompt with one space. Raises InputError without questions.
    """
    if not questions:
        raise InputError("questions", "none", "at least one question", "check the file")
    device = next(model.parameters()).device
    sequences, firsts = [], []
    for question in questions:
        start = tokenizer(question.prompt)["input_ids"]
        for option in question.options:
            ids = tokenizer(f"{question.prompt} {option}")["input_ids"]
            common = next((i for i, (a, b) in enumerate(zip(start, ids, strict=False)) if a != b), len(start))
            sequences.append(TokenSequence(tuple(ids), "", 0, ""))
            firsts.append(max(1, min(common, len(ids) - 1)))
    loss = [0.0] * len(sequences)
    greedy = [False] * len(sequences)
    with measured(model), torch.inference_mode():
        for part in batches(sequences, batch_tokens=batch_tokens):
            ids, mask = padded([sequences[i] for i in part], device=device)
            logits = logits_of(model, ids, mask)
            losses = token_losses(logits, ids, mask).double()
            best = logits[:, :-1].argmax(-1) == ids[:, 1:]
            for row, i in enumerate(part):
                own = slice(firsts[i] - 1, len(sequences[i].ids) - 1)
                loss[i] = float(losses[row, own].sum())
                greedy[i] = bool(best[row, own].all())
    correct, written, place = [], [], 0
    for question in questions:
        own_losses = loss[place : place + len(question.options)]
        right = own_losses[question.answer]
        others = [value for i, value in enumerate(own_losses) if i != question.answer]
        correct.append(all(right < value for value in others))
        written.append(greedy[place + question.answer])
        place += len(question.options)
    chance = sum(1 / len(question.options) for question in questions) / len(questions)
    return Answers(tuple(correct), tuple(written), chance)


def letter_questions(items: Iterable[tuple[str, Sequence[str], int]]) -> list[Asked]:
    """(question, options, answer) as `question / A. ... / Answer:` prompts whose options are the letters."""
    found: list[Asked] = []
    for text, options, right in items:
        lines = [f"{LETTERS[i]}. {option}" for i, option in enumerate(options)]
        prompt = "\n".join([text.strip(), *lines, "Answer:"])
        found.append(_Letters(prompt, tuple(LETTERS[: len(options)]), right))
    return found


def read_questions(path: str | Path) -> list[Asked]:
    """Multiple-choice questions of a JSONL or table file with columns question, options and answer.

    options: a list of two or more texts. answer: a 0-based position, a letter, or an option's own text.
    Raises InputError naming the row.
    """
    path = Path(path)
    table = read_table(path)
    missing = [name for name in ("question", "options", "answer") if name not in table.columns]
    if missing:
        raise InputError(
            str(path),
            f"no column '{missing[0]}'",
            "columns question, options and answer",
            "rename the columns",
        )
    items = []
    for number, row in enumerate(table.itertuples(), start=1):
        where = f"{path}, row {number}"
        options = _options(row.options, where)
        items.append((str(row.question), options, _position(row.answer, options, where)))
    return letter_questions(items)


def _options(value: Any, where: str) -> list[str]:
    import json

    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    options = [str(option) for option in value] if isinstance(value, list | tuple) else []
    if not 2 <= len(options) <= len(LETTERS):
        raise InputError(
            f"{where}, options", f"{value!r}", f"a list of 2 to {len(LETTERS)} texts", "correct this row"
        )
    return options


def _position(value: Any, options: Sequence[str], where: str) -> int:
    text = str(value).strip()
    if text in options:
        return options.index(text)
    if text.isdigit() and int(text) < len(options):
        return int(text)
    if len(text) == 1 and text.upper() in LETTERS[: len(options)]:
        return LETTERS.index(text.upper())
    raise InputError(
        f"{where}, answer", f"{value!r}", "a 0-based position, a letter, or an option", "correct this row"
    )
