"""The sentence of a checkpoint: what is undefined is left out of the losses, not put before a per cent."""

from __future__ import annotations

from typing import Any

from vestige.behaviour.records import CheckpointBehaviour, Loss, TripartiteLoss
from vestige.behaviour.tables import headline
from vestige.contracts import Undefined

NONE = Undefined(undefined="no adjacent questions")


def checkpoint(forget: Any, adjacent: Any, gap: Any) -> CheckpointBehaviour:
    losses = {
        name: Loss(value=value, interval=NONE)
        for name, value in (("delta_f", forget), ("delta_a", adjacent), ("delta_g", NONE), ("b_gap", gap))
    }
    return CheckpointBehaviour.model_construct(
        label="npo", role="unlearned", loss=TripartiteLoss.model_construct(**losses, relation=NONE)
    )


def test_all_three() -> None:
    said = headline(checkpoint(12.0, 3.0, 9.0))
    assert said.startswith("npo: lost 12.0 % of the base's accuracy on forget questions, 3.0 % on adjacent")
    assert said.endswith("B-Gap 9.0 points.")


def test_a_role_without_questions_is_said_once() -> None:
    said = headline(checkpoint(12.0, NONE, NONE))
    assert said == (
        "npo: lost 12.0 % of the base's accuracy on forget questions, B-Gap undefined: no adjacent questions."
    )
