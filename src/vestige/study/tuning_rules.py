"""Choosing settings on development rows: objective, feasibility, when a point stops, which is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vestige.contracts import Floats, Record, Undefined
from vestige.decision.predictions import Predictions, align
from vestige.errors import InputError
from vestige.metrics.accuracy import correct
from vestige.metrics.calibration import calibration_terms
from vestige.metrics.oracle import js2
from vestige.metrics.suppression import SMALLEST_REMOVAL, forgotten_mass
from vestige.statistics.decision_rules import feasible

__all__ = [
    "MATCHED_WITHIN",
    "EpochResult",
    "Point",
    "choose",
    "chosen_settings",
    "edges",
    "grid_points",
    "match",
    "measure_epoch",
    "should_stop",
    "unbracketed",
]

INFEASIBLE_EPOCHS = 2
"""A point stops after so many infeasible epochs in a row [ours]."""
MATCHED_WITHIN = 0.1
"""A candidate whose suppression is farther from the target is `unmatched`."""
LEAST_VALUES = 3
"""Tested values of a setting from which on a choice can be at the edge of its grid [ours]."""
STALE_EPOCHS = 3
"""A point stops after so many epochs without a better objective [ours]."""


class EpochResult(Record):
    """One candidate: the state after an epoch (or one value of a post-hoc method), on development rows.

    od_f, od_g: mean base-2 JS to the oracle; objective: their sum. delta_*: against the full model on R. s:
    suppression over F and G. update_norm: norm of the change of all parameters. settings: what this candidate
    has beside its point's, for a post-hoc method; `epoch` is then its number.
    """

    epoch: int
    od_f: float
    od_g: float
    objective: float
    accuracy: float
    ece: float
    delta_accuracy: float
    delta_ece: float
    feasible: bool
    s: float | Undefined = Undefined(undefined="not measured")
    update_norm: float | Undefined = Undefined(undefined="not measured")
    settings: dict[str, Any] = Field(default_factory=dict)


class Point(Record):
    """One grid point with all its epochs. node: key of its node. stopped: why it ended."""

    node: str
    settings: dict[str, Any]
    epochs: tuple[EpochResult, ...]
    stopped: str
    seconds: float


def measure_epoch(
    epoch: int,
    now: Predictions,
    full: Predictions,
    oracle: Predictions,
    *,
    forgotten: Sequence[str] = (),
    update_norm: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> EpochResult:
    """Measure a candidate. All three on the same development rows with views F, G and R.

    forgotten: options of a class deletion. See `EpochResult` for the others.
    """
    now, full, oracle = align([now, full, oracle])
    od = {}
    for view in ("F", "G"):
        rows = now.view == view
        if not rows.any():
            raise InputError(
                f"development view {view}",
                "no rows",
                "at least one",
                "delete units that have development rows",
            )
        od[view] = float(js2(now.p[rows], oracle.p[rows]).mean())
    kept = now.view == "R"
    if not kept.any():
        raise InputError("development view R", "no rows", "at least one", "keep some development rows")
    columns = np.array([now.options.index(name) for name in now.gold[kept]], dtype=np.intp)
    accuracy = [float(correct(table.p[kept], columns).mean()) for table in (now, full)]
    ece = [_ece(table.p[kept], columns) for table in (now, full)]
    delta_accuracy, delta_ece = accuracy[0] - accuracy[1], ece[0] - ece[1]
    return EpochResult(
        epoch=epoch,
        od_f=od["F"],
        od_g=od["G"],
        objective=od["F"] + od["G"],
        accuracy=accuracy[0],
        ece=ece[0],
        delta_accuracy=delta_accuracy,
        delta_ece=delta_ece,
        feasible=bool(feasible(delta_accuracy, delta_ece)),
        s=_suppression(now, full, oracle, forgotten),
        update_norm=Undefined(undefined="not measured") if update_norm is None else update_norm,
        settings=dict(settings or {}),
    )


def _suppression(
    now: Predictions, full: Predictions, oracle: Predictions, forgotten: Sequence[str]
) -> float | Undefined:
    """Forgotten mass taken away on F and G, as a share of what retraining takes away."""
    if not forgotten:
        return Undefined(undefined="class deletion only")
    rows = now.view != "R"
    columns = np.isin(np.array(now.options), list(forgotten))
    before, after, retrained = (
        float(forgotten_mass(table.p[rows], columns).sum()) for table in (full, now, oracle)
    )
    if before - retrained <= SMALLEST_REMOVAL:
        return Undefined(undefined="retraining removes no forgotten mass")
    return (before - after) / (before - retrained)


def _ece(p: Floats, columns: NDArray[np.intp]) -> float:
    terms = calibration_terms(p, columns)
    return float(terms.finish(terms.terms.sum(axis=0)))


def should_stop(history: Sequence[EpochResult]) -> str:
    """Why a point should stop now, or "". Depends on the epochs so far alone."""
    tail = history[-INFEASIBLE_EPOCHS:]
    if len(tail) == INFEASIBLE_EPOCHS and not any(item.feasible for item in tail):
        return f"infeasible for {INFEASIBLE_EPOCHS} epochs"
    best = min(range(len(history)), key=lambda index: history[index].objective, default=0)
    if len(history) - 1 - best >= STALE_EPOCHS:
        return f"no better objective for {STALE_EPOCHS} epochs"
    return ""


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination, fields in order of name, values in the order given."""
    names = sorted(grid)
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(grid[name] for name in names))
    ]


def choose(points: Sequence[Point], *, infeasible: bool = False) -> tuple[Point, EpochResult] | None:
    """The feasible candidate of the smallest objective; ties to fewer epochs, then to the earlier point.

    infeasible: where no candidate is feasible, choose among all of them.
    """
    candidates = [
        (epoch.objective, epoch.epoch, index)
        for index, point in enumerate(points)
        for epoch in point.epochs
        if epoch.feasible
    ]
    if infeasible and not candidates:
        candidates = [
            (epoch.objective, epoch.epoch, index)
            for index, point in enumerate(points)
            for epoch in point.epochs
        ]
    if not candidates:
        return None
    _, number, index = min(candidates)
    point = points[index]
    return point, next(item for item in point.epochs if item.epoch == number)


def match(points: Sequence[Point], target: float) -> tuple[Point, EpochResult, float] | None:
    """The feasible candidate whose suppression is nearest to `target`, and how far it is.

    Ties (to 1e-12) go to the smaller update, then to fewer epochs, then to the earlier point. None where no
    feasible candidate has a suppression.
    """
    candidates = []
    for index, point in enumerate(points):
        for place, epoch in enumerate(point.epochs):
            if epoch.feasible and not isinstance(epoch.s, Undefined):
                size = float("inf") if isinstance(epoch.update_norm, Undefined) else epoch.update_norm
                gap = abs(epoch.s - target)
                candidates.append((round(gap, 12), size, epoch.epoch, index, place, gap))
    if not candidates:
        return None
    *_, index, place, gap = min(candidates)
    return points[index], points[index].epochs[place], gap


def chosen_settings(point: Point, epoch: EpochResult) -> dict[str, Any]:
    """The settings that make this candidate again: `epochs` is its epoch, where anything is trained."""
    return {**point.settings, **(epoch.settings or {"epochs": epoch.epoch})}


def edges(grid: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields whose chosen value is the smallest or largest of at least three numbers that were tested."""
    return tuple(
        name
        for name, values in _numeric(grid)
        if len(values) >= LEAST_VALUES and settings[name] in (min(values), max(values))
    )


def unbracketed(grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Fields with one or two tested numbers: no choice among them can lie between two others."""
    return tuple(name for name, values in _numeric(grid) if len(values) < LEAST_VALUES)


def _numeric(grid: Mapping[str, Sequence[Any]]) -> list[tuple[str, set[float]]]:
    return [
        (name, set(values))
        for name, values in sorted(grid.items())
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    ]
