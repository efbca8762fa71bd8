"""The interval of a noise floor over training seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vestige.contracts import Floats, Interval, Undefined
from vestige.metrics.noise import noise_floor
from vestige.statistics.noise import noise_interval


def squared(models: Floats) -> Floats:
    """Squared Euclidean distances of models (m, d)."""
    return np.asarray(((models[:, None] - models[None]) ** 2).sum(axis=-1))


def interval(distances: Floats) -> Interval:
    found = noise_interval(distances, condition="these rows")
    assert isinstance(found, Interval)
    return found


@pytest.mark.parametrize("models", [3, 5, 8])
@pytest.mark.parametrize("directions", [1, 4, 50])
def test_it_covers_the_mean_distance_of_two_trainings(models: int, directions: int) -> None:
    """Gaussian trainings: two of them are 2 x directions apart, squared, on average."""
    random = np.random.default_rng([models, directions])
    found = [interval(squared(random.normal(size=(models, directions)))) for _ in range(600)]
    assert np.mean([item.low <= 2 * directions <= item.high for item in found]) >= 0.92


@pytest.mark.parametrize("models", [3, 5])
def test_it_covers_the_noise_floor_of_perturbed_classifiers(models: int) -> None:
    """A seed shifts logits by row, by option and in sharpness; the truth is that of 60 classifiers."""
    random = np.random.default_rng(models)
    base = 2 * random.normal(size=(40, 6))

    def trained() -> Floats:
        shift = 0.3 * random.normal(size=(40, 6)) + 0.4 * random.normal(size=6)
        logits = (base + shift) * math.exp(0.2 * random.normal())
        return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))

    many = noise_floor([trained() for _ in range(60)])
    hits = []
    for _ in range(200):
        found = noise_floor([trained() for _ in range(models)]).over_seeds("these rows")
        assert isinstance(found, Interval)
        hits.append(found.low <= many.value <= found.high)
    assert np.mean(hits) >= 0.92


def test_the_order_of_models_changes_nothing_to_the_last_bit() -> None:
    models = np.random.default_rng(3).normal(size=(6, 4))
    assert interval(squared(models)) == interval(squared(models[[4, 0, 5, 2, 1, 3]]))


def test_three_models_by_hand() -> None:
    """Left out one at a time, a single pair is left: 1, 2 and 4; their logarithms are 0, 1, 2 times log 2."""
    found = interval(np.array([[0, 4.0, 2.0], [4.0, 0, 1.0], [2.0, 1.0, 0]]))
    factor = math.exp(4.302653 * math.log(2) * math.sqrt(2 / 3 * 2))
    assert (found.low, found.high) == (pytest.approx(7 / 3 / factor), pytest.approx(7 / 3 * factor))
    assert "3 training seeds" in found.kind


@pytest.mark.parametrize(
    ("distances", "reason"),
    [
        ([[0.0]], "fewer than two seeds"),
        ([[0.0, 0.1], [0.1, 0.0]], "one pair of seeds tells nothing of other pairs"),
        ([[0, 0, 0.1], [0, 0, 0.1], [0.1, 0.1, 0]], "the same outputs"),
    ],
)
def test_what_a_few_models_cannot_tell_is_undefined(distances: list[list[float]], reason: str) -> None:
    found = noise_interval(distances, condition="")
    assert isinstance(found, Undefined)
    assert reason in found.undefined


def test_anything_but_distances_is_refused() -> None:
    for wrong in (np.zeros((2, 3)), -np.ones((3, 3)), np.arange(9.0).reshape(3, 3)):
        with pytest.raises(ValueError, match=r"matrix|symmetric"):
            noise_interval(wrong, condition="")
