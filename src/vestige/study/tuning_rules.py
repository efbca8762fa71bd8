"""Choosing settings on development rows: objective, feasibility, when a point stops, which is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Record
from vestige.decision.predictions import Predictions, align
from vestige.errors import InputError
from vestige.metrics.accuracy import correct
from vestige.metrics.calibration import calibration_terms
from vestige.metrics.oracle import js2
from vestige.statistics.decision_rules import feasible

__all__ = ["EpochResult", "Point", "choose", "edges", "grid_points", "measure_epoch", "should_stop"]

INFEASIBLE_EPOCHS = 2
"""A point stops after so many infeasible epochs in a row [ours]."""
STALE_EPOCHS = 3
"""A point stops after so many epochs without a better objective [ours]."""


class EpochResult(Record):
    """One candidate: the state after an epoch, on development rows.

    od_f, od_g: mean base-2 JS to the oracle; objective: their sum. delta_*: against the full model on R.
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


class Point(Record):
    """One grid point with all its epochs. node: key of its node. stopped: why it ended."""

    node: str
    settings: dict[str, Any]
    epochs: tuple[EpochResult, ...]
    stopped: str
    seconds: float


def measure_epoch(epoch: int, now: Predictions, full: Predictions, oracle: Predictions) -> EpochResult:
    """Measure a candidate. All three on the same development rows with views F, G and R."""
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
    )


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


def choose(points: Sequence[Point]) -> tuple[Point, EpochResult] | None:
    """The feasible candidate of the smallest objective; ties to fewer epochs, then to the earlier point."""
    candidates = [
        (epoch.objective, epoch.epoch, index)
        for index, point in enumerate(points)
        for epoch in point.epochs
        if epoch.feasible
    ]
    if not candidates:
        return None
    _, number, index = min(candidates)
    point = points[index]
    return point, next(item for item in point.epochs if item.epoch == number)


def edges(
    grid: Mapping[str, Sequence[Any]], settings: Mapping[str, Any], epoch: int, epochs: int
) -> tuple[str, ...]:
    """Fields whose chosen value is the smallest or largest of several, and `epochs` at the last epoch."""
    found = [
        name
        for name, values in sorted(grid.items())
        if len(set(values)) > 1
        and all(isinstance(value, int | float) for value in values)
        and settings[name] in (min(values), max(values))
    ]
    return (*found, "epochs") if epoch == epochs else tuple(found)
