"""Task training and unlearning of decision models through the one loop of `vestige.training.steps`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from vestige.contracts import Floats, LossBatch, Record
from vestige.errors import InputError
from vestige.seeds import digest
from vestige.training.batches import StepPlan, plan_steps
from vestige.training.hidden import HiddenStates, Scored, frozen
from vestige.training.losses import nll
from vestige.training.steps import (
    Hooks,
    Job,
    Part,
    TrainingRecord,
    constant,
    linear_decay,
    run_job,
    weights_sha256,
)

if TYPE_CHECKING:
    from vestige.contracts import Objective, UnlearnSettings
    from vestige.decision.schema import Schema

__all__ = [
    "Hooks",
    "TaskSettings",
    "TrainRows",
    "Trainable",
    "TrainingRecord",
    "train_task",
    "unlearn",
    "weights_sha256",
]


class TaskSettings(Record):
    """Task training: AdamW, cross-entropy over the schema, linear decay after a warm-up, gradient clipping.

    warmup_share: of all steps. Units: learning_rate per step; epochs over the training rows.
    """

    epochs: int = Field(5, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)


class Trainable(Protocol):
    """What the loop needs of a decision model; it is an `nn.Module` too."""

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]: ...
    def log_probs(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor: ...
    def hidden(
        self, utterance_ids: Sequence[Sequence[int]], schema: Schema, block: int
    ) -> tuple[Tensor, Tensor]: ...
    def predict(self, texts: Sequence[str], schema: Schema) -> Floats: ...
    def trainable_state(self) -> dict[str, Tensor]: ...
    def load_trainable_state(self, state: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class TrainRows:
    """Rows to train on. gold: option ids. Three lists of one length."""

    row_ids: Sequence[str]
    texts: Sequence[str]
    gold: Sequence[str]

    def __len__(self) -> int:
        return len(self.row_ids)


NO_ROWS = TrainRows((), (), ())


@dataclass(frozen=True)
class _Job:
    """Everything the loop needs, made by `train_task`, `unlearn` or `adapt`."""

    kind: Literal["task", "unlearning", "adaptation"]
    plan: list[StepPlan]
    epochs: int
    forget: _Prepared
    retain: _Prepared
    loss: Callable[[LossBatch | None, LossBatch | None], tuple[Tensor | None, Tensor | None, float]]
    learning_rate: float
    rate: Callable[[int], float]
    weight_decay: float
    max_grad_norm: float
    identity: str
    hidden: HiddenStates | None = None

    def ids(self, step: StepPlan) -> list[list[int]]:
        """Token ids of a step's rows, the forget rows first."""
        return [self.forget.ids[i] for i in step.forget] + [self.retain.ids[i] for i in step.retain]

    def row_ids(self, step: StepPlan) -> list[str]:
        """Ids of a step's rows, the forget rows first."""
        found = [self.forget.rows.row_ids[i] for i in step.forget]
        return found + [self.retain.rows.row_ids[i] for i in step.retain]


def train_task(
    model: Trainable,
    rows: TrainRows,
    schema: Schema,
    settings: TaskSettings,
    *,
    seed: int,
    folder: Path | None = None,
    hooks: Hooks | None = None,
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Train `model` in place on rows; returns the record and one log entry a step.

    folder: where checkpoints live while training runs; a run interrupted there resumes and ends in the same
    bytes. Raises Diverged, Interrupted, InputError.
    """
    prepared = _prepared(model, rows, schema, reference=False)
    plan = plan_steps(
        epochs=settings.epochs,
        seed=seed,
        retain_lengths=prepared.lengths,
        retain_batch=settings.batch_size,
    )
    warmup = round(settings.warmup_share * len(plan))
    start = weights_sha256(model.trainable_state())
    data = [*rows.gold, *rows.texts]

    def loss(_: LossBatch | None, retain: LossBatch | None) -> tuple[Tensor | None, Tensor | None, float]:
        assert retain is not None
        return None, nll(retain.target_log_probs), 1.0

    job = _Job(
        kind="task",
        plan=plan,
        epochs=settings.epochs,
        forget=_prepared(model, NO_ROWS, schema, reference=False),
        retain=prepared,
        loss=loss,
        learning_rate=settings.learning_rate,
        rate=lambda step: linear_decay(step, len(plan), warmup),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        identity=digest("task", settings.to_json(), seed, schema.sha256, start, *rows.row_ids, *data),
    )
    return _run(model, schema, job, seed=seed, folder=folder, hooks=hooks or Hooks())


def unlearn(
    model: Trainable,
    method: Objective,
    settings: UnlearnSettings,
    *,
    forget: TrainRows,
    retain: TrainRows,
    schema: Schema,
    seed: int,
    folder: Path | None = None,
    hooks: Hooks | None = None,
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Unlearn `forget` from `model` in place. The model as passed is the reference.

    No second model is kept: the reference's log-probabilities are computed once before, for the rows whose
    loss term reads them; its hidden states batch by batch from a copy of the adapters. Raises as
    `train_task`, and InputError for a post-hoc method, which trains nothing.
    """
    into_loss = method.forget
    if into_loss is None:
        raise InputError(
            f"method '{method.name}'", "a method that trains nothing", "a forget term", "apply it post hoc"
        )
    if not len(forget):
        raise InputError("forget set", "no rows", "at least one row", "check the deletion request")
    keeps = method.retain is not None
    if keeps and not len(retain):
        raise InputError(
            "retain set", "no rows", f"rows for the retain term of {method.title}", "keep some rows"
        )
    weight = float(getattr(settings, "retain_weight", 1.0))

    def loss(
        of_forget: LossBatch | None, of_retain: LossBatch | None
    ) -> tuple[Tensor | None, Tensor | None, float]:
        assert of_forget is not None
        kept = method.retain(of_retain, settings) if method.retain and of_retain is not None else None
        return into_loss(of_forget, settings), kept, weight

    reads = method.reference_terms(settings)
    forget_rows = _prepared(model, forget, schema, reference="forget" in reads)
    retain_rows = _prepared(model, retain if keeps else NO_ROWS, schema, reference="retain" in reads)
    plan = plan_steps(
        epochs=settings.epochs,
        seed=seed,
        forget_lengths=forget_rows.lengths,
        forget_batch=settings.forget_batch,
        retain_lengths=retain_rows.lengths,
        retain_batch=settings.retain_batch,
    )
    hidden = None
    if method.hidden is not None:
        hidden = HiddenStates(model, schema, method.hidden(settings), forget_rows.ids, seed=seed)
    start = weights_sha256(model.trainable_state())
    data = [*forget.row_ids, *forget.gold, *forget.texts]
    data += [*retain.row_ids, *retain.gold, *retain.texts] if keeps else []
    job = _Job(
        kind="unlearning",
        plan=plan,
        epochs=settings.epochs,
        forget=forget_rows,
        retain=retain_rows,
        loss=loss,
        learning_rate=settings.learning_rate,
        rate=lambda step: constant(step, len(plan), settings.warmup_steps),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        identity=digest("unlearn", method.name, settings.to_json(), seed, schema.sha256, start, *data),
        hidden=hidden,
    )
    assert isinstance(model, nn.Module)
    with frozen(model, hidden.above if hidden else set()):
        record, log = _run(model, schema, job, seed=seed, folder=folder, hooks=hooks or Hooks())
    return record.model_copy(update={"weights_sha256": weights_sha256(model.trainable_state())}), log


def _prepared(model: Trainable, rows: TrainRows, schema: Schema, *, reference: bool) -> _Prepared:
    columns = {option: i for i, option in enumerate(schema.ids)}
    missing = sorted({gold for gold in rows.gold if gold not in columns})
    if missing:
        raise InputError(
            "training rows",
            f"gold option '{missing[0]}'",
            "an option of the schema",
            "add the option to the schema or drop its rows",
        )
    if not len(rows):
        return _Prepared(rows, [], torch.zeros(0, dtype=torch.long), None)
    ids = model.tokenise(rows.texts)
    gold = torch.tensor([columns[option] for option in rows.gold], dtype=torch.long)
    ref = None
    if reference:
        ref = torch.from_numpy(model.predict(rows.texts, schema)).clamp_min(1e-300).log().float()
    return _Prepared(rows, ids, gold, ref)


@dataclass(frozen=True)
class _Prepared:
    """Rows as tensors: token ids, gold columns (n,), reference log-probabilities (n, C) or None."""

    rows: TrainRows
    ids: list[list[int]]
    gold: Tensor
    ref: Tensor | None

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.ids]

    def loss_batch(self, scored: Scored, at: slice, rows: Sequence[int]) -> LossBatch:
        """The rows of this table that stand at `at` in a scored batch."""
        index = torch.tensor(rows, dtype=torch.long)
        device = scored.log_probs.device

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[at]

        return LossBatch(
            log_probs=scored.log_probs[at],
            gold=self.gold[index].to(device),
            ref_log_probs=None if self.ref is None else self.ref[index].to(device),
            hidden=cut(scored.hidden),
            ref_hidden=cut(scored.ref_hidden),
            hidden_mask=cut(scored.mask),
            steer=scored.steer,
        )


def _run(
    model: Trainable, schema: Schema, job: _Job, *, seed: int, folder: Path | None, hooks: Hooks
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """The loop over a decision model's job."""
    assert isinstance(model, nn.Module)
    general = Job(
        kind=job.kind,
        plan=job.plan,
        parts=lambda step, _: _parts(model, schema, job, step),
        learning_rate=job.learning_rate,
        rate=job.rate,
        weight_decay=job.weight_decay,
        max_grad_norm=job.max_grad_norm,
        identity=job.identity,
        row_ids=job.row_ids,
        tokens=lambda step: sum(map(len, job.ids(step))),
        forget_rows=len(job.forget.rows),
        retain_rows=len(job.retain.rows),
    )
    return run_job(model, model.trainable_state(), general, seed=seed, folder=folder, hooks=hooks)


def _parts(model: Trainable, schema: Schema, job: _Job, step: StepPlan) -> Iterator[Part]:
    """Both terms of a step from one forward pass."""
    ids, cut = job.ids(step), len(step.forget)
    scored = job.hidden.score(ids, cut) if job.hidden else Scored(model.log_probs(ids, schema))
    of_forget, of_retain, weight = job.loss(
        job.forget.loss_batch(scored, slice(0, cut), step.forget) if cut else None,
        job.retain.loss_batch(scored, slice(cut, None), step.retain) if step.retain else None,
    )
    terms = [of_forget] if of_forget is not None else []
    terms += [weight * of_retain] if of_retain is not None else []
    yield Part(torch.stack(terms).sum(), of_forget, of_retain)
