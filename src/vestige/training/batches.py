"""Which rows each step sees: a plan made before training from lengths and a seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vestige.seeds import generator

__all__ = ["StepPlan", "bucketed_batches", "padding_factor", "plan_steps"]


@dataclass(frozen=True)
class StepPlan:
    """One optimiser step. forget / retain: row positions, empty where the loss has no such term."""

    epoch: int
    forget: tuple[int, ...]
    retain: tuple[int, ...]
    last_of_epoch: bool


def bucketed_batches(lengths: Sequence[int], size: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Batches of `size` rows of like length, in random order; every row once.

    Rows of equal length are shuffled; lengths are jittered by up to one token before sorting, so that the
    same rows do not meet in every epoch. The batches' order is shuffled.
    """
    jittered = np.asarray(lengths, dtype=np.float64) + rng.uniform(0, 1.5, len(lengths))
    order = np.argsort(jittered, kind="stable")
    batches = [tuple(int(i) for i in order[start : start + size]) for start in range(0, len(order), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def plan_steps(
    *,
    epochs: int,
    seed: int,
    forget_lengths: Sequence[int] = (),
    forget_batch: int = 16,
    retain_lengths: Sequence[int] = (),
    retain_batch: int = 32,
) -> list[StepPlan]:
    """All steps. An epoch is one pass over the forget rows, or over the retain rows where there are none.

    With both, retain batches are cycled: a pass over all retain rows ends before the next begins.
    """
    main, other = (forget_lengths, retain_lengths) if len(forget_lengths) else (retain_lengths, ())
    main_batch = forget_batch if len(forget_lengths) else retain_batch
    steps: list[StepPlan] = []
    queue: list[tuple[int, ...]] = []
    passes = 0
    for epoch in range(1, epochs + 1):
        batches = bucketed_batches(main, main_batch, generator(seed, "batches", epoch))
        for k, batch in enumerate(batches):
            extra: tuple[int, ...] = ()
            if len(other):
                if not queue:
                    passes += 1
                    queue = bucketed_batches(other, retain_batch, generator(seed, "retain batches", passes))
                extra = queue.pop(0)
            forget, retain = (batch, extra) if len(forget_lengths) else ((), batch)
            steps.append(StepPlan(epoch, forget, retain, k == len(batches) - 1))
    return steps


def padding_factor(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Padded tokens over real tokens of these batches, at least 1."""
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    return padded / sum(lengths[i] for batch in batches for i in batch)
