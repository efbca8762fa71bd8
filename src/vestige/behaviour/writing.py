"""Greedy answers of a causal LM to questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vestige.data.corpora import Document, encode
from vestige.errors import InputError
from vestige.footprint.passes import batches, logits_of, measured, padded
from vestige.models.causal_lm import LanguageModel
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import positions, refuse_unreadable

__all__ = ["written_answers"]


@dataclass(frozen=True)
class _Prompt:
    ids: tuple[int, ...]


def written_answers(
    model: LanguageModel, questions: Sequence[str], *, max_new_tokens: int, batch_tokens: int = 4096
) -> list[str]:
    """What the model writes after `Question: q\\nAnswer:`, the likeliest token each time, to its end token.

    Padding on the left does not change an answer. Raises InputError for a question that leaves no room, and
    for logits that are no numbers.
    """
    prompts = [
        _Prompt(
            encode(
                model.tokenizer,
                Document("", f"Question: {question}\nAnswer:"),
                text_format="plain",
                subject="question",
            ).ids
        )
        for question in questions
    ]
    found = [""] * len(prompts)
    refuse_unreadable(
        model.model, (prompt.ids for prompt in prompts), subject="question", remedy="leave it out"
    )
    room = positions(model.model) or 10**9
    with measured(model.model), torch.inference_mode():
        for part in batches(prompts, batch_tokens=batch_tokens):
            longest = len(prompts[part[0]].ids)
            new = min(max_new_tokens, room - longest)
            if new < 1:
                raise InputError(
                    "question", f"{longest} tokens", f"room for an answer within {room}", "leave it out"
                )
            ids, mask = padded(
                [prompts[i] for i in part], device=next(model.model.parameters()).device, side="left"
            )
            written = _greedy(model, ids, mask, new)
            for k, i in enumerate(part):
                found[i] = model.tokenizer.decode(
                    _until_end(written[k], model.tokenizer), skip_special_tokens=True
                )
    return [text.strip() for text in found]


def _greedy(model: LanguageModel, ids: Tensor, mask: Tensor, new: int) -> Tensor:
    """The (n, <= new) tokens after ids (n, L), padded on the left."""
    start, end = ids.shape[1], model.tokenizer.eos_token_id
    if hasattr(model.model, "generate"):
        from transformers import GenerationConfig

        plan = GenerationConfig(
            max_new_tokens=new,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            eos_token_id=end,
            pad_token_id=end if end is not None else 0,
        )
        with _only(plan, model.model) as lm:
            made: Tensor = lm.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=plan,
                logits_processor=[_checked],
            )
        return made[:, start:]
    done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(new):
        best = _checked(ids, logits_of(model.model, ids, mask)[:, -1]).argmax(-1, keepdim=True)
        ids = torch.cat([ids, best], 1)
        mask = torch.cat([mask, torch.ones_like(best)], 1)
        done |= best[:, 0] == end if end is not None else False
        if bool(done.all()):
            break
    return ids[:, start:]


@contextmanager
def _only(plan: Any, model: Any) -> Iterator[Any]:
    """The model with no other settings for generation than these. Its own, which lie beside its weights,
    would take the place of all that the plan leaves open: forbidden repetitions, shortest lengths, limits."""
    own = model.generation_config
    model.generation_config = plan
    try:
        yield model
    finally:
        model.generation_config = own


def _checked(ids: Tensor, logits: Tensor) -> Tensor:
    """The logits (n, V) after ids. Raises InputError where they are no numbers: minus infinity is one here,
    for a token that is never written."""
    refuse_no_numbers(logits.masked_fill(logits.isneginf(), 0), "a written answer, logits")
    return logits


def _until_end(ids: Tensor, tokenizer: Any) -> list[int]:
    values = [int(value) for value in ids]
    end = tokenizer.eos_token_id
    return values[: values.index(end)] if end in values else values
