"""Answering multiple-choice questions with a causal LM: the option of the largest log-likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from vestige.data.corpora import one_bos
from vestige.data.questions import Asked
from vestige.errors import InputError, shown
from vestige.footprint.passes import batches, logits_of, measured, padded, token_losses
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import refuse_unreadable

__all__ = ["Answers", "answer", "option_tokens"]


@dataclass(frozen=True)
class Answers:
    """correct: the right option has the largest log-likelihood. greedy: the model would write the
    right option by itself, token by token. chance: mean over questions of one over the options. losses: each
    option's negative log-likelihood in nats.
    """

    correct: tuple[bool, ...]
    greedy: tuple[bool, ...]
    chance: float
    losses: tuple[tuple[float, ...], ...] = ()

    @property
    def accuracy(self) -> float:
        """Share of correct answers, in [0, 1]."""
        return sum(self.correct) / len(self.correct)

    @property
    def cloze(self) -> float:
        """Share of right options that the model writes by itself, in [0, 1]."""
        return sum(self.greedy) / len(self.greedy)


@dataclass(frozen=True)
class _Option:
    """Token ids of prompt and option; the option's own are those from `first` on."""

    ids: tuple[int, ...]
    first: int


def answer(
    model: nn.Module,
    tokenizer: Any,
    questions: Sequence[Asked],
    *,
    batch_tokens: int = 8192,
    subject: str = "questions",
    bos: bool = True,
    ties: Literal["wrong", "first"] = "wrong",
    advance: Callable[[int], None] = lambda sequences: None,
) -> Answers:
    """Answer with the option whose tokens after the prompt have the largest summed log-likelihood.

    Options are put after the prompt with one space. subject: what an error names. bos: the tokenizer's
    beginning token stands first where it adds one. ties: lost, or to the option that stands first. advance:
    is told how many options were just read. Raises InputError without questions, and for an option without
    tokens of its own or that the tokenizer does not tell from another.
    """
    if not questions:
        raise InputError(subject, "none", "at least one question", "check the file")
    device = next(model.parameters()).device
    sequences: list[_Option] = []
    for number, question in enumerate(questions, start=1):
        row = getattr(question, "row", 0) or number
        sequences += option_tokens(tokenizer, question, where=f"{subject}, row {row}", bos=bos)
    refuse_unreadable(
        model,
        (sequence.ids for sequence in sequences),
        subject=f"{subject}, a question with an option",
        remedy="leave the question out",
    )
    loss = [0.0] * len(sequences)
    greedy = [False] * len(sequences)
    with measured(model), torch.inference_mode():
        for part in batches(sequences, batch_tokens=batch_tokens):
            ids, mask = padded([sequences[i] for i in part], device=device)
            logits = logits_of(model, ids, mask)
            losses = token_losses(logits, ids, mask).double()
            best = logits[:, :-1].argmax(-1) == ids[:, 1:]
            for row, i in enumerate(part):
                own = slice(sequences[i].first - 1, len(sequences[i].ids) - 1)
                refuse_no_numbers(losses[row, own], f"{subject}, log-likelihood of an option")
                loss[i] = float(losses[row, own].sum())
                greedy[i] = bool(best[row, own].all())
            advance(len(part))
    correct, written, every, place = [], [], [], 0
    for question in questions:
        own_losses = tuple(loss[place : place + len(question.options)])
        correct.append(right_is_best(own_losses, question.answer, ties))
        written.append(greedy[place + question.answer])
        every.append(own_losses)
        place += len(question.options)
    chance = sum(1 / len(question.options) for question in questions) / len(questions)
    return Answers(tuple(correct), tuple(written), chance, tuple(every))


def right_is_best(losses: Sequence[float], right: int, ties: Literal["wrong", "first"] = "wrong") -> bool:
    """Whether the right option's loss is below every other's. A tie is lost, or (`first`) a tie with an
    option before it."""
    own = losses[right]
    return all(
        own < value or (ties == "first" and i > right and own == value)
        for i, value in enumerate(losses)
        if i != right
    )


def option_tokens(tokenizer: Any, question: Asked, *, where: str, bos: bool = True) -> list[_Option]:
    """Prompt and each option as one text, tokenised once; an option's tokens are those with a character
    behind the prompt's last. Raises InputError, see `answer`."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            where,
            f"a tokenizer ({type(tokenizer).__name__}) without character offsets",
            "a fast tokenizer (tokenizer.json)",
            "convert the tokenizer",
        )
    found: list[_Option] = []
    own: dict[tuple[int, ...], str] = {}
    for option in question.options:
        text = f"{question.prompt} {option}"
        coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids = list(coded["input_ids"])
        first_token, cut, _ = one_bos(tokenizer, text, ids, text_format="plain") if bos else (None, 0, ())
        behind = [
            i
            for i, (start, end) in enumerate(coded["offset_mapping"])
            if end > start and text[max(start, len(question.prompt)) : end].strip()
        ]
        if not behind or behind[0] == 0:
            raise InputError(
                f"{where}, option {shown(option)}",
                "no tokens of its own behind the prompt",
                "an option that the tokenizer reads",
                "correct the row or use another tokenizer",
            )
        head = () if first_token is None else (first_token,)
        ids, first = [*head, *ids[cut:]], behind[0] - cut + len(head)
        key = tuple(ids[first:])
        if key in own:
            raise InputError(
                f"{where}, options {shown(own[key])} and {shown(option)}",
                "the same tokens for both",
                "options that the tokenizer tells apart",
                "use a tokenizer that knows them",
            )
        own[key] = option
        found.append(_Option(tuple(ids), first))
    return found
