"""Judging one model by the published rule: metrics, p-values and decision from measured rows. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vestige.contracts import Decision, Estimate, ModelAssessment, Undefined, View
from vestige.decision.predictions import Predictions
from vestige.metrics.calibration import reliability_bins
from vestige.metrics.destination import destinations
from vestige.metrics.geometry import decompose
from vestige.metrics.oracle import progress_unstable
from vestige.statistics.bootstrap import BootstrapResult, estimate, minimum_detectable
from vestige.statistics.decision_rules import decide, feasible
from vestige.statistics.multiplicity import intersection_union, one_sided_p
from vestige.study.measure import Measured, ViewRows

__all__ = ["DELETED_VIEWS", "NO_ORACLE", "VIEWS", "WITHIN_NOISE", "estimated", "is_feasible", "judge"]

VIEWS: tuple[View, ...] = ("F", "G", "R")
DELETED_VIEWS: tuple[View, ...] = ("F", "G")
NO_ORACLE = "no retrained model"
WITHIN_NOISE = "displacement within noise"
DESTINATIONS = 5
UTILITY = ("delta_accuracy", "delta_ece")


def estimated(
    measured: Measured, key: tuple[int, str], condition: str, *, unstable: bool = False
) -> Estimate:
    """A measured value with its intervals. key: (place of the model, metric)."""
    return estimate(measured.row[key], measured.unit.get(key), condition=condition, unstable=unstable)


def is_feasible(model: ModelAssessment) -> bool | Undefined:
    """Whether the model's retained rows still work, from its changes of accuracy and ECE under S0."""
    changes = _utility(model.metrics, model.utility)
    return changes if isinstance(changes, Undefined) else feasible(*changes)


def _utility(
    metrics: Mapping[str, Estimate], given: Mapping[str, float | Undefined]
) -> tuple[float, float] | Undefined:
    """Changes of retained accuracy and ECE that feasibility is judged on. given: those under S0, when the
    metrics are of another candidate set."""
    found: list[float] = []
    for name in UTILITY:
        value = given[name] if given else metrics[f"{name}.R"].value
        if isinstance(value, Undefined):
            return value
        found.append(value)
    return found[0], found[1]


def judge(
    label: str,
    role: str,
    place: int,
    *,
    table: Predictions,
    rows: Mapping[View, ViewRows],
    measured: Mapping[str, Measured],
    forgotten: Sequence[str],
    condition: str,
    gate: str,
    method: tuple[str, bool],
    utility: Mapping[str, float | Undefined],
) -> ModelAssessment:
    """Everything about one model but Holm's correction. utility: see `AssessSettings.utility`."""
    metrics: dict[str, Estimate] = {}
    for view, results in measured.items():
        for where, name in results.row:
            if where == place:
                unstable = name == "progress" and _unstable(rows, results, view)
                metrics[f"{name}.{view}"] = estimated(results, (where, name), condition, unstable=unstable)
    common = {
        "label": label,
        "role": role,
        "method": method[0],
        "control": method[1],
        "utility": dict(utility),
        "reliability": reliability_bins(
            np.concatenate(rows["R"].models[place].seeds),
            np.tile(rows["R"].gold, len(rows["R"].models[place].seeds)),
        ),
        "seeds": len(rows["R"].models[place].seeds),
    }
    if role == "full":
        reason = "the full model is where unlearning starts"
        return ModelAssessment(**common, metrics=metrics, decision=Undefined(undefined=reason))
    lost = _destinations(rows, place, table.options, forgotten)
    if role == "oracle":
        reason = "the oracle is what the others are held to"
        return ModelAssessment(
            **common, metrics=metrics, decision=Undefined(undefined=reason), destinations=lost
        )
    if rows["F"].oracle is None:
        none = Undefined(undefined=NO_ORACLE)
        return ModelAssessment(**common, metrics=metrics, decision=none, destinations=lost)
    metrics |= _geometry(rows, place)
    gains = {view: measured[view].row[place, "gain"] for view in DELETED_VIEWS}
    for view, gain in gains.items():
        metrics[f"minimum_detectable_gain.{view}"] = Estimate(value=minimum_detectable(gain), rows=gain.n)
    p_values = {view: _p_value(gain) for view, gain in gains.items()}
    return ModelAssessment(
        **common,
        metrics=metrics,
        decision=_decision(gains, _utility(metrics, utility), gate),
        p_value={**p_values, "both": intersection_union(p_values["F"], p_values["G"])},
        destinations=lost,
    )


def _p_value(gain: BootstrapResult) -> float | Undefined:
    """One-sided p of a gain. Every resample of a single row is that row: it says nothing about chance."""
    if gain.n < 2:
        return Undefined(undefined="a test needs at least two rows")
    return one_sided_p(gain.estimate, gain.draws_values)


def _unstable(rows: Mapping[View, ViewRows], results: Measured, view: str) -> bool:
    return progress_unstable(results.row[0, "displacement"].estimate, rows[_view(view)].noise_full.value)


def _view(view: str) -> View:
    return view  # type: ignore[return-value]


def _geometry(rows: Mapping[View, ViewRows], place: int) -> dict[str, Estimate]:
    """Largest identity error and rows that retraining does not move: no means, so no intervals."""
    found: dict[str, Estimate] = {}
    for view in DELETED_VIEWS:
        here = rows[view]
        assert here.oracle is not None
        split = decompose(here.models[place].p, here.full, here.oracle)
        found[f"identity_error.{view}"] = Estimate(value=split.identity_error, rows=len(here.full))
        found[f"zero_displacement_rows.{view}"] = Estimate(value=float(split.zero_rows), rows=len(here.full))
    return found


def _destinations(
    rows: Mapping[View, ViewRows], place: int, options: Sequence[str], forgotten: Sequence[str]
) -> tuple[Any, ...]:
    if not forgotten:
        return ()

    def stacked(arrays: Sequence[Any]) -> Any:
        return np.concatenate(arrays)

    return destinations(
        stacked([rows[view].models[place].p for view in DELETED_VIEWS]),
        stacked([rows[view].full for view in DELETED_VIEWS]),
        stacked([rows[view].gold for view in DELETED_VIEWS]),
        options,
        forgotten,
        top=DESTINATIONS,
    )


def _decision(
    gains: Mapping[View, BootstrapResult], change: tuple[float, float] | Undefined, gate: str
) -> Decision | Undefined:
    """The published rule's answer. The gate stops what would be a success; it never hides harm."""
    if isinstance(change, Undefined):
        return change
    f, g = gains["F"], gains["G"]
    found = decide(f.estimate, _low(f), g.estimate, _low(g), *change)
    stopped = gate == WITHIN_NOISE and found in ("accepted", "positive, unconfirmed")
    return "displacement within noise" if stopped else found


def _low(gain: BootstrapResult) -> float:
    """The lower row bound; one row alone has no interval, so its gain is never confirmed."""
    return gain.low if gain.n >= 2 else -1.0
