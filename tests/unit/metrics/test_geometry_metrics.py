"""The decomposition of the unlearning move and the projection onto the simplex."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.metrics import METRICS, decompose, oracle_distance, project_to_simplex
from vestige.statistics import value_of


def compute(name: str, p: np.ndarray, full: np.ndarray, oracle: np.ndarray) -> float | Undefined:
    return value_of(METRICS.get(name).compute(p=p, full=full, oracle=oracle))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.integers(2, 40), st.sampled_from([0.02, 0.3, 1.0, 10.0]))
def test_identity_holds_in_every_row(seed: int, options: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    p, full, oracle = (rng.dirichlet(np.full(options, sharpness), 20) for _ in range(3))
    size = 10.0 ** rng.uniform(-16, 0, (20, 1))  # oracle moves from rounding to whole
    oracle = (1 - size) * full + size * oracle
    split = decompose(p, full, oracle)
    assert split.identity_error < 1e-12
    np.testing.assert_allclose(split.squared_error, ((p - oracle) ** 2).sum(axis=1), rtol=0, atol=1e-12)
    # The residual is orthogonal to the oracle move; a move counted as zero has length at most 1e-14.
    assert np.abs((split.residual * split.do).sum(axis=1)).max() < 2e-14


def test_the_oracle_makes_exactly_its_own_move() -> None:
    rng = np.random.default_rng(1)
    full, oracle = (rng.dirichlet(np.ones(6), 15) for _ in range(2))
    assert compute("aligned_coefficient", oracle, full, oracle) == 1.0
    assert compute("relative_residual", oracle, full, oracle) == pytest.approx(0, abs=1e-15)
    assert compute("magnitude_only_distance", oracle, full, oracle) == pytest.approx(0, abs=1e-15)
    assert compute("residual_only_distance", oracle, full, oracle) == pytest.approx(0, abs=1e-15)
    assert compute("squared_error", oracle, full, oracle) == 0.0


def test_the_full_model_makes_no_move() -> None:
    rng = np.random.default_rng(1)
    full, oracle = (rng.dirichlet(np.ones(6), 15) for _ in range(2))
    assert compute("aligned_coefficient", full, full, oracle) == 0.0
    assert compute("relative_residual", full, full, oracle) == 0.0
    assert compute("magnitude_only_distance", full, full, oracle) == pytest.approx(
        float(oracle_distance(full, oracle).mean()), abs=1e-15
    )


def test_rows_that_retraining_leaves_alone_are_counted_and_not_divided() -> None:
    full = np.array([[0.5, 0.5], [0.9, 0.1]])
    oracle = np.array([[0.5, 0.5], [0.1, 0.9]])
    p = np.array([[0.2, 0.8], [0.5, 0.5]])
    split = decompose(p, full, oracle)
    assert split.zero_rows == 1
    np.testing.assert_allclose(split.coefficient, [0.0, 0.5])
    np.testing.assert_allclose(split.residual[0], [-0.3, 0.3])
    # |r|^2 of the unmoved row counts as a side move: sqrt(0.18 / 1.28).
    assert compute("aligned_coefficient", p, full, oracle) == pytest.approx(0.5)
    assert compute("relative_residual", p, full, oracle) == pytest.approx(np.sqrt(0.18 / 1.28))
    assert str(compute("aligned_coefficient", p, full, full)) == (
        "undefined: the oracle does not move on these rows"
    )


@pytest.mark.parametrize("name", ["aligned_coefficient", "relative_residual"])
def test_an_oracle_move_of_rounding_size_is_no_move(name: str) -> None:
    full, p = np.array([[0.3, 0.7]]), np.array([[0.5, 0.5]])
    oracle = np.array([[np.nextafter(0.3, 1), 0.7]])
    assert decompose(p, full, oracle).zero_rows == 1
    assert str(compute(name, p, full, oracle)) == "undefined: the oracle does not move on these rows"


@pytest.mark.parametrize(
    ("v", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([0.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]),
        ([2.0, 0.0], [1.0, 0.0]),
        ([1.2, 0.0, -0.2], [1.0, 0.0, 0.0]),
        ([0.8, 0.8, -1.0], [0.5, 0.5, 0.0]),
        ([-5.0], [1.0]),
        ([1e17, 0.0], [1.0, 0.0]),
        ([-1e17, -1e17], [0.5, 0.5]),
    ],
)
def test_projection_of_known_points(v: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(project_to_simplex([v])[0], expected, rtol=0, atol=1e-15)


@settings(deadline=None, max_examples=80)
@given(arrays(np.float64, (3, 6), elements=st.floats(-10, 10, allow_subnormal=False)))
def test_projection_satisfies_the_optimality_conditions(v: np.ndarray) -> None:
    x = project_to_simplex(v)
    np.testing.assert_allclose(x.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert (x >= 0).all()
    for point, projected in zip(v, x, strict=True):
        shift = point - projected
        active = projected > 1e-13
        # One shift for all positive entries, and no zero entry above it.
        assert np.ptp(shift[active]) < 1e-13
        assert (point[~active] <= shift[active].max() + 1e-12).all()


def test_projection_refuses_what_is_not_finite() -> None:
    with pytest.raises(InputError, match="finite rows x options"):
        project_to_simplex([[np.nan, 0.0]])
    with pytest.raises(InputError, match="finite rows x options"):
        project_to_simplex([0.0, 1.0])  # type: ignore[list-item]
