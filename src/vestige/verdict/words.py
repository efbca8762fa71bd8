"""What a verdict's sentences call things: of decision models, rows; of language models, texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vestige.contracts import Evidence, RetainedEvidence, View

__all__ = ["Words", "words_of"]


@dataclass(frozen=True, kw_only=True)
class Words:
    """where: view -> its rows. rest: what was to be kept. row, rows: one and several of what is counted.
    full: the model before unlearning. right: what a model gives probability to when it is right. both:
    where a gain has to show."""

    where: Mapping[View, str]
    rest: str
    row: str
    rows: str
    full: str
    right: str
    both: str


_ROWS = Words(
    where={"F": "the deleted rows", "G": "the unseen rows", "R": "retained rows"},
    rest="retained rows",
    row="retained row",
    rows="rows",
    full="the full model",
    right="the right answer",
    both="both kinds of row",
)
_TEXTS = Words(
    where={"F": "the forget text", "G": "the unseen text", "R": "retained text"},
    rest="retained text",
    row="document",
    rows="documents",
    full="the base",
    right="the next token",
    both="both kinds of text",
)


def words_of(found: Evidence | RetainedEvidence) -> Words:
    """The words for this evidence: language models are the ones whose retained text is read by its loss."""
    measure: Literal["accuracy", "loss"] = (
        found.retained.measure if isinstance(found, Evidence) else found.measure
    )
    return _TEXTS if measure == "loss" else _ROWS
