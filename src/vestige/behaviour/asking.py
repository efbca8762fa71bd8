"""Asking a model the questions of a subject, by our own pass or through lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Callable

from vestige.behaviour.kept import Kept, model_digest
from vestige.behaviour.partition import Subject
from vestige.behaviour.records import BehaviourSettings
from vestige.footprint.questions import answer
from vestige.models.causal_lm import LanguageModel
from vestige.seeds import digest

__all__ = ["correct_answers"]


def correct_answers(
    model: LanguageModel,
    subject: Subject,
    settings: BehaviourSettings,
    *,
    kept: Kept,
    batch_tokens: int = 8192,
    advance: Callable[[int], None] = lambda options: None,
) -> tuple[bool, ...]:
    """Which questions the model answers: zero-shot, letters, option log-likelihood. Kept where it was asked
    before. advance: is told how many options were read."""

    def ask() -> dict[str, list[object]]:
        name = f"{subject.path}"
        if settings.engine == "lm-eval":
            from vestige.behaviour.harness import harness_answers

            found = harness_answers(
                model,
                subject.questions,
                name=subject.name,
                bos=settings.bos == "tokenizer",
                ties=settings.ties,
            )
            advance(sum(len(question.options) for question in subject.questions))
        else:
            found = answer(
                model.model,
                model.tokenizer,
                subject.questions,
                batch_tokens=batch_tokens,
                subject=name,
                bos=settings.bos == "tokenizer",
                ties=settings.ties,
                advance=advance,
            )
        return {"correct": list(found.correct), "losses": [list(losses) for losses in found.losses]}

    key = digest(
        "answers", model_digest(model), subject.content, settings.engine, settings.bos, settings.ties
    )
    stored = kept.result("answers", key, ask)
    return tuple(bool(right) for right in stored["correct"])
