"""The acquisition gate (was a unit learned?) and the intervention gate (is there anything to undo?)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Record, Undefined
from vestige.decision.choices import is_right
from vestige.deletion.clusters import Clustering
from vestige.deletion.requests import DeletionRequest, GateException
from vestige.errors import InputError, first_five

__all__ = [
    "LEAST_ACCURACY",
    "LEAST_ASSOCIATION_ACCURACY",
    "LEAST_GOLD_PROBABILITY",
    "NOISE_FACTOR",
    "AcquisitionGate",
    "ClassAcquisition",
    "acquisition_gate",
    "association_gate",
    "gate_exceptions",
    "intervention_gate",
]

LEAST_ACCURACY = 0.70
LEAST_GOLD_PROBABILITY = 0.50
LEAST_ASSOCIATION_ACCURACY = 0.65
NOISE_FACTOR = 2.0
"""Times the noise floor that displacement must exceed. The factor is ours."""

Bools = NDArray[np.bool_]
Places = NDArray[np.int64]
InterventionGate = Literal["passed", "displacement within noise", "gate not run"]


class ClassAcquisition(Record):
    """How well the full model knows one unit, on development rows. The means are None without rows.

    option: the option, or an association's cluster (`parent#j`).
    """

    option: str
    rows: int
    accuracy: float | None
    mean_gold_probability: float | None
    passed: bool
    reason: str


class AcquisitionGate(Record):
    """The gate of every unit at one seed. `eligible`: those that passed, never the out-of-scope option.

    least_gold_probability: None where the gate asks for accuracy alone (association).
    """

    seed: int
    least_accuracy: float
    least_gold_probability: float | None
    classes: tuple[ClassAcquisition, ...]

    @property
    def eligible(self) -> tuple[str, ...]:
        """Names of the units that passed, options in the schema's order, clusters in their parents' order."""
        return tuple(one.option for one in self.classes if one.passed)

    def of(self, option: str) -> ClassAcquisition:
        """The gate of one unit. Raises KeyError."""
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
    columns. An option passes with at least `least_accuracy` of its rows right (a tie counts as wrong)
    and a mean gold probability of at least `least_gold_probability`, inclusive. An option without development
    rows fails. Raises InputError for gold outside the options. Decision-unlearning specification, section 3.
    """
    right, probability, target = _scored(gold, p, options)
    classes = []
    for place, option in enumerate(options):
        reason = "out of scope: never a deletion target" if option == out_of_scope else ""
        own = target == place
        classes.append(
            _unit(option, right[own], probability[own], least_accuracy, least_gold_probability, reason)
        )
    return AcquisitionGate(
        seed=seed,
        least_accuracy=least_accuracy,
        least_gold_probability=least_gold_probability,
        classes=tuple(classes),
    )


def association_gate(
    gold: Sequence[str],
    p: Floats,
    options: Sequence[str],
    row_ids: Sequence[str],
    clustering: Clustering,
    *,
    seed: int,
    least_accuracy: float = LEAST_ASSOCIATION_ACCURACY,
) -> AcquisitionGate:
    """The gate of every cluster from the full model's development predictions.

    gold, row_ids (N,); p (N, C); options (C,). A cluster passes when it has enough training and development
    rows and at least `least_accuracy` of its development rows are right, inclusive; the mean gold probability
    is stated and not asked for. Raises InputError for gold outside the options. Decision-unlearning
    specification, section 3.
    """
    right, probability, _ = _scored(gold, p, options)
    of: Mapping[str, str] = clustering.units("development")
    unit = np.array([of.get(row, "") for row in row_ids], dtype=object)
    classes = []
    for cluster in clustering.clusters:
        own = unit == cluster.unit
        classes.append(
            _unit(cluster.unit, right[own], probability[own], least_accuracy, None, cluster.too_small)
        )
    return AcquisitionGate(
        seed=seed, least_accuracy=least_accuracy, least_gold_probability=None, classes=tuple(classes)
    )


def _scored(gold: Sequence[str], p: Floats, options: Sequence[str]) -> tuple[Bools, Floats, Places]:
    """(N,) whether gold is the one best option, the gold probability and the gold column of each row."""
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
    probs = np.asarray(p, dtype=np.float64)
    return is_right(probs, target), probs[np.arange(len(gold)), target], target


def _unit(
    name: str, right: Bools, probability: Floats, least_accuracy: float, least_mean: float | None, fault: str
) -> ClassAcquisition:
    """One unit's gate from its own rows. fault: why it fails whatever the model knows, or ""."""
    rows = len(right)
    accuracy = float(right.mean()) if rows else None
    mean = float(probability.mean()) if rows else None
    reason = fault or _reason(accuracy, mean, least_accuracy, least_mean)
    return ClassAcquisition(
        option=name,
        rows=rows,
        accuracy=accuracy,
        mean_gold_probability=mean,
        passed=not reason,
        reason=reason,
    )


def gate_exceptions(
    request: DeletionRequest, gate: AcquisitionGate, units: Collection[str] | None = None
) -> tuple[GateException, ...]:
    """Units of `request` that fail `gate`, the gate at a later seed: recorded, never reselected.

    units: those looked at; default the request's, none for example and custom deletion.
    """
    own = request.units if request.granularity in ("class", "association") else ()
    failed = [gate.of(unit) for unit in (own if units is None else units)]
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


def _reason(
    accuracy: float | None, mean: float | None, least_accuracy: float, least_mean: float | None
) -> str:
    """Why a unit fails, "" when it passes."""
    if accuracy is None or mean is None:
        return "no development rows"
    faults = []
    if accuracy < least_accuracy:
        faults.append(f"accuracy {accuracy:.3f} < {least_accuracy:.2f}")
    if least_mean is not None and mean < least_mean:
        faults.append(f"mean gold probability {mean:.3f} < {least_mean:.2f}")
    return ", ".join(faults)
