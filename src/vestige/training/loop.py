"""The only optimisation loop: task training and unlearning, deterministic, resumable, watched for NaN."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from vestige.contracts import Floats, LossBatch, Record
from vestige.errors import Diverged, InputError, Interrupted
from vestige.models.trainable import seeded
from vestige.seeds import digest, stable_seed
from vestige.training.batches import StepPlan, plan_steps
from vestige.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    moments_of,
    restore_moments,
    save_checkpoint,
)
from vestige.training.hidden import HiddenStates, Scored, frozen
from vestige.training.losses import finite, nll

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


class TrainingRecord(Record):
    """What a training run did. seconds: wall clock of all its parts, resumed ones included."""

    kind: Literal["task", "unlearning", "adaptation"]
    steps: int
    epochs: int
    forget_rows: int
    retain_rows: int
    rows_seen: int
    tokens_seen: int
    seconds: float
    resumed_at: tuple[int, ...] = ()
    threads: int
    torch: str
    seed: int
    weights_sha256: str
    final_loss: float


@dataclass(frozen=True)
class Hooks:
    """Callbacks. progress(step, steps, loss) after each step; on_epoch(epoch) returns True to stop there.

    on_epoch must give the same result when it is called twice for an epoch: a resumed run may repeat one.
    """

    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None
    on_epoch: Callable[[int], bool] = lambda epoch: False
    checkpoint_seconds: float = 30.0


@dataclass
class _Run:
    """The mutable state of one run of the loop."""

    log: list[dict[str, Any]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM is noted, not raised, so that a step ends whole; a second one raises."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, _frame: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def weights_sha256(state: dict[str, Tensor]) -> str:
    """sha256 over names and bytes of the parameters, in order of name."""
    parts: list[object] = []
    for name in sorted(state):
        parts += [name, state[name].detach().cpu().contiguous().numpy().tobytes()]
    return digest(*parts)


def _linear_decay(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (steps - step) / max(1, steps - warmup))


def _constant(step: int, steps: int, warmup: int) -> float:
    return (step + 1) / (warmup + 1) if step < warmup else 1.0


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
        rate=lambda step: _linear_decay(step, len(plan), warmup),
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
        rate=lambda step: _constant(step, len(plan), settings.warmup_steps),
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
    if not job.plan:
        raise InputError(
            "training rows", "no rows", "at least one row", "check the split and the deletion request"
        )
    assert isinstance(model, nn.Module)
    state = model.trainable_state()
    names = {id(value): name for name, value in state.items()}
    optimizer = torch.optim.AdamW(state.values(), lr=job.learning_rate, weight_decay=job.weight_decay)
    run = _Run()
    first = 0
    if folder is not None and (found := load_checkpoint(folder, job.identity)) is not None:
        model.load_trainable_state(found.weights)
        restore_moments(optimizer, names, found.moments)
        first, run.log = found.step, found.log
        run.resumed_at = [*(entry["step"] for entry in found.log if entry.get("resumed")), first]

    def keep(step: int) -> str:
        if folder is None:
            return "no folder was given, so nothing was kept"
        save_checkpoint(folder, Checkpoint(step, job.identity, state, moments_of(optimizer, names), run.log))
        return f"the state after step {step} was kept in {folder}"

    saved_at = time.monotonic()
    was_training = model.training
    model.train()
    ended = bool(run.log and run.log[-1].get("stopped"))
    try:
        with deferred_interrupt() as interrupted:
            for position in range(first, 0 if ended else len(job.plan)):
                step = job.plan[position]
                began = time.monotonic()
                entry = _step(model, schema, job, position, optimizer, state, keep, seed)
                entry["seconds"] = time.monotonic() - began
                entry["resumed"] = position == first and first > 0
                run.log.append(entry)
                hooks.progress(position + 1, len(job.plan), entry["loss"])
                if step.last_of_epoch:
                    ended = hooks.on_epoch(step.epoch)
                    model.train()
                    entry["stopped"] = ended
                if interrupted():
                    raise Interrupted(
                        f"interrupted after step {position + 1} of {len(job.plan)}: {keep(position + 1)}"
                    )
                if ended:
                    break
                if folder is not None and time.monotonic() - saved_at >= hooks.checkpoint_seconds:
                    keep(position + 1)
                    saved_at = time.monotonic()
    finally:
        model.train(was_training)
    return _record(job, run, state, seed), run.log


def _step(
    model: Trainable,
    schema: Schema,
    job: _Job,
    position: int,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Tensor],
    keep: Callable[[int], str],
    seed: int,
) -> dict[str, Any]:
    """One forward, backward and update; returns the log entry. A bad update is never kept: Diverged."""
    step = job.plan[position]
    forget, retain = job.forget, job.retain
    rate = job.learning_rate * job.rate(position)
    for group in optimizer.param_groups:
        group["lr"] = rate
    ids = [forget.ids[i] for i in step.forget] + [retain.ids[i] for i in step.retain]
    optimizer.zero_grad(set_to_none=True)
    cut = len(step.forget)
    with seeded(stable_seed(seed, "dropout", position)):  # a resumed run repeats the step's dropout
        scored = job.hidden.score(ids, cut) if job.hidden else Scored(model.log_probs(ids, schema))
    of_forget, of_retain, weight = job.loss(
        forget.loss_batch(scored, slice(0, cut), step.forget) if cut else None,
        retain.loss_batch(scored, slice(cut, None), step.retain) if step.retain else None,
    )
    terms = [of_forget] if of_forget is not None else []
    terms += [weight * of_retain] if of_retain is not None else []
    loss = torch.stack(terms).sum()

    def stop(what: str) -> Diverged:
        row_ids = [forget.rows.row_ids[i] for i in step.forget]
        row_ids += [retain.rows.row_ids[i] for i in step.retain]
        return Diverged(what, position + 1, row_ids, rate, keep(position))

    if not finite(loss):
        raise stop(f"the loss is {loss.item()}")
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(list(state.values()), job.max_grad_norm)
    if not finite(norm):
        raise stop(f"the gradient norm is {norm.item()}")
    before = {name: value.detach().clone() for name, value in state.items()}
    optimizer.step()
    moved = torch.stack([(value.detach() - before[name]).norm() for name, value in state.items()]).norm()
    if not finite(moved):
        model.load_trainable_state(before)
        raise stop(f"the parameter update is {moved.item()}")
    return {
        "step": position + 1,
        "epoch": step.epoch,
        "loss": loss.item(),
        "forget_loss": of_forget.item() if of_forget is not None else None,
        "retain_loss": of_retain.item() if of_retain is not None else None,
        "gradient_norm": norm.item(),
        "update_norm": moved.item(),
        "learning_rate": rate,
        "rows": len(ids),
        "tokens": sum(len(row) for row in ids),
    }


def _record(job: _Job, run: _Run, state: dict[str, Tensor], seed: int) -> TrainingRecord:
    return TrainingRecord(
        kind=job.kind,
        steps=len(run.log),
        epochs=run.log[-1]["epoch"],
        forget_rows=len(job.forget.rows),
        retain_rows=len(job.retain.rows),
        rows_seen=sum(entry["rows"] for entry in run.log),
        tokens_seen=sum(entry["tokens"] for entry in run.log),
        seconds=sum(entry["seconds"] for entry in run.log),
        resumed_at=tuple(run.resumed_at),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        seed=seed,
        weights_sha256=weights_sha256(state),
        final_loss=run.log[-1]["loss"],
    )
