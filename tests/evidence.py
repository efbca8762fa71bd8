"""Evidence made of chosen numbers, for tests of what is said and shown of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vestige.contracts import (
    Bounded,
    Calibration,
    Condition,
    Evidence,
    Interval,
    Margins,
    RetainedEvidence,
    Undefined,
    UnitEvidence,
    View,
    ViewCount,
    ViewEvidence,
)

COUNTS: dict[View, ViewCount] = {
    "F": ViewCount(view="F", rows=98, units=2),
    "G": ViewCount(view="G", rows=54, units=2),
}
ONE_RUN = Undefined(
    undefined="one training run of the unlearned model: how another would come out is not known"
)


def undefined(why: str) -> Bounded:
    """A quantity that does not exist, with all its bounds."""
    none = Undefined(undefined=why)
    return Bounded(value=none, these_models=none, other_trainings=none, lower=none, upper=none)


def bounded(value: float, low: float, high: float, *, several: bool = False) -> Bounded:
    """A value with a two-sided interval; the one-sided bounds are its ends. several: seeds of every role."""
    interval = Interval(
        low=low,
        high=high,
        kind="Dirichlet-weighted rows with one worst-case row",
        draws=5000,
        seed=501,
        condition="these models, other rows like these",
    )
    wider = interval.model_copy(
        update={
            "low": value - 2 * (value - low),
            "high": value + 2 * (high - value),
            "kind": "rows as before, training seeds by jackknife with t quantiles, joined in squares",
            "condition": "other trainings and other rows; seeds: 3 oracle, 2 full, 3 unlearned",
        }
    )
    return Bounded(
        value=value,
        these_models=interval,
        other_trainings=wider if several else ONE_RUN,
        lower=low,
        upper=high,
    )


def view(
    name: View = "F",
    *,
    distance: float = 0.28,
    start: float = 0.66,
    spread: float | None = 0.1,
    memory: tuple[float, float, float] | None = (0.25, 0.19, 0.32),
    gain: tuple[float, float] | None = None,
    visible: bool | Undefined = True,
    several: bool = False,
    **more: Any,
) -> ViewEvidence:
    """One view. gain: the bounds of the gain, default close to its value."""
    value = start - distance
    low, high = gain or (value - 0.04, value + 0.04)
    excess = distance - (spread or 0.0)
    none = "what two retrainings differ by is not known: one retrained model"
    known = spread is not None
    values: dict[str, Any] = {
        "view": name,
        "rows": COUNTS[name].rows,
        "units": 2,
        "distance": bounded(distance, distance - 0.03, distance + 0.03, several=several),
        "displacement": bounded(start, start - 0.02, start + 0.02, several=several),
        "spread": spread if known else Undefined(undefined=none),
        "excess": bounded(excess, excess - 0.03, excess + 0.03, several=several)
        if known
        else undefined(none),
        "margin": 0.05 if known else Undefined(undefined=none),
        "full_excess": bounded(start - spread, 0.4, 0.6) if spread is not None else undefined(none),
        "visible": visible,
        "memory": bounded(*memory, several=several)
        if memory
        else undefined("the full model already lies where retraining lies"),
        "gain": bounded(value, low, high, several=several),
        "gain_p": 0.001 if low > 0 else 0.2,
        "least_gain": 0.05,
        "progress": value / start,
        "ceiling": 1 - spread / start if spread is not None else Undefined(undefined=none),
        "moved_away": high < 0,
        "levels": {"full": 0.9, "oracle": 0.1, "unlearned": 0.3},
    }
    return ViewEvidence(**{**values, **more})


def retained(
    change: tuple[float, float, float] = (-0.003, -0.009, 0.002), *, harm: str = "unharmed", **more: Any
) -> RetainedEvidence:
    """R. change: of accuracy, with its bounds."""
    values: dict[str, Any] = {
        "rows": 1500,
        "model": 0.92 + change[0],
        "full": 0.92,
        "oracle": 0.919,
        "change": bounded(*change),
        "retraining": -0.001,
        "calibration": Calibration(bins=10, model=0.031, full=0.028, change=bounded(0.003, -0.004, 0.009)),
        "excess": bounded(0.004, 0.001, 0.008),
        "harm": harm,
        "harmed_by": ("accuracy",) if harm == "damaged" else (),
    }
    return RetainedEvidence(**{**values, **more})


CONDITIONS = (
    Condition(name="E1", holds=True, text="3 retrained models, at least 3 needed"),
    Condition(
        name="E2",
        holds=False,
        text="excess distance on the deleted rows: 0.180, at most 0.210 (upper 95 % bound), 0.050 allowed",
    ),
    Condition(
        name="E3",
        holds=False,
        text="memory on the deleted rows: 25%, at most 32% (upper 95 % bound), 10% allowed",
    ),
    Condition(name="E4", holds=True, text="on retained rows no harm is shown"),
    Condition(name="E5", holds=None, text="of 0 units judged, 0 keep more than 20%"),
)


def evidence(views: Sequence[ViewEvidence] | None = None, **more: Any) -> Evidence:
    """Evidence that a model came closer, unless told otherwise."""
    sides = (view("F"), view("G", distance=0.27)) if views is None else tuple(views)
    values: dict[str, Any] = {
        "margins": Margins(),
        "seeds": {"full": 2, "oracle": 3, "unlearned": 1},
        "draws": 5000,
        "views": sides,
        "retained": retained(),
        "units": (
            UnitEvidence(view="F", name="card_arrival", rows=49, memory=0.41, lower=0.33),
            UnitEvidence(view="F", name="unit 2", rows=49, memory=0.12, lower=0.04),
        ),
        "units_judged": 4,
        "conditions": CONDITIONS,
        "away": tuple(side.view for side in sides if side.moved_away is True),
        "nothing_to_undo": tuple(side.view for side in sides if side.visible is False),
        "share": min((side.progress for side in sides), default=Undefined(undefined="no retrained model")),
    }
    return Evidence(**{**values, **more})


def equivalent(**more: Any) -> Evidence:
    """Evidence that a model lies where retrained ones lie."""
    near = {"distance": 0.11, "memory": (0.01, -0.02, 0.04)}
    holds = tuple(item.model_copy(update={"holds": True}) for item in CONDITIONS)
    sides = [view("F", **near), view("G", **near)]
    return evidence(**{"views": sides, "conditions": holds, "units": (), **more})
