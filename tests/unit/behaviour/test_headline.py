"""The sentence and the row of a checkpoint: a loss that is undefined is said to be, never as a per cent."""

from __future__ import annotations

from typing import Any

from tests.footprints import model

from vestige.behaviour.records import BehaviourRecord, CheckpointBehaviour, Loss, RoleHeadroom, TripartiteLoss
from vestige.behaviour.tables import headline, summary_lines, tripartite_rows
from vestige.contracts import Undefined

NONE = Undefined(undefined="no adjacent questions")


def checkpoint(forget: Any, adjacent: Any, gap: Any) -> CheckpointBehaviour:
    losses: dict[str, Any] = {
        name: Loss(value=value, interval=NONE)
        for name, value in (("delta_f", forget), ("delta_a", adjacent), ("delta_g", NONE), ("b_gap", gap))
    }
    loss = TripartiteLoss(**losses, adjacency_gap=4.0, relation="same sign")
    fields: dict[str, Any] = {"label": "npo", "role": "unlearned", "roles": (), "tofu": NONE, "loss": loss}
    return CheckpointBehaviour.model_construct(**fields)


def record(item: CheckpointBehaviour, *, guessed: tuple[str, ...] = ()) -> BehaviourRecord:
    rooms: list[dict[str, Any]] = [
        {"role": role, "accuracy": 0.2, "chance": 0.25, "passes": False, "said": f"{role}: undefined here"}
        for role in guessed
    ]
    fields: dict[str, Any] = {
        "base": model("base"),
        "base_roles": (),
        "headroom": tuple(RoleHeadroom.model_construct(**room) for room in rooms),
        "checkpoints": (item,),
    }
    return BehaviourRecord.model_construct(**fields)


def test_all_three() -> None:
    item = checkpoint(12.0, 3.0, 9.0)
    said = headline(record(item), item)
    assert said.startswith("npo: lost 12.0 % of the base's accuracy on forget questions, 3.0 % on adjacent")
    assert said.endswith("B-Gap 9.0 points.")


def test_a_role_without_questions_is_said_once() -> None:
    item = checkpoint(12.0, NONE, NONE)
    said = headline(record(item), item)
    assert said == (
        "npo: lost 12.0 % of the base's accuracy on forget questions, B-Gap undefined: no adjacent questions."
    )


def test_no_loss_where_the_base_guesses_the_forget_questions() -> None:
    item = checkpoint(-80.0, 3.0, -83.0)
    made = record(item, guessed=("forget",))
    assert headline(made, item) == (
        "npo: the base 20.0 %, guessing 25.0 %: the base is not shown to know more than a guess, and a loss "
        "is undefined; lost 3.0 % on adjacent ones."
    )
    assert tripartite_rows(made)[1][4:] == (
        "undefined: the base guesses",
        "3.0",
        "undefined: no adjacent questions",
        "undefined: the base guesses",
    )
    assert summary_lines(made) == ["forget: undefined here"]


def test_no_gap_where_the_base_guesses_the_adjacent_questions() -> None:
    item = checkpoint(12.0, -9.0, 21.0)
    assert headline(record(item, guessed=("adjacent",)), item) == (
        "npo: lost 12.0 % of the base's accuracy on forget questions, B-Gap undefined: the base guesses."
    )
