"""Records that contradict themselves: found from their own numbers, so that a report can say so."""

from __future__ import annotations

import math

from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined
from vestige.report.measures import change, first_full, measure, starting, value_of
from vestige.statistics.decision_rules import decide
from vestige.study.ledger_rows import MethodRow
from vestige.verdict.rule import judge_model

__all__ = ["contradictions", "row_contradiction"]

SLACK = 1e-9


def contradictions(assessment: Assessment) -> tuple[str, ...]:
    """One line for each model whose numbers do not agree with each other, or with its decision.

    Checked: the verdict follows from its evidence, in which gain, excess and share of the way follow from the
    distances; the decision follows from gains, their lower row bounds
    and the changes of utility; the gain is displacement minus distance and progress is gain over
    displacement; bounds are in order; changes of utility are differences from the full model. What a record
    does not hold is not checked.
    """
    found = []
    for model in assessment.models:
        if model.role != "unlearned":
            continue
        reasons = [
            *_verdict(model),
            *_evidence(model),
            *_decision(assessment, model),
            *_identities(assessment, model),
            *_bounds(model),
        ]
        if reasons:
            found.append(
                f"The record of {model.label} contradicts itself: {reasons[0]}. Do not rely on it; "
                "`vestige study audit` recomputes what a study measured."
            )
    return tuple(found)


def _verdict(model: ModelAssessment) -> list[str]:
    if model.verdict is None or model.evidence is None:
        return []
    expected, _ = judge_model(model.evidence, gain_p=model.verdict_p)
    return (
        []
        if expected == model.verdict
        else [f"verdict '{model.verdict}', but its evidence gives '{expected}'"]
    )


def _evidence(model: ModelAssessment) -> list[str]:
    """What the evidence of a verdict says twice: once as a distance, once as what follows from it."""
    found = []
    for view in model.evidence.views if model.evidence is not None else ():
        distance, start, spread = view.distance.value, view.displacement.value, view.spread
        if isinstance(distance, Undefined) or isinstance(start, Undefined):
            continue
        follows: list[tuple[str, float | Undefined, str, float]] = [
            ("gain", view.gain.value, "displacement minus distance", start - distance)
        ]
        if isinstance(spread, float):
            follows.append(
                ("excess", view.excess.value, "distance minus what retrainings differ by", distance - spread)
            )
        if start > 0:
            follows.append(("progress", view.progress, "gain over displacement", (start - distance) / start))
        found += [
            f"{name} on {view.view} is {value:.4f} in its evidence, {what} is {expected:.4f}"
            for name, value, what, expected in follows
            if isinstance(value, float) and _differ(value, expected)
        ]
    return found


def _decision(assessment: Assessment, model: ModelAssessment) -> list[str]:
    if isinstance(model.decision, Undefined) or model.decision == "displacement within noise":
        return []
    if "within noise" in assessment.intervention_gate and model.decision in (
        "accepted",
        "positive, unconfirmed",
    ):
        return [f"decision '{model.decision}' beside a displacement within noise"]
    gains = {view: measure(model, "gain", view) for view in ("F", "G")}
    values = {view: value_of(item) for view, item in gains.items()}
    lows = {view: _low(item) for view, item in gains.items()}
    if model.utility:
        changes = [
            None if isinstance(model.utility.get(name), Undefined) else model.utility.get(name)
            for name in ("delta_accuracy", "delta_ece")
        ]
    else:
        changes = [value_of(change(assessment, model, name)) for name in ("accuracy", "ece")]
    numbers = [values["F"], lows["F"], values["G"], lows["G"], *changes]
    if any(item is None or isinstance(item, Undefined) for item in numbers):
        return []
    expected = decide(*(float(item) for item in numbers))  # type: ignore[arg-type]
    if expected == model.decision:
        return []
    return [f"decision '{model.decision}', but its numbers give '{expected}'"]


def _low(estimate: Estimate | None) -> float | None:
    if estimate is None or not isinstance(estimate.row, Interval):
        return None
    return estimate.row.low


def _identities(assessment: Assessment, model: ModelAssessment) -> list[str]:
    found = []
    for view in ("F", "G"):
        start = value_of(starting(assessment, view))
        gain = value_of(measure(model, "gain", view))
        left = value_of(measure(model, "oracle_distance", view))
        progress = value_of(measure(model, "progress", view))
        if start is not None and gain is not None and left is not None and _differ(gain, start - left):
            found.append(f"gain on {view} is {gain:.4f}, displacement minus distance is {start - left:.4f}")
        if start and gain is not None and progress is not None and _differ(progress, gain / start):
            found.append(
                f"progress on {view} is {progress:.4f}, gain over displacement is {gain / start:.4f}"
            )
    full = first_full(assessment)
    for name in ("accuracy", "ece"):
        moved = value_of(measure(model, f"delta_{name}", "R"))
        after = value_of(measure(model, name, "R"))
        before = value_of(measure(full, name, "R")) if full else None
        known = moved is not None and after is not None and before is not None
        if known and _differ(moved, after - before):  # type: ignore[arg-type,operator]
            found.append(f"the change of {name} on R is not the difference from the full model")
    return found


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > SLACK + 1e-6 * max(abs(one), abs(other))


def _bounds(model: ModelAssessment) -> list[str]:
    for key, estimate in model.metrics.items():
        for item in (estimate.row, estimate.unit):
            if isinstance(item, Interval) and item.low > item.high:
                return [f"the interval of {key} has its lower bound above its upper one"]
    return []


def row_contradiction(row: MethodRow) -> str:
    """Why a row's status does not follow from its numbers, empty where it does or cannot be checked.

    A printed `0.000` stands for a small positive number and `-0.000` for a small negative one.
    """
    numbers = [
        _signed(row, column)
        for column in ("gain_f", "gain_f_lo", "gain_g", "gain_g_lo", "delta_acc_pp", "delta_ece")
    ]
    if any(item is None for item in numbers) or row.status in ("displacement within noise",):
        return ""
    if row.status.startswith("undefined"):
        return ""
    f, f_low, g, g_low, accuracy, ece = (float(item) for item in numbers if item is not None)
    expected = decide(f, f_low, g, g_low, accuracy / 100, ece)
    return "" if expected == row.status else f"status '{row.status}', but its numbers give '{expected}'"


def _signed(row: MethodRow, column: str) -> float | None:
    value = getattr(row, column)
    if value is None:
        return None
    printed = row.printed.get(column, "")
    if value == 0 and printed and column.startswith("gain"):
        return math.copysign(0.5 * 10.0 ** -len(printed.partition(".")[2]), -1 if printed[0] == "-" else 1)
    return float(value)
