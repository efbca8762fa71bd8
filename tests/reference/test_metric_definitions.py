"""Each registered metric against its slow definition, on ordinary and on awkward tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_metrics import DEFINITIONS, js2, simplex

from vestige.metrics import METRICS, noise_floor, oracle_distance, project_to_simplex
from vestige.statistics import value_of

TOLERANCE = 1e-12  # sums of at most a few hundred terms of size one


def tables(seed: int, rows: int, options: int, sharpness: float) -> dict[str, np.ndarray]:
    """A full model, an oracle, a model between and beside them, gold columns, forgotten options."""
    rng = np.random.default_rng(seed)
    full, oracle, noise = (rng.dirichlet(np.full(options, sharpness), rows) for _ in range(3))
    share = rng.uniform(0, 1, (rows, 1))
    forgotten = np.zeros(options, bool)
    forgotten[: max(1, options // 3)] = True
    # Retraining takes seven tenths of the forgotten mass away and spreads it over the other options.
    kept = np.where(forgotten, 0.0, oracle + 1e-3)
    left = np.where(forgotten, 0.3 * full, 0.0)
    oracle = left + kept * (1 - left.sum(axis=1, keepdims=True)) / kept.sum(axis=1, keepdims=True)
    return {
        "p": 0.6 * share * oracle + 0.6 * (1 - share) * full + 0.4 * noise,
        "full": full,
        "oracle": oracle,
        "gold": rng.integers(0, options, rows),
        "forgotten": forgotten,
    }


def awkward() -> dict[str, np.ndarray]:
    """Zeros, ties, certainty, top probabilities on bin edges, rows that retraining leaves alone."""
    full = np.array(
        [
            [1.0, 0.0, 0.0, 0.0],
            [0.2, 0.2, 0.4, 0.2],
            [0.25, 0.25, 0.25, 0.25],
            [1 / 3, 1 / 3, 1 / 6, 1 / 6],
            [0.6, 0.4, 0.0, 0.0],
            [0.1, 0.0, 0.1, 0.8],
        ]
    )
    oracle = np.array(
        [
            [0.0, 1.0, 0.0, 0.0],
            [0.2, 0.2, 0.4, 0.2],
            [0.0, 0.5, 0.5, 0.0],
            [1 / 3, 1 / 6, 1 / 3, 1 / 6],
            [0.0, 0.4, 0.6, 0.0],
            [0.0, 0.0, 0.2, 0.8],
        ]
    )
    p = np.array(
        [
            [0.2, 0.8, 0.0, 0.0],
            [0.4, 0.2, 0.2, 0.2],
            [0.25, 0.25, 0.25, 0.25],
            [1 / 3, 1 / 3, 1 / 6, 1 / 6],
            [0.0, 0.4, 0.6, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    gold = np.array([0, 2, 3, 0, 0, 3])
    forgotten = np.array([True, False, False, False])
    return {"p": p, "full": full, "oracle": oracle, "gold": gold, "forgotten": forgotten}


def slow_arguments(name: str, data: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {need: data[need].tolist() for need in METRICS.get(name).needs}


def test_every_registered_metric_has_a_slow_definition() -> None:
    assert sorted(DEFINITIONS) == METRICS.names()


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
@pytest.mark.parametrize(
    "data",
    [tables(1, 29, 5, 0.3), tables(2, 12, 40, 0.05), tables(3, 7, 2, 2.0), awkward()],
    ids=["sharp", "many options", "two options", "awkward"],
)
def test_metric_equals_its_slow_definition(name: str, data: dict[str, np.ndarray]) -> None:
    metric = METRICS.get(name)
    found = value_of(metric.compute(**{need: data[need] for need in metric.needs}))
    assert found == pytest.approx(
        DEFINITIONS[name](**slow_arguments(name, data)), abs=TOLERANCE, rel=TOLERANCE
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 9), options=st.integers(2, 12))
def test_all_metrics_equal_their_slow_definitions_on_random_tables(
    seed: int, rows: int, options: int
) -> None:
    data = tables(seed, rows, options, 0.5)
    for name, slow in DEFINITIONS.items():
        metric = METRICS.get(name)
        found = value_of(metric.compute(**{need: data[need] for need in metric.needs}))
        expected = slow(**slow_arguments(name, data))
        assert found == pytest.approx(expected, abs=1e-11, rel=1e-10), name


def test_each_row_of_the_oracle_distance_equals_the_slow_divergence() -> None:
    data = awkward()
    found = oracle_distance(data["p"], data["oracle"])
    for value, p, q in zip(found, data["p"].tolist(), data["oracle"].tolist(), strict=True):
        assert value == pytest.approx(js2(p, q), abs=1e-14)


def test_noise_floor_is_the_mean_over_pairs_of_the_mean_over_rows() -> None:
    models = [tables(seed, 11, 6, 0.4)["full"] for seed in (1, 2, 3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    slow = np.mean(
        [
            np.mean([js2(a, b) for a, b in zip(models[i].tolist(), models[j].tolist(), strict=True)])
            for i, j in pairs
        ]
    )
    floor = noise_floor(models)
    assert floor.value == pytest.approx(slow, abs=TOLERANCE)
    assert floor.pairs == 3
    assert value_of(floor.terms) == floor.value


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4), min_size=1, max_size=5),
)
def test_projection_equals_the_projection_by_bisection(rows: list[list[float]]) -> None:
    projected = project_to_simplex(np.array(rows))
    for found, row in zip(projected, rows, strict=True):
        assert found == pytest.approx(simplex(row), abs=1e-12)
