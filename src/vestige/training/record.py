"""What a training run did, as a record. No torch."""

from __future__ import annotations

from typing import Literal

from vestige.contracts import Record

__all__ = ["TrainingRecord"]


class TrainingRecord(Record):
    """What a training run did. seconds: wall clock of all its parts, resumed ones included."""

    kind: Literal["task", "unlearning", "adaptation", "language"]
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
