"""Find numbers in an assessment: one place that knows the record's keys."""

from __future__ import annotations

from collections.abc import Iterator

from vestige.contracts import (
    Assessment,
    Bounded,
    Estimate,
    Interval,
    ModelAssessment,
    Undefined,
    View,
    ViewCount,
    ViewEvidence,
)
from vestige.study.caveats import FEW_UNITS

__all__ = [
    "BOTH",
    "change",
    "few_units",
    "first_full",
    "judged_distance",
    "judged_least_gain",
    "judged_spread",
    "judged_start",
    "measure",
    "noise",
    "noise_pairs",
    "remaining",
    "row_interval",
    "starting",
    "unlearned_models",
    "value_of",
    "view_count",
]

BOTH = ("F+G", "FG", "both")
"""Keys of a metric over F and G together."""


def measure(model: ModelAssessment, metric: str, view: str) -> Estimate | None:
    """`metric` of `model` on a view (`F+G` for both together), or None where it was not measured."""
    for key in BOTH if view in BOTH else (view,):
        found = model.metrics.get(f"{metric}.{key}")
        if found is not None:
            return found
    return None


def value_of(estimate: Estimate | None) -> float | None:
    """The number, or None where it is undefined or was not measured."""
    return None if estimate is None or isinstance(estimate.value, Undefined) else estimate.value


def row_interval(estimate: Estimate | None) -> Interval | None:
    """The row interval, or None where there is none."""
    return estimate.row if estimate is not None and isinstance(estimate.row, Interval) else None


def view_count(assessment: Assessment, view: View) -> ViewCount | None:
    """Rows and units of a view."""
    return next((item for item in assessment.views if item.view == view), None)


def few_units(assessment: Assessment) -> int | None:
    """The number of deleted units where it is small enough for intervals over units to be coarse."""
    counted = view_count(assessment, "F")
    if counted is None or assessment.unit_kind == "row" or counted.units >= FEW_UNITS:
        return None
    return counted.units


def first_full(assessment: Assessment) -> ModelAssessment | None:
    """The full model that the unlearned ones started from: the first listed."""
    return next((model for model in assessment.models if model.role == "full"), None)


def unlearned_models(assessment: Assessment) -> Iterator[ModelAssessment]:
    """The models under test, in the record's order, controls last."""
    tested = [model for model in assessment.models if model.role == "unlearned"]
    yield from (model for model in tested if not model.control)
    yield from (model for model in tested if model.control)


def starting(assessment: Assessment, view: str) -> Estimate | None:
    """Displacement D0: distance of the full model to the oracle on a view."""
    full = first_full(assessment)
    for model in ([full] if full else []) + list(unlearned_models(assessment)):
        found = measure(model, "displacement", view)
        if found is not None:
            return found
    return measure(full, "oracle_distance", view) if full else None


def remaining(model: ModelAssessment, view: str) -> Estimate | None:
    """Distance of `model` to the oracle on a view."""
    return measure(model, "oracle_distance", view)


def judged_distance(model: ModelAssessment | None, view: str) -> Estimate | None:
    """Distance to all retrained models, as the verdict reads it; in older records to the compared one.

    In place of the row interval that for these models and other rows, in place of the one over units that for
    other trainings.
    """
    found = None if model is None else model.evidence
    side = next((item for item in found.views if item.view == view), None) if found else None
    if side is not None:
        return _estimate(side.distance)
    return None if model is None else remaining(model, view)


def judged_start(assessment: Assessment, view: str) -> Estimate | None:
    """Distance of the full models to the retrained ones, as the verdict reads it, else as `starting`."""
    side = _side(assessment, view)
    return starting(assessment, view) if side is None else _estimate(side.displacement)


def judged_spread(assessment: Assessment, view: str) -> float | None:
    """What two retrainings differ by."""
    side = _side(assessment, view)
    if side is None:
        return value_of(noise(assessment, "oracle", view))
    return side.spread if isinstance(side.spread, float) else None


def judged_least_gain(assessment: Assessment, view: str) -> Estimate | None:
    """The smallest gain that would be found for each model, as the verdict reads it, else as published."""
    sides = [side for model in assessment.models if model.evidence for side in model.evidence.views]
    if not sides:
        found = assessment.minimum_detectable_gain.get(view)
        return None if found is None else Estimate(value=found)
    values = [side.least_gain for side in sides if side.view == view]
    undefined = next((value for value in values if isinstance(value, Undefined)), None)
    if not values:
        return None
    return Estimate(value=undefined or max(value for value in values if isinstance(value, float)))


def _side(assessment: Assessment, view: str) -> ViewEvidence | None:
    sides = (item for model in assessment.models if model.evidence for item in model.evidence.views)
    return next((item for item in sides if item.view == view), None)


def _estimate(found: Bounded) -> Estimate:
    return Estimate(value=found.value, row=found.these_models, unit=found.other_trainings)


def change(assessment: Assessment, model: ModelAssessment, metric: str) -> Estimate | None:
    """Change of `metric` on R from the full model: as recorded, else the difference without an interval."""
    recorded = measure(model, f"delta_{metric}", "R")
    if recorded is not None:
        return recorded
    full = first_full(assessment)
    after = measure(model, metric, "R")
    before = measure(full, metric, "R") if full else None
    if after is None or before is None:
        return None
    for estimate in (after, before):
        if isinstance(estimate.value, Undefined):
            return Estimate(value=estimate.value)
    return Estimate(value=float(after.value) - float(before.value), rows=after.rows)  # type: ignore[arg-type]


def noise(assessment: Assessment, kind: str, view: str) -> Estimate | None:
    """Noise floor of a view: mean distance over pairs of `kind` (`full`, `oracle`) models."""
    return assessment.noise.get(f"noise_{kind}.{view}")


def noise_pairs(assessment: Assessment, kind: str, view: str) -> int | None:
    """How many pairs a noise floor is the mean of."""
    for key in (f"noise_{kind}.{view}", f"noise_{kind}", kind):
        if key in assessment.noise_pairs:
            return assessment.noise_pairs[key]
    return None
