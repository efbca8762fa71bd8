"""Losses as they may be stated: none on a role whose questions the base only guesses. No torch."""

from __future__ import annotations

from vestige.behaviour.records import BehaviourRecord, CheckpointBehaviour, Loss, RoleHeadroom, TripartiteLoss
from vestige.contracts import Undefined
from vestige.data.corpora import Role

__all__ = ["guess_words", "guessed_roles", "stated_loss"]

_NO_ROOM = Undefined(undefined="the base guesses")


def guessed_roles(record: BehaviourRecord) -> dict[Role, RoleHeadroom]:
    """The roles on which the base is not shown to answer better than a guess: no loss is defined there."""
    return {room.role: room for room in record.headroom if not room.passes}


def stated_loss(record: BehaviourRecord, checkpoint: CheckpointBehaviour) -> TripartiteLoss:
    """The checkpoint's losses, undefined for roles that the base guesses; so the gap of two roles, and its
    relation with the footprint's, where either is one."""
    loss, guessed = checkpoint.loss, guessed_roles(record).keys()
    none = Loss(value=_NO_ROOM, interval=_NO_ROOM)
    return loss.model_copy(
        update={
            **{f"delta_{role[0]}": none for role in guessed},
            **({"b_gap": none, "relation": _NO_ROOM} if guessed & {"forget", "adjacent"} else {}),
        }
    )


def guess_words(record: BehaviourRecord, checkpoint: CheckpointBehaviour) -> str | None:
    """Both accuracies on forget questions and that no loss is defined, where the base guesses; else None."""
    room = guessed_roles(record).get("forget")
    if room is None:
        return None
    own = next((role.accuracy for role in checkpoint.roles if role.role == "forget"), None)
    after = "" if own is None else f"answers {100 * own:.1f} % of the forget questions, "
    return (
        f"{after}the base {100 * room.accuracy:.1f} %, guessing {100 * room.chance:.1f} %: the base is "
        "not shown to know more than a guess, and a loss is undefined"
    )
