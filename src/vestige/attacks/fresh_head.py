"""Fresh heads: a new head on the frozen backbone, trained on retained classes alone. Training needs torch."""

from __future__ import annotations

from pydantic import Field

from vestige.attacks import ATTACKS, Attack
from vestige.contracts import Record

__all__ = ["FreshHeadSettings"]


class FreshHeadSettings(Record):
    """initialisations: new heads a checkpoint, the same bytes on each checkpoint."""

    initialisations: int = Field(3, ge=1)


ATTACKS.register(
    Attack(
        name="fresh-head",
        title="fresh heads",
        question="how well forgotten classes are told apart by a new head that was trained on retained "
        "classes alone, on each frozen backbone",
        shows_not="extraction of records, or what the backbone knew before any training",
        source="Wu and Lim 2026",
        models=("decision",),
        settings=FreshHeadSettings,
        verb="vestige attack fresh-head DIR",
    )
)
