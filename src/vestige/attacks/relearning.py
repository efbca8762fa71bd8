"""Relearning: fresh adapters on an unlearned language model, trained on some of the forgotten text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.attacks import ATTACKS, Attack
from vestige.attacks.relearn_records import RelearnSettings
from vestige.data.corpora import Corpus
from vestige.data.language_rows import LanguageRow
from vestige.errors import InputError
from vestige.seeds import digest, generator

if TYPE_CHECKING:
    from torch import nn

    from vestige.training.steps import Hooks, TrainingRecord

__all__ = ["attack_weights", "budget_sha256", "halves", "refuse_shared", "token_log_probs"]

SCORED_TOKENS = 4096


def halves(corpus: Corpus, seed: int) -> tuple[Corpus, Corpus]:
    """(to train on, held out): half of the documents each, drawn by `seed`; equal texts stay together.

    The held-out half is the smaller one. Raises InputError for fewer than two different documents.
    """
    groups: dict[str, list[int]] = {}
    for position, document in enumerate(corpus.documents):
        groups.setdefault(_key(document.text), []).append(position)
    if len(groups) < 2:
        raise InputError(
            corpus.path or f"corpus '{corpus.name}'",
            "one document",
            "at least two, of which half is held out",
            "give --hold-out never with questions, or split the text into documents",
        )
    order = sorted(groups, key=lambda key: groups[key][0])
    drawn = [order[int(i)] for i in generator(seed, "held-out half").permutation(len(order))]
    held = {position for key in drawn[: len(drawn) // 2] for position in groups[key]}
    first = tuple(document for i, document in enumerate(corpus.documents) if i not in held)
    second = tuple(document for i, document in enumerate(corpus.documents) if i in held)
    return replace(corpus, documents=first), replace(corpus, documents=second)


def _key(text: str) -> str:
    return " ".join(text.split())


def refuse_shared(trained: Sequence[LanguageRow], scored: Sequence[LanguageRow], subject: str) -> None:
    """Raise InputError when a sequence that is trained on is scored as well, by its tokens."""
    both = {row.ids for row in trained} & {row.ids for row in scored}
    if both:
        name = next(row.id for row in scored if row.ids in both)
        raise InputError(
            subject,
            f"{len(both)} sequences that the attack trains on, '{name}' first",
            "scored text that no attack has seen",
            "take them out of one of the two files",
        )


def budget_sha256(rows: Sequence[LanguageRow], settings: RelearnSettings) -> str:
    """sha256 over the training sequences in their order and the settings: one budget for every checkpoint."""
    return digest(
        "relearn", settings.to_json(), *[value for row in rows for value in (row.topic, row.ids, row.labels)]
    )


def attack_weights(
    model: nn.Module,
    rows: Sequence[LanguageRow],
    settings: RelearnSettings,
    *,
    folder: Path | None = None,
    hooks: Hooks | None = None,
    identity: str = "",
) -> tuple[nn.Module, TrainingRecord, list[dict[str, Any]]]:
    """(model with trained adapters, record, one log entry a step). The model is given up for it.

    identity: of the model, so that a checkpoint of another is never gone on from. Raises Diverged,
    Interrupted.
    """
    from vestige.language import FitSettings, LoraSettings
    from vestige.seeds import stable_seed
    from vestige.training.language import fit_rows
    from vestige.training.session import attach_lora

    model.requires_grad_(False)
    lora = LoraSettings(rank=settings.rank, alpha=settings.alpha, dropout=settings.dropout)
    adapted: nn.Module = attach_lora(model, lora, seed=stable_seed(settings.seed, "relearning"))
    fit = FitSettings(
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_share=settings.warmup_share,
        warmup_from_zero=settings.warmup_from_zero,
        decay=True,
        max_grad_norm=settings.max_grad_norm,
        max_steps=settings.max_steps,
    )
    record, log = fit_rows(
        adapted,
        rows,
        fit,
        seed=stable_seed(settings.seed, "relearning order"),
        folder=folder,
        hooks=hooks,
        identity=identity,
    )
    return adapted, record, log


def token_log_probs(model: nn.Module, rows: Sequence[LanguageRow]) -> list[float]:
    """Mean log p of each sequence's predicted tokens, nats, at most 0, in the order of the rows. Raises
    InputError where one is no number."""
    from vestige.models.finite import refuse_no_numbers
    from vestige.training.sequences import SequenceScorer, still

    scorer = SequenceScorer(model)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
    found = [0.0] * len(rows)
    with still(model):
        while order:
            size = max(1, SCORED_TOKENS // len(rows[order[0]].ids))
            part, order = order[:size], order[size:]
            values = scorer.batch([rows[i] for i in part]).target_log_probs.double()
            refuse_no_numbers(values, "log-likelihood of scored text")
            for i, value in zip(part, values.tolist(), strict=True):
                found[i] = value
    return found


ATTACKS.register(
    Attack(
        name="relearn",
        title="relearning",
        question="how much of what was forgotten comes back when fresh adapters are trained on a little of "
        "the forgotten text again, with one budget for every checkpoint",
        shows_not="that nothing else brings it back; a rise of generic accuracy is a broken model being "
        "repaired",
        source="Ataee and Triantafillou 2026",
        models=("causal-lm",),
        settings=RelearnSettings,
        verb="vestige attack relearn",
    )
)
