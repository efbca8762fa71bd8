"""The decision about one unlearned model, and the replication rule over seeds and bundles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from vestige.contracts import Decision, Undefined
from vestige.errors import InputError

__all__ = ["MARGIN", "TOLERANCE", "Replication", "decide", "feasible", "replicates"]

MARGIN = 0.02
"""Largest allowed loss of retained accuracy and rise of calibration error, on [0, 1]."""
TOLERANCE = 1e-12

Replication = Literal["replicates", "infeasible cell(s)", "does not replicate"]


def feasible(delta_accuracy: float, delta_ece: float) -> bool:
    """Whether the retained rows still work: accuracy lost at most 0.02, ECE risen at most 0.02, inclusive.

    delta_accuracy, delta_ece: unlearned minus full on R, both on [0, 1] scales (not percentage points), so in
    [-1, 1]. Tolerance 1e-12. Raises InputError for NaN or values outside [-1, 1].
    """
    _check("delta_accuracy", delta_accuracy)
    _check("delta_ece", delta_ece)
    return delta_accuracy >= -MARGIN - TOLERANCE and delta_ece <= MARGIN + TOLERANCE


def decide(
    gain_f: float,
    gain_f_low: float,
    gain_g: float,
    gain_g_low: float,
    delta_accuracy: float,
    delta_ece: float,
) -> Decision:
    """The decision about one unlearned model, in this order.

    `infeasible`: not `feasible(delta_accuracy, delta_ece)`. `accepted`: both gains > 0 and both lower bounds
    of their row intervals > 0. `positive, unconfirmed`: both gains > 0. Else `no benefit`.
    gain_*: dOD in [-1, 1] on F and G; *_low: lower 95 % row bounds. Accuracies and ECE on [0, 1]. Acceptance
    is not equivalence to retraining. Raises InputError for NaN or values outside [-1, 1].
    Source: Wu and Lim 2026, Table S3.
    """
    for name, value in (
        ("gain_f", gain_f),
        ("gain_f_low", gain_f_low),
        ("gain_g", gain_g),
        ("gain_g_low", gain_g_low),
    ):
        _check(name, value)
    if not feasible(delta_accuracy, delta_ece):
        return "infeasible"
    if not (gain_f > 0 and gain_g > 0):
        return "no benefit"
    return "accepted" if gain_f_low > 0 and gain_g_low > 0 else "positive, unconfirmed"


def replicates(
    lows: Iterable[float], leave_one_out: Iterable[float], cells_feasible: Iterable[bool], *, seeds: int
) -> Replication | Undefined:
    """The replication rule over seeds x bundles.

    lows: lower bounds of the intervals of the gain, one a view. leave_one_out: estimates with each seed
    and each bundle left out, all views. cells_feasible: one a cell. seeds: training seeds among the
    cells. `does not replicate` when a bound or a left-out estimate is not above 0; else `infeasible
    cell(s)` when a cell is infeasible; else `replicates`. Undefined below two training seeds: one
    training run cannot replicate, over however many bundles.
    """
    if seeds < 2:
        return Undefined(undefined=f"replication needs at least two training seeds, there is {seeds}")
    bounds, left_out, cells = list(lows), list(leave_one_out), list(cells_feasible)
    if not bounds or not left_out or not cells:
        raise ValueError("a replication of two seeds has bounds, left-out estimates and cells")
    for value in bounds + left_out:
        _check("replication gain", value)
    if not all(value > 0 for value in bounds + left_out):
        return "does not replicate"
    return "replicates" if all(cells) else "infeasible cell(s)"


def _check(name: str, value: float) -> None:
    if math.isnan(value) or abs(value) > 1 + TOLERANCE:
        raise InputError(
            name,
            f"{value}",
            "a number in [-1, 1]",
            "pass differences of values on [0, 1], percentage points divided by 100",
        )
