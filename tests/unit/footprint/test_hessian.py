"""The Hessian diagonal against the exact one by double loops, its probes, and what it must restore."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_lm import tiny_llama

from vestige.data.corpora import TokenSequence
from vestige.errors import InputError
from vestige.footprint.hessian import hessian_diagonal, noise_floor, probe
from vestige.footprint.passes import logits_of, padded, sequence_losses
from vestige.footprint.shifts import relative_shift
from vestige.footprint.world import World
from vestige.models.projections import target_parameters

KEY: dict[str, Any] = {"seed": 3, "corpus": "forget", "subset": 0}


def sequences(n: int, seed: int = 0) -> list[TokenSequence]:
    rng = np.random.default_rng(seed)
    return [
        TokenSequence((1, *(int(i) for i in rng.integers(3, 40, rng.integers(4, 9)))), str(i), 0, "")
        for i in range(n)
    ]


def one_target(model: Any) -> dict[str, torch.nn.Parameter]:
    """A small T: the value projection of the first block, (16, 32)."""
    return {"v": target_parameters(model)["model.layers.0.self_attn.v_proj.weight"]}


def exact_diagonal(model: Any, weight: torch.nn.Parameter, units: list[TokenSequence]) -> torch.Tensor:
    """d^2 L / d w_i^2: the diagonal of every whole Hessian, one row an entry; the mean over sequences."""
    total = torch.zeros_like(weight)
    model.requires_grad_(False)
    weight.requires_grad_(True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        for unit in units:
            ids, mask = padded([unit])
            loss = sequence_losses(logits_of(model, ids, mask), ids, mask, "mean").sum()
            (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
            size = weight.numel()
            every = torch.eye(size, dtype=weight.dtype).view(size, *weight.shape)
            (rows,) = torch.autograd.grad(gradient, weight, grad_outputs=every, is_grads_batched=True)
            total += rows.view(size, size).diagonal().view(weight.shape)
    return total.detach() / len(units)


@pytest.fixture(scope="module")
def small() -> tuple[Any, dict[str, torch.nn.Parameter], list[TokenSequence], torch.Tensor]:
    model = tiny_llama(layers=1, dtype="float64")
    units = sequences(2)
    targets = one_target(model)
    return model, targets, units, exact_diagonal(model, targets["v"], units)


def test_error_shrinks_with_the_square_root_of_probes(small: Any) -> None:
    model, targets, units, exact = small
    errors = {}
    for probes in (4, 16, 64):
        found = hessian_diagonal(model, targets, units, probes=probes, **KEY)["v"]
        errors[probes] = float((found - exact).norm())
    # 512 entries average out, so that the ratio of norms is near the square root of 4 and of 16.
    assert errors[4] / errors[16] == pytest.approx(2, rel=0.2)
    assert errors[4] / errors[64] == pytest.approx(4, rel=0.2)


def test_differences_agree_with_exact_products(small: Any) -> None:
    model, targets, units, _ = small
    exact = hessian_diagonal(model, targets, units, probes=2, **KEY)["v"]
    found = hessian_diagonal(model, targets, units, probes=2, method="finite_difference", eps=1e-4, **KEY)[
        "v"
    ]
    # Llama's norms are float32 inside: 6e-8 in a gradient over a step of 2e-4.
    assert torch.allclose(found, exact, rtol=1e-3, atol=1e-3)


def test_unequal_last_groups_count_by_their_sequences(small: Any) -> None:
    model, targets, _, _ = small
    units = sequences(3, seed=1)
    whole = hessian_diagonal(model, targets, units, probes=1, group_size=2, **KEY)["v"]
    first = hessian_diagonal(model, targets, units[:2], probes=1, group_size=2, **KEY)["v"]
    signs = torch.from_numpy(probe((16, 32), 3, "forget", 0, 1, 0, "v").astype(float))
    ids, mask = padded(units[2:])
    model.requires_grad_(False)
    weight = targets["v"].requires_grad_(True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = sequence_losses(logits_of(model, ids, mask), ids, mask, "mean").sum()
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        (product,) = torch.autograd.grad((gradient * signs).sum(), weight)
    assert torch.allclose(whole, (2 * first + signs * product) / 3, rtol=1e-9, atol=1e-12)


def test_batches_and_processes_see_the_same_probes(small: Any) -> None:
    model, targets, _, _ = small
    units = sequences(5, seed=2)
    whole = hessian_diagonal(model, targets, units, probes=1, group_size=2, **KEY)["v"]
    one_by_one = hessian_diagonal(model, targets, units, probes=1, group_size=2, batch_tokens=1, **KEY)["v"]
    assert torch.allclose(whole, one_by_one, rtol=1e-9, atol=1e-12)

    class Part(World):
        """A rank whose sums are not sent anywhere."""

        def total(self, sums: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return sums

    ranks = [
        hessian_diagonal(model, targets, units, probes=1, group_size=2, world=Part(rank, 2), **KEY)["v"]
        for rank in range(2)
    ]
    assert torch.allclose(ranks[0] + ranks[1], whole, rtol=1e-9, atol=1e-12)


def test_an_unchanged_model_shifts_by_exactly_nothing() -> None:
    model = tiny_llama()
    same = copy.deepcopy(model)
    units = sequences(3)
    found = [
        hessian_diagonal(each, target_parameters(each), units, probes=1, **KEY) for each in (model, same)
    ]
    assert relative_shift(*found) == 0
    targets = target_parameters(model)
    floor = noise_floor(model, targets, units, seeds=(1, 2), probes=1, corpus="forget", subset=0)
    assert 1 < floor < 200


def test_probes_depend_on_their_key_alone_and_are_fair() -> None:
    drawn = probe((50, 41), 1, "forget", 0, 0, 0, "w")
    assert drawn.dtype == np.int8
    assert set(np.unique(drawn)) == {-1, 1}
    assert np.array_equal(drawn, probe((50, 41), 1, "forget", 0, 0, 0, "w"))
    assert not np.array_equal(drawn, probe((50, 41), 1, "forget", 0, 0, 1, "w"))
    # 2050 fair signs: 5 standard deviations.
    assert abs(drawn.mean()) < 5 / math.sqrt(drawn.size)


@pytest.mark.parametrize("method", ["hvp", "finite_difference"])
def test_everything_touched_is_restored(method: Any) -> None:
    model = tiny_llama(dtype="bfloat16")
    model.train()
    before = {name: value.clone() for name, value in model.named_parameters()}
    asked = {name: value.requires_grad for name, value in model.named_parameters()}
    hessian_diagonal(model, one_target(model), sequences(2), probes=1, method=method, **KEY)
    assert model.training
    for name, value in model.named_parameters():
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, before[name])
        assert value.requires_grad == asked[name]


def test_a_step_that_bfloat16_rounds_away_is_refused() -> None:
    model = tiny_llama(dtype="bfloat16", spread=0.2)
    with torch.no_grad():
        one_target(model)["v"].fill_(1.0)
    with pytest.raises(InputError, match="moves by it"):
        hessian_diagonal(
            model,
            one_target(model),
            sequences(1),
            probes=1,
            method="finite_difference",
            step_dtype=torch.bfloat16,
            **KEY,
        )
    lifted = hessian_diagonal(
        model, one_target(model), sequences(1), probes=1, method="finite_difference", **KEY
    )["v"]
    assert torch.isfinite(lifted).all()
    assert lifted.abs().sum() > 0


def test_nothing_to_measure_is_an_error() -> None:
    model = tiny_llama(layers=1)
    with pytest.raises(ValueError, match="needed sequences"):
        hessian_diagonal(model, one_target(model), [], **KEY)
