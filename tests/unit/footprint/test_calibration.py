"""Copies, reference changes, medians and ranks of the calibrated class, and the class itself."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_lm import tiny_llama, tiny_tokenizer
from torch import Tensor, nn

from vestige.contracts import Interval, Undefined
from vestige.data.corpora import TokenSequence
from vestige.footprint import calibration
from vestige.footprint.calibration import (
    Change,
    calibrate,
    changed_weights,
    changes,
    eight_bit,
    exact_median,
    random_change,
    rms_log_ratio,
)
from vestige.footprint.fisher import Fisher, fisher_diagonal
from vestige.footprint.judgements import CalibratedClass, CalibrationSettings
from vestige.metrics.footprint_calibrated import calibrated_rule, explain_disagreement, moved, rank_p
from vestige.models.causal_lm import LanguageModel, language_model
from vestige.models.projections import target_parameters

ROLES: dict[str, Any] = {"f": "forget", "a": "adjacent", "g": "generic"}


def test_rank_p_values() -> None:
    others = [float(i) for i in range(39)]
    assert rank_p(-1, others, "low") == 1 / 40
    assert rank_p(39, others, "high") == 1 / 40
    assert rank_p(-1, others, "both") == 2 / 40
    assert rank_p(19, others, "both") == 1
    # Ties count against: with everything equal nothing is extreme.
    assert rank_p(1, [1.0] * 19, "high") == 1


def runs(seed: int, n: int, scale: float = 1.0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    return [{c: scale * float(rng.uniform(0.9, 1.1)) for c in ROLES} for _ in range(n)]


@pytest.mark.parametrize(
    ("s", "name"),
    [
        ({"f": 1.0, "a": 1.0, "g": 1.0}, "no-op"),
        ({"f": 5.0, "a": 5.0, "g": 5.0}, "undirected"),
        ({"f": 5.0, "a": 5.0, "g": 20.0}, "undirected"),
        ({"f": 5.0, "a": 2.0, "g": 1.0}, "localized"),
        ({"f": 2.0, "a": 5.0, "g": 1.0}, "collateral"),
        ({"f": 5.0, "a": 5.0, "g": 1.0}, "undetermined"),
    ],
)
def test_the_rule_gives_every_class(s: dict[str, float], name: str) -> None:
    rule = calibrated_rule(s, runs(1, 19), runs(2, 39, scale=5.0), ROLES)
    assert rule.name == name
    assert (rule.g_p is None) == (name in ("no-op", "undirected"))


def test_without_an_adjacent_corpus_the_side_is_undefined() -> None:
    roles = {"f": "forget", "g": "generic"}
    keep = [{c: run[c] for c in roles} for run in runs(1, 60, scale=5.0)]
    quiet = [{c: run[c] for c in roles} for run in runs(3, 19)]
    found = calibrated_rule({"f": 9.0, "g": 1.0}, quiet, keep[:39], roles)
    assert found.name == Undefined(undefined="no adjacent corpus")
    assert calibrated_rule({"f": 5.0, "g": 9.0}, quiet, keep[:39], roles).name == "undirected"


def test_copies_that_move_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="do not move"):
        moved({"f": 1.0}, [{"f": 0.0}] * 19)


def test_disagreements_are_explained() -> None:
    assert explain_disagreement("partially-localized", "localized") == ""
    assert "floor" in explain_disagreement("no-op", "localized")
    assert "8 bits" in explain_disagreement("collateral-dominant", "no-op")
    assert "generic" in explain_disagreement("partially-localized", "undirected")
    assert explain_disagreement("globally-destructive", "localized") != ""


def test_eight_bit_rounding_is_unbiased_and_on_the_grid() -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 50, generator=rng)
    weight[1] = 0
    step = weight.abs().amax(1, keepdim=True) / 127
    drawn = torch.stack([eight_bit(weight, 1, number, "w") for number in range(400)])
    assert torch.equal(drawn[:, 1], torch.zeros(400, 50))
    levels = drawn[:, [0, 2]] / step[[0, 2]]
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    assert ((drawn - weight).abs() <= step * (1 + 1e-4)).all()
    # The mean of 400 roundings, each off by at most a step: 5 standard errors of half a step.
    assert ((drawn.mean(0) - weight).abs() <= 5 * 0.5 * step / math.sqrt(400) + 1e-7).all()
    assert torch.equal(eight_bit(weight, 1, 0, "w"), drawn[0])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("shape", [(40, 30), (30,), (300, 290)])
def test_reference_changes_keep_the_singular_values(shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(1)
    base, after = nn.Module(), nn.Module()
    weight = torch.randn(shape, generator=rng)
    if len(shape) == 2:
        delta = torch.randn(shape[0], 3, generator=rng) @ torch.randn(3, shape[1], generator=rng)
    else:
        delta = torch.randn(shape, generator=rng)
    base.w, after.w = nn.Parameter(weight), nn.Parameter(weight + delta)
    base.same, after.same = nn.Parameter(weight.clone()), nn.Parameter(weight.clone())
    found = changes(base, after)
    assert set(found) == {"w"}
    assert len(found["w"].singular_values) == min(3, *found["w"].shape)
    assert found["w"].full_rank == (len(shape) == 1)
    drawn = random_change(weight, found["w"], 5, 0, "w")
    matrix = (drawn - weight).reshape(shape[0], -1)
    expected = torch.linalg.svdvals(delta.reshape(shape[0], -1))[: len(found["w"].singular_values)]
    assert torch.allclose(
        torch.linalg.svdvals(matrix)[: len(expected)], expected, rtol=1e-3, atol=1e-3 * float(expected[0])
    )
    assert torch.equal(drawn, random_change(weight, found["w"], 5, 0, "w"))
    # Other singular vectors: a fixed direction is met by chance only.
    assert abs(float((matrix.flatten() @ delta.flatten()) / delta.norm() / matrix.norm())) < 0.6


def test_haar_directions_have_no_preferred_entry() -> None:
    drawn = torch.stack(
        [random_change(torch.zeros(6), Change(torch.ones(1), (6, 1)), n, "v") for n in range(2000)]
    )
    assert torch.allclose(drawn.norm(dim=1), torch.ones(2000), atol=1e-5)
    # Uniform on the sphere: covariance 1/6, mean 0; 5 standard errors of 2,000 draws.
    assert (drawn.mean(0).abs() < 5 * math.sqrt(1 / 6 / 2000)).all()
    covariance = drawn.T @ drawn / 2000
    assert torch.allclose(covariance, torch.eye(6) / 6, atol=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_median_is_exact(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(2)
    for count in (1, 2, 7, 1000):
        values = torch.rand(count, generator=rng, dtype=dtype) ** 12
        parts = {"a": values[: count // 2 + 1], "b": values[count // 2 + 1 :]}
        parts = {name: part for name, part in parts.items() if part.numel()}
        assert exact_median(parts) == float(values.sort().values[(count + 1) // 2 - 1])
    assert exact_median({"zeros": torch.zeros(9, dtype=dtype)}) == 0


def test_rms_log_ratio_by_hand() -> None:
    base, after = {"w": torch.tensor([1.0, 3.0])}, {"w": torch.tensor([3.0, 3.0])}
    assert rms_log_ratio(base, after, 1.0) == pytest.approx(math.log(2) / math.sqrt(2))
    assert rms_log_ratio(base, base, 1.0) == 0


def test_weights_come_back_as_the_same_tensors() -> None:
    model = tiny_llama(layers=1)
    name, weight = next(iter(target_parameters(model).items()))
    kept = weight.data.clone()
    place = weight.data.data_ptr()
    with changed_weights(model, {name: torch.zeros_like(weight)}):
        assert float(weight.detach().abs().sum()) == 0
    with pytest.raises(ZeroDivisionError), changed_weights(model, {name: torch.zeros_like(weight)}):
        _ = 1 / 0
    assert torch.equal(weight.data, kept)
    assert weight.data.data_ptr() == place


def estimator(model: Any, units: Any, coordinates: dict[str, Tensor] | None = None) -> Fisher:
    return fisher_diagonal(model, target_parameters(model), units, coordinates=coordinates)


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    base = language_model(tiny_llama(layers=1), tiny_tokenizer(), label="base")
    samples = {
        corpus: tuple(
            TokenSequence((1, *(int(i) for i in rng.integers(3, 40, 7))), str(i), 0, "") for i in range(4)
        )
        for corpus in ROLES
    }
    return {"base": base, "samples": samples}


def classify(bench: dict[str, Any], after: LanguageModel, **changed: Any) -> CalibratedClass | Undefined:
    fisher = changed.pop("fisher", estimator)
    base, samples = bench["base"], bench["samples"]
    settings = CalibrationSettings(copies=19, references=39, coordinates=500, draws=40)
    return calibrate(
        base=base,
        after=after,
        subspace="both",
        samples=samples,
        roles=ROLES,
        fisher=fisher,
        base_fisher={c: fisher(base.model, units).values for c, units in samples.items()},
        after_fisher={c: fisher(after.model, units).values for c, units in samples.items()},
        settings=settings,
        **changed,
    )


def noisy(bench: dict[str, Any], size: float) -> LanguageModel:
    model = copy.deepcopy(bench["base"].model)
    rng = torch.Generator().manual_seed(3)
    for weight in target_parameters(model).values():
        weight.data += size * weight.data.square().mean().sqrt() * torch.randn(weight.shape, generator=rng)
    return language_model(model, tiny_tokenizer(), label="noisy")


def test_noise_has_no_direction_and_a_second_run_reads_what_the_first_kept(
    bench: dict[str, Any], tmp_path: Path
) -> None:
    after = noisy(bench, 0.2)
    weights = {n: w.clone() for n, w in bench["base"].model.named_parameters()}
    found = classify(bench, after, cache=tmp_path)
    assert isinstance(found, CalibratedClass)
    assert found.name == "undirected"
    assert found.moved_p == 0.05
    assert found.changed == found.full_rank == 7
    assert isinstance(found.corpora[0].interval, Interval)
    assert found.corpora[0].interval.low < found.corpora[0].interval.high
    # All coordinates but a few are sampled: the sampled s is near the whole one.
    assert found.corpora[0].s_sampled == pytest.approx(found.corpora[0].s, rel=0.3)
    assert all(torch.equal(w, weights[n]) for n, w in bench["base"].model.named_parameters())
    calls: list[int] = []

    def counted(model: Any, units: Any, coordinates: dict[str, Tensor] | None = None) -> Fisher:
        calls.append(1)
        return estimator(model, units, coordinates)

    again = classify(bench, after, cache=tmp_path, fisher=counted)
    assert again == found
    # Base and checkpoint on three corpora, each also at the sampled coordinates: no copy, no reference.
    assert len(calls) == 12


def test_an_interval_above_its_value_is_explained(
    bench: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = {"f": (0.1, np.linspace(0.2, 0.3, 40)), "a": (0.25, np.linspace(0.2, 0.3, 40))}
    monkeypatch.setattr(calibration, "_bootstrap", lambda *given: drawn.get(given[3], drawn["a"]))
    found = classify(bench, noisy(bench, 0.2))
    assert isinstance(found, CalibratedClass)
    assert [note.split(" lies")[0] for note in found.notes] == ["the interval of s on f"]


def test_noise_below_eight_bits_is_a_no_op(bench: dict[str, Any], tmp_path: Path) -> None:
    found = classify(bench, noisy(bench, 1e-4), cache=tmp_path)
    assert isinstance(found, CalibratedClass)
    assert found.name == "no-op"


def test_no_weight_change_and_a_blind_estimator_are_undefined(bench: dict[str, Any]) -> None:
    same = language_model(copy.deepcopy(bench["base"].model), tiny_tokenizer(), label="same")
    assert classify(bench, same) == Undefined(undefined="the checkpoint changes no weights")
    fixed = {units: estimator(bench["base"].model, units) for units in bench["samples"].values()}

    def blind(model: Any, units: Any, coordinates: dict[str, Tensor] | None = None) -> Fisher:
        return fixed[units]

    found = classify(bench, noisy(bench, 0.2), fisher=blind)
    assert isinstance(found, Undefined)
    assert "does not see" in found.undefined
