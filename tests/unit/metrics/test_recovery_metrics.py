"""Recovery contrasts: weights, known answers, the identity, thresholds, and their additive forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.metrics import recovery_contrasts
from vestige.metrics.recovery import (
    average,
    contrast_terms,
    first_reached,
    horizon_weights,
    level_terms,
    recovery_area,
    row_headroom_terms,
)
from vestige.statistics import mean_of, value_of

T = (0, 1, 5, 10, 25)
curves = arrays(np.float64, (5,), elements=st.floats(0, 1))


def test_weights_of_the_protocol_horizon() -> None:
    np.testing.assert_allclose(horizon_weights(T), [0.02, 0.10, 0.18, 0.40, 0.30], atol=1e-15)
    np.testing.assert_allclose(horizon_weights([0, 2]), [0.5, 0.5])


def test_a_known_answer_by_hand() -> None:
    found = recovery_contrasts(T, [0.4, 0.5, 0.6, 0.8, 0.9], [0.2, 0.2, 0.2, 0.7, 0.8])
    assert found.area_unlearned == pytest.approx(0.008 + 0.05 + 0.108 + 0.32 + 0.27)
    assert found.area_oracle == pytest.approx(0.004 + 0.02 + 0.036 + 0.28 + 0.24)
    assert found.g_abs == pytest.approx(0.756 - 0.58)
    assert found.g_adj == pytest.approx(0.356 - 0.38)
    assert found.g_headroom == pytest.approx(0.356 / 0.6 - 0.38 / 0.8)
    assert found.identity_residual < 1e-15


def test_the_area_is_the_integral_of_the_broken_line() -> None:
    p = np.array([0.1, 0.3, 0.2, 0.9, 0.5])
    fine = np.interp(np.linspace(0, 25, 25_001), T, p)
    assert float(recovery_area(T, p)) == pytest.approx(fine.mean(), abs=1e-4)


@settings(deadline=None)
@given(curves, curves)
def test_identity_and_antisymmetry(u: np.ndarray, o: np.ndarray) -> None:
    found, back = recovery_contrasts(T, u, o), recovery_contrasts(T, o, u)
    assert found.identity_residual <= 1e-15
    assert found.g_abs == -back.g_abs
    assert found.g_adj == pytest.approx(-back.g_adj, abs=1e-15)
    if not isinstance(found.g_headroom, Undefined):
        assert found.headroom_unlearned <= 1 + 1e-9


@settings(deadline=None)
@given(arrays(np.float64, (7, 5), elements=st.floats(0, 1)))
def test_the_oracle_itself_gains_nothing(rows: np.ndarray) -> None:
    found = recovery_contrasts(T, rows, rows)
    assert found.g_abs == found.g_adj == found.identity_residual == 0
    assert isinstance(found.g_headroom, Undefined) or found.g_headroom == 0
    for item in contrast_terms(T, rows, rows).values():
        assert isinstance(value_of(item), Undefined) or value_of(item) == 0


def test_headroom_is_a_ratio_of_means_and_the_mean_of_ratios_is_another_number() -> None:
    rng = np.random.default_rng(0)
    u, o = np.sort(rng.random((50, 5)), axis=1), np.sort(rng.random((50, 5)), axis=1)
    terms = contrast_terms(T, u, o)
    found = recovery_contrasts(T, u, o)
    for name in ("g_abs", "g_adj", "g_headroom"):
        assert value_of(terms[name]) == pytest.approx(getattr(found, name), abs=1e-14)
    other = value_of(row_headroom_terms(T, u, o))
    weights = horizon_weights(T)
    each = [(p @ weights - p[:, 0]) / (1 - p[:, 0]) for p in (u, o)]
    assert other == pytest.approx((each[0] - each[1]).mean())
    assert abs(other - found.g_headroom) > 0.001


def test_no_headroom_is_undefined_with_a_reason() -> None:
    found = recovery_contrasts(T, np.ones(5), np.full(5, 0.5))
    assert str(found.g_headroom).startswith("undefined: a gold probability of 1 before the first update")
    rows = np.array([[1.0, 1, 1, 1, 1], [0.5, 1, 1, 1, 1]])
    terms = row_headroom_terms(T, rows, np.full((2, 5), 0.5))
    assert value_of(terms) == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("p", "update", "censored"),
    [
        ([0.1, 0.2, 0.5, 0.4, 0.9], 5, False),
        ([0.5, 0.2, 0.1, 0.1, 0.1], 0, False),
        ([0.1, 0.2, 0.3, 0.4, 0.49], 25, True),
        ([0.1, 0.2, 0.3, 0.4, 0.5], 25, False),
    ],
)
def test_first_update_at_a_threshold(p: list[float], update: int, censored: bool) -> None:
    found = first_reached(T, p, 0.5)
    assert (found.update, found.censored) == (update, censored)


def test_average_finishes_each_statistic_before_averaging() -> None:
    rng = np.random.default_rng(1)
    u, o = rng.random((20, 5)) * 0.9, rng.random((20, 5)) * 0.9
    both = [contrast_terms(T, u, o)["g_headroom"], contrast_terms(T, o, u)["g_headroom"]]
    assert value_of(average(both)) == pytest.approx(0, abs=1e-15)
    values = rng.random((3, 20))
    assert value_of(average([mean_of(row) for row in values])) == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("updates", "u", "message"),
    [
        ([1, 5], [0.1, 0.2], "two or more numbers that rise from 0"),
        ([0], [0.1], "two or more numbers that rise from 0"),
        ([0, 5, 5], [0.1, 0.2, 0.3], "two or more numbers that rise from 0"),
        ([0, 5], [0.1, 0.2, 0.3], "2 probabilities, one an update"),
        ([0, 5], [0.1, 1.2], "values outside 0 to 1"),
        ([0, 5], [0.1, float("nan")], "values outside 0 to 1"),
        ([0, 5], np.zeros((0, 2)), "a curve or rows of curves"),
    ],
)
def test_bad_curves_are_one_line(updates: list[int], u: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        recovery_contrasts(updates, u, np.full(len(updates), 0.5))
    assert "\n" not in str(caught.value)


def test_levels_are_those_at_the_ends() -> None:
    """.64 to .92 gained less than .29 to .88, and ends above it."""
    unlearned, oracle = np.linspace(0.64, 0.92, 5)[None], np.linspace(0.29, 0.88, 5)[None]
    found = {name: value_of(terms) for name, terms in level_terms(unlearned, oracle).items()}
    assert found == pytest.approx({"level": 0.04, "start_level": -0.24, "rise": 0.28})
    assert recovery_contrasts(T, unlearned, oracle).g_adj < 0
    with pytest.raises(InputError, match="the same rows"):
        level_terms(unlearned, oracle[:, :3])
