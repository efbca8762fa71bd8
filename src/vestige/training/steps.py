"""The only optimisation loop: deterministic, resumable, watched for NaN. What is optimised is a `Job`."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vestige.errors import Diverged, InputError, Interrupted
from vestige.models.trainable import seeded
from vestige.seeds import digest, stable_seed
from vestige.training.batches import StepPlan
from vestige.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    moments_of,
    restore_moments,
    save_checkpoint,
)
from vestige.training.losses import finite
from vestige.training.record import TrainingRecord

__all__ = [
    "Hooks",
    "Job",
    "Part",
    "TrainingRecord",
    "constant",
    "linear_decay",
    "load_state",
    "run_job",
    "weights_sha256",
]


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
        plain = state[name].detach().cpu().contiguous().reshape(-1)
        parts += [name, plain.view(torch.uint8).numpy().tobytes()]
    return digest(*parts)


def linear_decay(step: int, steps: int, warmup: int) -> float:
    """The share of the learning rate at a 0-based step: up over `warmup` steps, then down to 0."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (steps - step) / max(1, steps - warmup))


def constant(step: int, steps: int, warmup: int) -> float:
    """The share of the learning rate at a 0-based step: up over `warmup` steps, then 1."""
    return (step + 1) / (warmup + 1) if step < warmup else 1.0


@dataclass(frozen=True)
class Part:
    """A part of a step's loss with its own graph. loss: what is differentiated; the parts' sum is the loss.

    forget, retain: the terms in it, unweighted, for the log.
    """

    loss: Tensor
    forget: Tensor | None = None
    retain: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is optimised. parts(step, position): the loss of one step; each part's graph is freed before the
    next is made. rate: 0-based step -> share of the learning rate. identity: of everything that changes a
    number; a checkpoint of another is never used. row_ids, tokens, columns: of a step, for errors and log.
    decay_vectors: whether weight decay pulls on biases and norms, which have one axis.
    """

    kind: Literal["task", "unlearning", "adaptation", "language"]
    plan: list[StepPlan]
    parts: Callable[[StepPlan, int], Iterator[Part]]
    learning_rate: float
    rate: Callable[[int], float]
    weight_decay: float
    max_grad_norm: float | None
    identity: str
    row_ids: Callable[[StepPlan], list[str]]
    tokens: Callable[[StepPlan], int]
    forget_rows: int
    retain_rows: int
    columns: Callable[[StepPlan], dict[str, Any]] = lambda step: {}
    decay_vectors: bool = True
    fused: bool = False
    train_mode: bool = True


def load_state(own: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Copy values into live parameters. Raises ValueError when the names differ."""
    if own.keys() != values.keys():
        raise ValueError(f"parameter names differ: {sorted(own.keys() ^ values.keys())[:5]}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(values[name])


def run_job(
    model: nn.Module, state: dict[str, Tensor], job: Job, *, seed: int, folder: Path | None, hooks: Hooks
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Optimise `state`, live parameters of `model` by name; returns the record and one log entry a step.

    folder: where checkpoints live while it runs; a run interrupted there resumes and ends in the same bytes.
    Raises Diverged, Interrupted, InputError for a plan without steps.
    """
    if not job.plan:
        raise InputError(
            "training rows", "no rows", "at least one row", "check the split and the deletion request"
        )
    names = {id(value): name for name, value in state.items()}
    optimizer = torch.optim.AdamW(
        _groups(state, job), lr=job.learning_rate, weight_decay=job.weight_decay, fused=job.fused or None
    )
    run = _Run()
    first = 0
    if folder is not None and (found := load_checkpoint(folder, job.identity)) is not None:
        load_state(state, found.weights)
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
    model.train(job.train_mode)
    ended = bool(run.log and run.log[-1].get("stopped"))
    try:
        with deferred_interrupt() as interrupted:
            for position in range(first, 0 if ended else len(job.plan)):
                step = job.plan[position]
                began = time.monotonic()
                entry = _step(job, position, optimizer, state, keep, seed)
                entry["seconds"] = time.monotonic() - began
                entry["resumed"] = position == first and first > 0
                run.log.append(entry)
                hooks.progress(position + 1, len(job.plan), entry["loss"])
                if step.last_of_epoch:
                    ended = hooks.on_epoch(step.epoch)
                    model.train(job.train_mode)
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


def _groups(state: dict[str, Tensor], job: Job) -> list[dict[str, Any]]:
    """The parameters of the optimiser, those that weight decay leaves alone apart."""
    decayed = [value for value in state.values() if job.decay_vectors or value.dim() > 1]
    others = [value for value in state.values() if not job.decay_vectors and value.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _step(
    job: Job,
    position: int,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Tensor],
    keep: Callable[[int], str],
    seed: int,
) -> dict[str, Any]:
    """One forward, backward and update; returns the log entry. A bad update is never kept: Diverged."""
    step = job.plan[position]
    rate = job.learning_rate * job.rate(position)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)

    def stop(what: str) -> Diverged:
        return Diverged(what, position + 1, job.row_ids(step), rate, keep(position))

    losses: list[float] = []
    terms: dict[str, list[float]] = {"forget": [], "retain": []}
    with seeded(stable_seed(seed, "dropout", position)):  # a resumed run repeats the step's dropout
        for part in job.parts(step, position):
            if not finite(part.loss):
                raise stop(f"the loss is {part.loss.item()}")
            part.loss.backward()  # type: ignore[no-untyped-call]
            losses.append(part.loss.item())
            for name, value in (("forget", part.forget), ("retain", part.retain)):
                if value is not None:
                    terms[name].append(value.item())
    norm = nn.utils.clip_grad_norm_(list(state.values()), job.max_grad_norm or math.inf)
    if not finite(norm):
        raise stop(f"the gradient norm is {norm.item()}")
    before = {name: value.detach().clone() for name, value in state.items()}
    try:
        optimizer.step()
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        load_state(state, before)
        raise stop("the parameter update is too large for the type of the weights") from None
    moved = torch.stack([(value.detach() - before[name]).norm() for name, value in state.items()]).norm()
    if not finite(moved):
        load_state(state, before)
        raise stop(f"the parameter update is {moved.item()}")
    if position == len(job.plan) - 1 and not _still_finite(job, position, seed):  # no later step would see it
        load_state(state, before)
        raise stop("the loss after the last update is not a finite number")
    return {
        "step": position + 1,
        "epoch": step.epoch,
        "loss": sum(losses),
        "forget_loss": sum(terms["forget"]) if terms["forget"] else None,
        "retain_loss": sum(terms["retain"]) if terms["retain"] else None,
        "gradient_norm": norm.item(),
        "update_norm": moved.item(),
        "learning_rate": rate,
        "rows": len(step.forget) + len(step.retain),
        "tokens": job.tokens(step),
        **job.columns(step),
    }


def _still_finite(job: Job, position: int, seed: int) -> bool:
    """Whether the step's loss is finite with the weights as they now are."""
    with torch.no_grad(), seeded(stable_seed(seed, "dropout", position)):
        return all(finite(part.loss) for part in job.parts(job.plan[position], position))


def _record(job: Job, run: _Run, state: dict[str, Tensor], seed: int) -> TrainingRecord:
    return TrainingRecord(
        kind=job.kind,
        steps=len(run.log),
        epochs=run.log[-1]["epoch"],
        forget_rows=job.forget_rows,
        retain_rows=job.retain_rows,
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
