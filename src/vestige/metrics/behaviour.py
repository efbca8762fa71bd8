"""What a model still answers on the same partition: relative losses of accuracy and their gap. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from vestige.contracts import Record, Undefined
from vestige.errors import InputError, did_you_mean

__all__ = ["Accuracies", "BehaviourGap", "GapRelation", "behaviour_gap", "gap_relation", "relative_loss"]

GapRelation = Literal["near zero", "same sign", "opposite"]
_ROLES = {
    "forget": "forget",
    "adjacent": "adjacent",
    "retain": "adjacent",
    "generic": "generic",
    "general": "generic",
}


class Accuracies(Record):
    """Accuracies in [0, 1] of one model, topic -> accuracy for each role."""

    forget: dict[str, float] = Field(min_length=1)
    adjacent: dict[str, float] = Field(min_length=1)
    generic: dict[str, float] = Field(default_factory=dict)

    @classmethod
    def of(cls, record: Accuracies | Mapping[str, Any]) -> Accuracies:
        """Read a record: `{"forget": {"bio": 0.7}, ...}`, a number a role, or flat columns as in published
        tables (`acc_forget_bio`, `acc_retain_cyber`, `acc_general`; retain is adjacent). Columns of other
        names are left alone. Raises InputError for a missing role or an accuracy outside [0, 1].
        """
        if isinstance(record, Accuracies):
            return record
        found: dict[str, dict[str, float]] = {"forget": {}, "adjacent": {}, "generic": {}}
        for key, value in record.items():
            head, _, topic = key.removeprefix("acc_").partition("_")
            if head in _ROLES and value is not None:
                topics = value if isinstance(value, Mapping) else {topic or "all": value}
                found[_ROLES[head]] |= {name: _accuracy(key, name, number) for name, number in topics.items()}
        for role in ("forget", "adjacent"):
            if not found[role]:
                raise InputError(
                    "record of accuracies",
                    f"no accuracy on {role} questions",
                    f"'{role}' with one accuracy a topic",
                    did_you_mean(role, record) if record else "give the accuracies of each role",
                )
        return cls(**found)


class BehaviourGap(Record):
    """Relative accuracy losses in percent (negative: it rose) and B-Gap in percentage points."""

    delta_f: float | Undefined
    delta_a: float | Undefined
    b_gap: float | Undefined


def behaviour_gap(
    base: Accuracies | Mapping[str, Any], after: Accuracies | Mapping[str, Any]
) -> BehaviourGap:
    """delta_c = 100 (Acc_base - Acc_after) / Acc_base, topics' accuracies averaged first; B-Gap = F - A.

    base, after: records that `Accuracies.of` reads, over the same topics. Undefined for a role on which the
    base answers nothing. Ataee and Triantafillou 2026.
    """
    before, now = Accuracies.of(base), Accuracies.of(after)
    losses = []
    for role in ("forget", "adjacent"):
        first, second = getattr(before, role), getattr(now, role)
        if first.keys() != second.keys():
            raise InputError(
                f"accuracies on {role} questions",
                f"topics {', '.join(sorted(second))}",
                f"those of the base: {', '.join(sorted(first))}",
                "compare both models on the same topics",
            )
        losses.append(relative_loss(_mean(first), _mean(second)))
    delta_f, delta_a = losses
    undefined = next((loss for loss in losses if isinstance(loss, Undefined)), None)
    if isinstance(delta_f, Undefined) or isinstance(delta_a, Undefined):
        assert undefined is not None
        return BehaviourGap(delta_f=delta_f, delta_a=delta_a, b_gap=undefined)
    return BehaviourGap(delta_f=delta_f, delta_a=delta_a, b_gap=delta_f - delta_a)


def relative_loss(base: float, after: float) -> float | Undefined:
    """100 (base - after) / base, percent, at most 100. Undefined for a base accuracy of 0."""
    return 100 * (base - after) / base if base > 0 else Undefined(undefined="the base answers nothing here")


def gap_relation(adjacency_gap: float, b_gap: float) -> GapRelation:
    """How the footprint's gap (percentage points) and the behaviour's agree: near zero, same sign, opposite.

    Near zero: |AdjGap| < 0.25 and |B-Gap| < 2, which gives the twelve published relations.
    """
    if abs(adjacency_gap) < 0.25 and abs(b_gap) < 2:
        return "near zero"
    return "same sign" if adjacency_gap * b_gap > 0 else "opposite"


def _mean(accuracies: Mapping[str, float]) -> float:
    return math.fsum(accuracies.values()) / len(accuracies)


def _accuracy(key: str, topic: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1:
        raise InputError(
            f"accuracy '{key}' of topic '{topic}'",
            f"{value!r}",
            "a share in [0, 1]",
            "give shares, not percent",
        )
    return number
