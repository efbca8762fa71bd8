"""Accuracy, calibration, confidence, suppression, agreement, noise and destinations."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.contracts import Metric, Undefined
from vestige.errors import InputError
from vestige.metrics import METRICS, destinations, noise_floor, reliability_bins
from vestige.metrics.calibration import confidence_bin
from vestige.statistics import value_of


def table(seed: int, rows: int = 30, options: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(options, 0.4), rows)


def compute(name: str, **data: np.ndarray) -> float | Undefined:
    metric = METRICS.get(name)
    return value_of(metric.compute(**{need: data[need] for need in metric.needs}))


@pytest.mark.parametrize("metric", list(METRICS), ids=lambda metric: metric.name)
def test_every_metric_is_described_and_gives_finite_terms(metric: Metric) -> None:
    assert metric.title
    assert metric.definition
    assert metric.source
    assert metric.views
    assert set(metric.views) <= {"F", "G", "R", "FG"}
    data = {
        "p": table(1),
        "full": table(2),
        "oracle": table(3),
        "gold": np.arange(30) % 5,
        "forgotten": np.arange(5) < 2,
    }
    terms = metric.compute(**{need: data[need] for need in metric.needs})
    assert terms.terms.shape[0] == 30
    assert np.isfinite(terms.terms).all()
    stacked = np.stack([terms.terms.sum(axis=0), terms.terms[:7].sum(axis=0)])
    assert np.asarray(terms.finish(stacked)).shape == (2,)


@pytest.mark.parametrize("metric", list(METRICS), ids=lambda metric: metric.name)
def test_every_metric_is_undefined_on_an_empty_view(metric: Metric) -> None:
    data = {
        "p": np.zeros((0, 3)),
        "full": np.zeros((0, 3)),
        "oracle": np.zeros((0, 3)),
        "gold": np.zeros(0, int),
        "forgotten": np.array([True, False, False]),
    }
    assert isinstance(compute(metric.name, **data), Undefined)


@pytest.mark.parametrize("metric", list(METRICS), ids=lambda metric: metric.name)
def test_every_metric_ignores_the_order_of_options(metric: Metric) -> None:
    order = np.array([3, 0, 4, 1, 2])
    data = {
        "p": table(1),
        "full": table(2),
        "oracle": table(3),
        "gold": np.arange(30) % 5,
        "forgotten": np.arange(5) < 2,
    }
    moved = {name: data[name][:, order] for name in ("p", "full", "oracle")}
    moved |= {"gold": np.argsort(order)[data["gold"]], "forgotten": data["forgotten"][order]}
    assert compute(metric.name, **moved) == pytest.approx(compute(metric.name, **data), abs=1e-14)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 8))
def test_suppression_is_one_for_the_oracle_and_zero_for_the_full_model(seed: int, options: int) -> None:
    rng = np.random.default_rng(seed)
    full, oracle = (rng.dirichlet(np.ones(options), 9) for _ in range(2))
    forgotten = np.arange(options) < options // 2
    removed = (full[:, forgotten].sum(axis=1) - oracle[:, forgotten].sum(axis=1)).sum()
    at_oracle = compute("suppression", p=oracle, full=full, oracle=oracle, forgotten=forgotten)
    at_full = compute("suppression", p=full, full=full, oracle=oracle, forgotten=forgotten)
    if removed > 1e-8:
        assert (at_full, at_oracle) == (0.0, 1.0)
    elif removed < 1e-10:
        assert isinstance(at_oracle, Undefined)


def test_suppression_is_undefined_when_retraining_removes_no_mass() -> None:
    p = table(1)
    found = compute("suppression", p=table(2), full=p, oracle=p, forgotten=np.arange(5) < 1)
    assert str(found) == "undefined: retraining removes no forgotten mass"


@pytest.mark.parametrize(
    ("confidence", "place"),
    [
        (0.0, 0),
        (1e-300, 0),
        (1 / 15, 0),
        (np.nextafter(1 / 15, 1), 1),
        (0.2, 2),
        (1 / 3, 4),
        (0.6, 8),
        (1.0, 14),
    ],
)
def test_bins_are_open_below_and_closed_above(confidence: float, place: int) -> None:
    assert confidence_bin([confidence])[0] == place


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32))
def test_reliability_bins_give_the_calibration_error(seed: int) -> None:
    p, gold = table(seed), np.random.default_rng(seed).integers(0, 5, 30)
    bins = reliability_bins(p, gold)
    assert sum(part.rows for part in bins) == 30
    error = sum(
        part.rows / 30 * abs(part.accuracy - part.confidence)
        for part in bins
        if isinstance(part.accuracy, float) and isinstance(part.confidence, float)
    )
    assert compute("ece", p=p, gold=gold) == pytest.approx(error, abs=1e-13)
    for part in bins:
        assert isinstance(part.accuracy, Undefined) == (part.rows == 0)
        if isinstance(part.confidence, float):
            assert part.low < part.confidence <= part.high


@pytest.mark.parametrize("gold", [0, 1])
def test_a_tie_is_wrong_and_no_choice_everywhere(gold: int) -> None:
    p = np.array([[0.5, 0.5]])
    assert compute("accuracy", p=p, gold=np.array([gold])) == 0.0
    assert compute("ece", p=p, gold=np.array([gold])) == 0.5
    other = np.eye(2)[[gold]] * 0.2 + 0.4
    assert compute("completeness", p=p, oracle=other) == 0.0
    assert compute("churn", p=p, full=other) == 1.0
    assert compute("churn", p=p, full=p) == 0.0


def test_noise_floor_of_one_seed_is_undefined() -> None:
    floor = noise_floor([table(1)])
    assert str(floor.value) == "undefined: a noise floor needs at least two seeds"
    assert (floor.terms, floor.pairs, floor.models) == (None, 0, 1)
    assert noise_floor([table(1), table(1)]).value == 0.0


def test_noise_floor_does_not_depend_on_the_order_of_seeds() -> None:
    models = [table(seed) for seed in (1, 2, 3)]
    assert noise_floor(models).value == pytest.approx(noise_floor(models[::-1]).value, abs=1e-15)


def test_destinations_say_where_the_removed_probability_went() -> None:
    options = ["a", "b", "c", "d"]
    full = np.array([[0.9, 0.1, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0]])
    after = np.array([[0.1, 0.7, 0.2, 0.0], [0.1, 0.5, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0]])
    found = destinations(after, full, np.array([0, 0, 1]), options, ["a", "d"], top=1)
    assert [destination.forgotten for destination in found] == ["a"]  # no row has gold d
    only = found[0]
    assert (only.rows, only.moved) == (2, pytest.approx(0.7))
    assert only.to == (("b", pytest.approx(0.5)),)
    assert only.elsewhere == pytest.approx(0.2)  # c gained 0.25, d lost 0.05


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_destinations_account_for_all_of_the_moved_probability(seed: int, top: int) -> None:
    options = [f"option {j}" for j in range(5)]
    gold = np.random.default_rng(seed).integers(0, 5, 30)
    for found in destinations(table(seed), table(seed + 1), gold, options, options[:2], top=top):
        gains = [gain for _, gain in found.to]
        assert gains == sorted(gains, reverse=True)
        assert all(gain > 0 for gain in gains)
        assert len(gains) <= top
        assert found.forgotten not in dict(found.to)
        assert found.moved == pytest.approx(sum(gains) + found.elsewhere, abs=1e-14)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gold": np.array([0, 1, 5])}, "columns outside 0 to 4 in rows '2'"),
        ({"gold": np.array([0, -1, 1])}, "columns outside 0 to 4 in rows '1'"),
        ({"gold": np.array([0.0, 1.0, 2.0])}, "needed 3 integer columns"),
        ({"gold": np.array([0, 1])}, "needed 3 integer columns"),
        ({"forgotten": np.array([1, 0, 0, 0, 0])}, "needed 5 booleans"),
        ({"forgotten": np.array([True, False])}, "needed 5 booleans"),
        ({"full": table(2, 4)}, "the same rows and options in both"),
        ({"p": np.full((3, 5), np.nan)}, "NaN, infinite or negative entries in rows '0', '1', '2'"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_one_line(changed: dict[str, np.ndarray], message: str) -> None:
    data = {"p": table(1, 3), "full": table(2, 3), **changed}
    name = {"gold": "gold_probability", "forgotten": "forgotten_mass"}.get(next(iter(changed)), "churn")
    with pytest.raises(InputError) as raised:
        compute(name, **data)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_all_metrics_and_statistics_work_without_importing_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import vestige.statistics, vestige.metrics\n"
        "assert 'vestige.metrics.oracle' not in sys.modules\n"
        "print(len(vestige.metrics.METRICS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(METRICS)
