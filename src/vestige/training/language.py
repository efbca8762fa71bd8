"""Fitting a causal language model to token sequences through the one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vestige.data.language_rows import LanguageRow
from vestige.errors import InputError
from vestige.language import FitSettings
from vestige.seeds import digest, generator
from vestige.training.batches import StepPlan
from vestige.training.losses import nll
from vestige.training.sequences import SequenceScorer
from vestige.training.steps import Hooks, Job, Part, TrainingRecord, run_job, weights_sha256

__all__ = ["fit_language_model", "fit_rows", "plain_rows", "share_of_rate"]


def plain_rows(sequences: Sequence[Sequence[int]]) -> list[LanguageRow]:
    """Token id lists as rows in which every token but the first is predicted; ids are their positions."""
    return [
        LanguageRow(str(i), tuple(ids), (False, *(True,) * (len(ids) - 1))) for i, ids in enumerate(sequences)
    ]


def fit_language_model(
    model: nn.Module,
    parameters: Iterable[nn.Parameter],
    sequences: Sequence[Sequence[int]],
    settings: FitSettings,
    *,
    seed: int,
    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> float:
    """Train `parameters` on the sequences (token ids, at least two each); returns the last step's loss.

    The model's modes and requires_grad are the caller's. Otherwise as `fit_rows`.
    """
    if not sequences or min(map(len, sequences)) < 2:
        raise ValueError("needed sequences of at least two tokens")
    wanted = {id(value) for value in parameters}
    state: dict[str, Tensor] = {
        name: value for name, value in model.named_parameters() if id(value) in wanted
    }
    hooks = Hooks(progress=progress)
    record, _ = fit_rows(
        model, plain_rows(sequences), settings, seed=seed, hooks=hooks, state=state, train_mode=model.training
    )
    return record.final_loss


def fit_rows(
    model: nn.Module,
    rows: Sequence[LanguageRow],
    settings: FitSettings,
    *,
    seed: int,
    folder: Path | None = None,
    hooks: Hooks | None = None,
    state: dict[str, Tensor] | None = None,
    identity: str = "",
    train_mode: bool = True,
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Train `state` (default: what asks for a gradient) on the mean loss of a batch's predicted tokens.

    Every epoch passes over all rows in an order of its own, drawn from `seed`; the last batch may be smaller.
    folder: as `run_job`. train_mode: with dropout. Raises Diverged, Interrupted, InputError.
    """
    if not rows:
        raise InputError("training text", "no rows", "at least one", "check the file")
    if state is None:
        state = {name: value for name, value in model.named_parameters() if value.requires_grad}
    plan = _plan(len(rows), settings, seed)
    scorer = SequenceScorer(model)

    def parts(step: StepPlan, position: int) -> Iterator[Part]:
        loss = nll(scorer.batch([rows[i] for i in step.retain]).token_log_probs)
        yield Part(loss, retain=loss)

    job = Job(
        kind="language",
        plan=plan,
        parts=parts,
        learning_rate=settings.learning_rate,
        rate=lambda step: share_of_rate(step, len(plan), settings),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        decay_vectors=settings.decay_vectors,
        identity=digest(
            "fit language",
            settings.to_json(),
            seed,
            identity,
            weights_sha256(state),
            *[value for row in rows for value in (row.id, row.ids, row.labels)],
        ),
        row_ids=lambda step: [rows[i].id for i in step.retain],
        tokens=lambda step: sum(len(rows[i].ids) for i in step.retain),
        forget_rows=0,
        retain_rows=len(rows),
        fused=True,
        train_mode=train_mode,
    )
    return run_job(model, state, job, seed=seed, folder=folder, hooks=hooks or Hooks())


def _plan(rows: int, settings: FitSettings, seed: int) -> list[StepPlan]:
    per_epoch = math.ceil(rows / settings.batch_size)
    steps = []
    for epoch in range(settings.epochs):
        order = [int(i) for i in generator(seed, "order", epoch).permutation(rows)]
        for place in range(per_epoch):
            chosen = tuple(order[place * settings.batch_size : (place + 1) * settings.batch_size])
            steps.append(StepPlan(epoch + 1, (), chosen, place == per_epoch - 1))
    return steps[: settings.max_steps]


def share_of_rate(step: int, steps: int, settings: FitSettings) -> float:
    """The share of the learning rate at a 0-based step, in [0, 1]; 0 at the first step of a warm-up from
    zero."""
    share = settings.warmup_share * steps
    warmup = int(share) if settings.warmup_from_zero else math.ceil(share)
    if step < warmup:
        return (step + (0 if settings.warmup_from_zero else 1)) / warmup
    return (steps - step) / (steps - warmup) if settings.decay else 1.0
