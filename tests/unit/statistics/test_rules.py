"""The decision, feasibility, replication, p-values and Holm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vestige.statistics
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.statistics import (
    bootstrap_rows,
    decide,
    feasible,
    holm,
    intersection_union,
    mean_of,
    one_sided_p,
    replicates,
)

SHARE = st.floats(-1, 1)


@pytest.mark.parametrize(
    ("arguments", "decision"),
    [
        ((0.3, 0.2, 0.3, 0.2, -0.0201, 0.0), "infeasible"),
        ((0.3, 0.2, 0.3, 0.2, 0.0, 0.0201), "infeasible"),
        ((-0.3, -0.4, 0.3, 0.2, -0.03, 0.0), "infeasible"),
        ((0.3, 0.2, 0.3, 0.2, -0.02, 0.02), "accepted"),
        ((0.3, 0.0, 0.3, 0.2, 0.0, 0.0), "positive, unconfirmed"),
        ((0.3, 0.2, 0.3, -0.2, 0.0, 0.0), "positive, unconfirmed"),
        ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), "no benefit"),
        ((0.3, 0.2, 0.0, 0.0, 0.0, 0.0), "no benefit"),
        ((-0.0, 0.2, 0.3, 0.2, 0.0, 0.0), "no benefit"),
    ],
)
def test_decision_in_its_order(arguments: tuple[float, ...], decision: str) -> None:
    assert decide(*arguments) == decision


@given(SHARE, SHARE, SHARE, SHARE, SHARE, SHARE)
def test_decision_is_infeasible_exactly_when_a_gate_fails(
    gain_f: float, low_f: float, gain_g: float, low_g: float, accuracy: float, ece: float
) -> None:
    found = decide(
        gain_f=gain_f,
        gain_f_low=low_f,
        gain_g=gain_g,
        gain_g_low=low_g,
        delta_accuracy=accuracy,
        delta_ece=ece,
    )
    assert (found == "infeasible") == (not feasible(accuracy, ece))
    assert (found == "accepted") == (
        feasible(accuracy, ece) and min(gain_f, gain_g) > 0 and min(low_f, low_g) > 0
    )


def test_gates_are_inclusive_within_rounding() -> None:
    # 0.80 - 0.82 is -0.0199999...96 or -0.0200000...04 depending on the operands.
    assert feasible(0.9 - 0.92, 0.1 - 0.08)
    assert feasible(-0.02 - 9e-13, 0.02 + 9e-13)
    assert not feasible(-0.02 - 2e-12, 0.0)
    assert not feasible(0.0, 0.02 + 2e-12)


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("value", [math.nan, math.inf, -2.0, 55.0])
def test_decision_refuses_what_is_no_share(position: int, value: float) -> None:
    arguments = [0.1] * 4 + [0.0, 0.0]
    arguments[position] = value
    with pytest.raises(InputError, match=r"needed a number in \[-1, 1\]"):
        decide(*arguments)


@pytest.mark.parametrize(
    ("lows", "left_out", "cells", "outcome"),
    [
        ([0.1, 0.1], [0.1, 0.2], [True, True], "replicates"),
        ([0.1, 0.1], [0.1, 0.2], [True, False], "infeasible cell(s)"),
        ([0.1, 0.0], [0.1, 0.2], [True, True], "does not replicate"),
        ([0.1, 0.1], [0.1, -0.2], [True, False], "does not replicate"),
    ],
)
def test_replication_rule(lows: list[float], left_out: list[float], cells: list[bool], outcome: str) -> None:
    assert replicates(lows, left_out, cells, seeds=2) == outcome


def test_one_training_seed_cannot_replicate() -> None:
    assert isinstance(replicates([0.1, 0.1], [0.1, 0.2], [True, True], seeds=1), Undefined)
    with pytest.raises(InputError):
        replicates([math.nan], [0.1], [True], seeds=2)


def test_one_sided_p_counts_centred_resamples() -> None:
    draws = np.array([0.1, 0.2, 0.3, 0.4, np.nan])
    # Centred at 0.2: -0.1, 0.0, 0.1, 0.2; one reaches 0.2.
    assert one_sided_p(0.2, draws) == pytest.approx(2 / 5)
    assert one_sided_p(1.0, draws) == pytest.approx(1 / 5)
    assert one_sided_p(0.0, np.zeros(9)) == 1.0
    assert isinstance(one_sided_p(math.nan, draws), Undefined)
    assert isinstance(one_sided_p(0.1, np.array([np.nan])), Undefined)


def test_one_sided_p_of_no_gain_is_uniform_enough() -> None:
    """At a true gain of 0 p falls below 0.05 about as often as stated: 0.05 and 3 SE = 0.015 over 2,000."""
    samples = np.random.default_rng(0).normal(size=(2000, 100))
    found = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(samples)}, draws=500, seed=1)
    p = np.array([one_sided_p(result.estimate, result.draws_values) for result in found.values()])
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.035)


def test_intersection_union_takes_the_larger_p() -> None:
    missing = Undefined(undefined="no gain to test")
    assert intersection_union(0.01, 0.04) == 0.04
    assert intersection_union(missing, 0.04) == missing
    assert intersection_union(0.01, missing) == missing


def test_holm_keeps_names_and_order() -> None:
    assert holm({"SimNPO": 0.01, "NPO": 0.04, "GradDiff": 0.03}) == pytest.approx(
        {"SimNPO": 0.03, "NPO": 0.06, "GradDiff": 0.06}
    )
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm({}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_raises_p_values_and_keeps_their_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert ((adjusted >= p) & (adjusted <= 1)).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    assert adjusted[order[0]] == pytest.approx(min(1.0, len(p) * min(p)))


@pytest.mark.parametrize("p", [[-0.1], [1.1], [math.nan], [[0.1, 0.2]]])
def test_holm_refuses_what_is_no_p_value(p: list[float]) -> None:
    with pytest.raises(InputError, match=r"numbers in \[0, 1\]"):
        holm(p)


def test_public_names_exist() -> None:
    for name in vestige.statistics.__all__:
        assert getattr(vestige.statistics, name) is not None
