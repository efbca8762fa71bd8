"""Recovery: fine-tune head and adapters on a few rows of the forgotten classes. Training needs torch."""

from __future__ import annotations

from vestige.attacks import ATTACKS, Attack
from vestige.training.adaptation import AdaptSettings

ATTACKS.register(
    Attack(
        name="recover",
        title="recovery",
        question="how fast forgotten classes come back when a few of their rows are trained again, "
        "against a model that never saw them",
        shows_not="extraction of records; the oracle is adapted alike and only the difference counts",
        source="Wu and Lim 2026",
        models=("decision",),
        settings=AdaptSettings,
        verb="vestige attack recover DIR",
    )
)
