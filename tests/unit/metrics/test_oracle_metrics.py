"""Properties of the oracle distance, displacement, gain and progress."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import vestige.metrics
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.metrics import METRICS, js2, oracle_distance, progress_terms, progress_unstable, renormalise
from vestige.statistics import value_of


@st.composite
def distributions(draw: st.DrawFn, tables: int) -> list[np.ndarray]:
    """Tables (N, C) of the same shape, rows sum to 1, zeros and near-certainty included."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(2, 7)))
    entries = st.floats(0, 1, allow_subnormal=False) | st.sampled_from([0.0, 1e-15, 1e-9, 1.0])
    found = []
    for _ in range(tables):
        weights = draw(arrays(np.float64, shape, elements=entries))
        weights[:, draw(st.integers(0, shape[1] - 1))] += 1e-3
        found.append(weights / weights.sum(axis=1, keepdims=True))
    return found


def compute(name: str, **data: np.ndarray) -> float | Undefined:
    metric = METRICS.get(name)
    return value_of(metric.compute(**{need: data[need] for need in metric.needs}))


@settings(deadline=None)
@given(distributions(2))
def test_divergence_lies_in_the_unit_interval_and_is_symmetric(pair: list[np.ndarray]) -> None:
    p, q = pair
    forward = js2(p, q)
    assert forward.shape == (len(p),)
    assert ((forward >= 0) & (forward <= 1)).all()
    np.testing.assert_array_equal(forward, js2(q, p))


@settings(deadline=None)
@given(distributions(2))
def test_divergence_is_zero_exactly_for_equal_rows(pair: list[np.ndarray]) -> None:
    p, q = pair
    np.testing.assert_array_equal(js2(p, p), 0.0)
    # Rows that differ by 1e-6 in an entry have a divergence near 1e-12 or more, far above rounding (1e-16).
    apart = np.abs(p - q).max(axis=1) > 1e-6
    assert (js2(p, q)[apart] > 0).all()


def test_rounding_never_makes_a_divergence_negative() -> None:
    """Rows that differ by 1e-12: the sum of the two divergences rounds below 0 in many of them."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 2000)
    q = p * (1 + 1e-12 * rng.normal(size=p.shape))
    assert js2(p, q).min() == 0.0
    assert js2(p, q).max() < 1e-15


def test_divergence_of_disjoint_rows_is_one() -> None:
    # Clipping leaves 1e-12 on the other option: 1 minus about 2e-12 x log2(1e12).
    assert oracle_distance([[1.0, 0.0]], [[0.0, 1.0]])[0] == pytest.approx(1, abs=1e-10)


@settings(deadline=None)
@given(distributions(1), st.randoms(use_true_random=False))
def test_divergence_ignores_the_order_of_options(tables: list[np.ndarray], random: object) -> None:
    p = tables[0]
    order = list(range(p.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    q = np.roll(p, 1, axis=1)
    np.testing.assert_allclose(js2(p[:, order], q[:, order]), js2(p, q), rtol=0, atol=1e-15)


@settings(deadline=None)
@given(distributions(2))
def test_progress_is_zero_for_the_full_model_and_one_for_the_oracle(pair: list[np.ndarray]) -> None:
    full, oracle = pair
    displacement = compute("displacement", full=full, oracle=oracle)
    assert isinstance(displacement, float)
    assert compute("gain", p=full, full=full, oracle=oracle) == 0.0
    assert compute("gain", p=oracle, full=full, oracle=oracle) == displacement
    at_full = compute("progress", p=full, full=full, oracle=oracle)
    at_oracle = compute("progress", p=oracle, full=full, oracle=oracle)
    if displacement < 1e-9:
        assert isinstance(at_full, Undefined)
        assert isinstance(at_oracle, Undefined)
    else:
        assert at_full == 0.0
        assert at_oracle == 1.0


def test_progress_is_a_ratio_of_means_not_a_mean_of_row_ratios() -> None:
    assert value_of(progress_terms([0.8, 0.1], [0.4, 0.1])) == pytest.approx(0.4 / 0.9)


@pytest.mark.parametrize(("displacement", "defined"), [(9e-10, False), (1.1e-9, True)])
def test_progress_is_undefined_below_a_displacement_of_a_billionth(
    displacement: float, defined: bool
) -> None:
    found = value_of(progress_terms([displacement] * 3, [0.0] * 3))
    assert isinstance(found, float) == defined
    if not defined:
        assert str(found) == "undefined: displacement below 1e-9"


def test_no_rows_are_undefined_not_zero() -> None:
    empty = np.zeros((0, 3))
    assert str(compute("oracle_distance", p=empty, oracle=empty)) == "undefined: no rows"
    assert str(compute("progress", p=empty, full=empty, oracle=empty)) == "undefined: no rows"


@pytest.mark.parametrize(
    ("displacement", "noise", "unstable"),
    [
        (0.1, 0.05, True),
        (0.1000001, 0.05, False),
        (0.01, 0.001, False),
        (0.05, None, False),
        (0.0499, None, True),
        (0.0499, Undefined(undefined="one seed"), True),
    ],
)
def test_progress_is_unstable_within_twice_the_noise_or_below_a_twentieth_without_it(
    displacement: float, noise: float | Undefined | None, unstable: bool
) -> None:
    assert progress_unstable(displacement, noise) is unstable


def test_renormalise_returns_rows_that_sum_to_one_and_the_largest_deviation() -> None:
    rows, deviation = renormalise([[0.2, 0.2], [0.5, 0.5004]])
    np.testing.assert_allclose(rows, [[0.5, 0.5], [0.5 / 1.0004, 0.5004 / 1.0004]], rtol=1e-15)
    assert deviation == pytest.approx(0.6)
    assert renormalise(np.zeros((0, 4)))[1] == 0.0


@pytest.mark.parametrize(
    ("p", "found"),
    [
        ([[0.5, np.nan]], "rows '0'"),
        ([[0.5, 0.5], [1.1, -0.1]], "rows '1'"),
        ([[np.inf, 0.0]], "rows '0'"),
        ([0.5, 0.5], "shape (2,)"),
        (np.zeros((2, 0)), "shape (2, 0)"),
        ([[0.5, 0.5], [0.0, 0.0]], "rows '1'"),
    ],
)
def test_bad_probabilities_are_named_by_row(p: object, found: str) -> None:
    with pytest.raises(InputError, match="found") as renormalising:
        renormalise(p)  # type: ignore[arg-type]
    assert found in str(renormalising.value)
    with pytest.raises(InputError) as measuring:
        js2(p, p)  # type: ignore[arg-type]
    assert found in str(measuring.value)


def test_distance_refuses_rows_that_do_not_sum_to_one() -> None:
    with pytest.raises(InputError, match="off 1 by more than 1e-3 in rows '1'"):
        js2([[0.5, 0.5], [0.5, 0.47]], [[0.5, 0.5], [0.5, 0.5]])
    js2([[0.5, 0.5009]], [[0.5, 0.5]])


def test_distance_refuses_tables_of_different_shape() -> None:
    with pytest.raises(InputError, match=r"\(1, 2\) and \(2, 2\)"):
        js2([[0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])


def test_public_names_load_lazily_and_exist() -> None:
    for name in vestige.metrics.__all__:
        assert getattr(vestige.metrics, name) is not None
    assert set(vestige.metrics.__all__) <= set(dir(vestige.metrics))
    with pytest.raises(AttributeError, match="no_such_metric"):
        vestige.metrics.no_such_metric  # noqa: B018
