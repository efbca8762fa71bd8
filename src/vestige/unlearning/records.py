"""What `vestige unlearn` and `vestige finetune` did, as a record beside the checkpoint. No torch."""

from __future__ import annotations

from typing import Any, Literal

from vestige.contracts import Record
from vestige.models.lm_record import LanguageModelRecord
from vestige.training.record import TrainingRecord

__all__ = ["CheckpointRecord", "TextRecord"]


class TextRecord(Record):
    """A file that a checkpoint was trained on. rows: token sequences; development: of them, never trained on.

    empty: rows without text or answer; short: without a predicted token within the longest length; both were
    left out. truncated: answers cut; windowed: documents read in parts.
    """

    topic: str
    role: Literal["forget", "retain", "data", "refusals"]
    path: str
    sha256: str
    rows: int
    development: int = 0
    empty: int = 0
    short: int = 0
    truncated: int = 0
    windowed: int = 0
    notes: tuple[str, ...] = ()


class CheckpointRecord(Record):
    """A trained checkpoint. saved: an adapter on the model, or all weights. steps: of the log steps.parquet.

    identity: sha256 over everything that changes a number. phases: what the method did before the loop.
    """

    format: Literal["vestige-checkpoint-1"] = "vestige-checkpoint-1"
    kind: Literal["unlearned", "fine-tuned"]
    method: str
    title: str
    preset: str
    settings: dict[str, Any]
    seed: int
    model: LanguageModelRecord
    texts: tuple[TextRecord, ...]
    training: TrainingRecord
    saved: Literal["adapter", "whole"]
    files: tuple[str, ...]
    folder: str
    identity: str
    notes: tuple[str, ...] = ()
    phases: tuple[dict[str, Any], ...] = ()
    version: str
