"""What fine-tuning a checkpoint on a few rows is made of: settings and the order of rows. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from vestige.contracts import Record

__all__ = ["AdaptSettings", "adaptation_batches"]


class AdaptSettings(Record):
    """Fine-tuning on exposed rows: fresh AdamW at a constant rate, cross-entropy, head and adapters.

    batch: rows an update, or all exposed rows where there are fewer. evaluations: updates after which the
    model is scored, rising from 0; the last one is the horizon. learning_rate per update.
    """

    learning_rate: float = Field(1e-4, gt=0)
    batch: int = Field(16, ge=1)
    evaluations: tuple[int, ...] = (0, 1, 5, 10, 25)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        t = self.evaluations
        if len(t) < 2 or t[0] != 0 or any(later <= earlier for earlier, later in pairwise(t)):
            raise ValueError("evaluations are two or more updates that rise from 0, such as 0, 1, 5, 10, 25")
        return self

    @property
    def updates(self) -> int:
        """The horizon: updates in all."""
        return self.evaluations[-1]


def adaptation_batches(
    rows: int, batch: int, updates: int, rng: np.random.Generator
) -> Sequence[tuple[int, ...]]:
    """Row positions of every update: min(batch, rows) each, in passes over all rows, each pass shuffled anew.

    A batch that a pass does not fill takes the first rows of the next pass, so that all updates see equally
    many rows.
    """
    size = min(batch, rows)
    passes = -(-size * updates // rows)
    order = np.concatenate([rng.permutation(rows) for _ in range(passes)])
    return [tuple(int(i) for i in order[k * size : (k + 1) * size]) for k in range(updates)]
