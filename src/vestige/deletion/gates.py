"""The acquisition gate (was a class learned?) and the intervention gate (is there anything to undo?)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from vestige.contracts import Floats, Record, Undefined
from vestige.deletion.requests import DeletionRequest, GateException
from vestige.errors import InputError, first_five

__all__ = [
    "LEAST_ACCURACY",
    "LEAST_GOLD_PROBABILITY",
    "NOISE_FACTOR",
    "AcquisitionGate",
    "ClassAcquisition",
    "acquisition_gate",
    "gate_exceptions",
    "intervention_gate",
]

LEAST_ACCURACY = 0.70
LEAST_GOLD_PROBABILITY = 0.50
NOISE_FACTOR = 2.0
"""Times the noise floor that displacement must exceed. The factor is ours."""

InterventionGate = Literal["passed", "displacement within noise", "gate not run"]


class ClassAcquisition(Record):
    """How well the full model knows one option, on development rows. The means are None without rows."""

    option: str
    rows: int
    accuracy: float | None
    mean_gold_probability: float | None
    passed: bool
    reason: str


class AcquisitionGate(Record):
    """The gate of every option at one seed. `eligible`: those that passed, never the out-of-scope option."""

    seed: int
    least_accuracy: float
    least_gold_probability: float
    classes: tuple[ClassAcquisition, ...]

    @property
    def eligible(self) -> tuple[str, ...]:
        """Ids of the options that passed, in the schema's order."""
        return tuple(one.option for one in self.classes if one.passed)

    def of(self, option: str) -> ClassAcquisition:
        """The gate of one option. Raises KeyError."""
        for one in self.classes:
            if one.option == option:
                return one
        raise KeyError(option)


def acquisition_gate(
    gold: Sequence[str],
    p: Floats,
    options: Sequence[str],
    *,
    seed: int,
    out_of_scope: str | None = None,
    least_accuracy: float = LEAST_ACCURACY,
    least_gold_probability: float = LEAST_GOLD_PROBABILITY,
) -> AcquisitionGate:
    """The gate from the full model's development predictions at the primary seed.

    gold (N,) option ids of the development rows; p (N, C) their probabilities; options (C,) ids of the
    columns. An option passes with at least `least_accuracy` of its rows right (argmax, first column in a tie)
    and a mean gold probability of at least `least_gold_probability`, inclusive. An option without development
    rows fails. Raises InputError for gold outside the options. Decision-unlearning specification, section 3.
    """
    column = {option: place for place, option in enumerate(options)}
    if p.shape != (len(gold), len(options)):
        raise ValueError(f"p must be ({len(gold)}, {len(options)}), found {p.shape}")
    if outside := sorted(set(gold) - set(column)):
        raise InputError(
            "acquisition gate",
            f"gold outside the schema: {first_five(outside)}",
            f"the {len(options)} options",
            "score the rows under the schema of their data",
        )
    target = np.array([column[option] for option in gold], dtype=np.int64)
    right = p.argmax(axis=1) == target
    probability = np.asarray(p, dtype=np.float64)[np.arange(len(gold)), target]
    classes = []
    for place, option in enumerate(options):
        own = target == place
        rows = int(own.sum())
        accuracy = float(right[own].mean()) if rows else None
        mean = float(probability[own].mean()) if rows else None
        reason = _reason(accuracy, mean, least_accuracy, least_gold_probability)
        if option == out_of_scope:
            reason = "out of scope: never a deletion target"
        classes.append(
            ClassAcquisition(
                option=option,
                rows=rows,
                accuracy=accuracy,
                mean_gold_probability=mean,
                passed=not reason,
                reason=reason,
            )
        )
    return AcquisitionGate(
        seed=seed,
        least_accuracy=least_accuracy,
        least_gold_probability=least_gold_probability,
        classes=tuple(classes),
    )


def gate_exceptions(
    request: DeletionRequest, gate: AcquisitionGate, units: Collection[str] | None = None
) -> tuple[GateException, ...]:
    """Units of `request` that fail `gate`, the gate at a later seed: recorded, never reselected.

    units: the options looked at; default the forgotten ones, none for custom deletion.
    """
    failed = [gate.of(unit) for unit in (request.forgotten if units is None else units)]
    return tuple(
        GateException(
            seed=gate.seed,
            unit=one.option,
            accuracy=one.accuracy,
            mean_gold_probability=one.mean_gold_probability,
            reason=one.reason,
        )
        for one in failed
        if not one.passed
    )


def intervention_gate(
    d0_f: float,
    d0_g: float,
    noise_f: float | Undefined | None,
    noise_g: float | Undefined | None,
) -> InterventionGate:
    """Whether displacement exceeds the noise floor enough for unlearning to have a direction.

    d0_v: mean JS of the full model to the oracle, in [0, 1]; noise_v: mean JS over pairs of full models of
    different seeds. "passed" if d0_v > 2 noise_v on both views, strictly; an unknown floor: "gate not run".
    Decision-unlearning specification, section 3.
    """
    known = [noise for noise in (noise_f, noise_g) if isinstance(noise, float | int)]
    if not all(math.isfinite(value) and value >= 0 for value in (d0_f, d0_g, *known)):
        raise ValueError("displacement and noise must be finite and not negative")
    if len(known) < 2:
        return "gate not run"
    noisy = d0_f <= NOISE_FACTOR * known[0] or d0_g <= NOISE_FACTOR * known[1]
    return "displacement within noise" if noisy else "passed"


def _reason(accuracy: float | None, mean: float | None, least_accuracy: float, least_mean: float) -> str:
    """Why an option fails, "" when it passes."""
    if accuracy is None or mean is None:
        return "no development rows"
    faults = []
    if accuracy < least_accuracy:
        faults.append(f"accuracy {accuracy:.3f} < {least_accuracy:.2f}")
    if mean < least_mean:
        faults.append(f"mean gold probability {mean:.3f} < {least_mean:.2f}")
    return ", ".join(faults)
