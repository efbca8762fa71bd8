"""Relative shifts against arithmetic by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint.records import Shift
from vestige.footprint.shifts import (
    document_shifts,
    floor_share,
    grouped,
    half_width,
    interval,
    module_sums,
    relative_shift,
    role_interval,
)

Q = "model.layers.0.self_attn.q_proj.weight"
UP = "model.layers.0.mlp.up_proj.weight"
Q1 = "model.layers.1.self_attn.q_proj.weight"
BASE = {Q: torch.tensor([[3.0, 0.0]]), UP: torch.tensor([[4.0]]), Q1: torch.tensor([[0.0]])}
AFTER = {Q: torch.tensor([[3.0, 1.0]]), UP: torch.tensor([[2.0]]), Q1: torch.tensor([[2.0]])}


def test_the_linear_shift() -> None:
    assert relative_shift(BASE, AFTER, scale="linear") == pytest.approx(100 * 3 / 5)


def test_the_log_shift_by_hand() -> None:
    v = [math.log(x + 1e-5) for x in (3, 0, 4, 0)]
    w = [math.log(x + 1e-5) for x in (3, 1, 2, 2)]
    expected = 100 * math.dist(v, w) / math.hypot(*v)
    base = {name: value.double() for name, value in BASE.items()}
    after = {name: value.double() for name, value in AFTER.items()}
    assert relative_shift(base, after) == pytest.approx(expected, rel=1e-12)


def test_no_change_is_exactly_zero_and_signs_of_a_hessian_do_not_matter() -> None:
    values = {Q: torch.randn(50, 7), UP: torch.randn(3, 4)}
    assert relative_shift(values, {name: value.clone() for name, value in values.items()}) == 0.0
    assert relative_shift(values, {name: -value for name, value in values.items()}) == 0.0


def test_modules_have_their_own_shift_and_their_share_of_the_whole() -> None:
    sums = module_sums(BASE, AFTER, scale="linear")
    layers = grouped([sums], "layer")
    assert [layer.name for layer in layers] == ["0", "1"]
    assert layers[0].shift == pytest.approx(100 * math.sqrt(5) / 5)
    assert layers[0].share == pytest.approx(5 / 9)
    assert isinstance(layers[1].shift, Undefined)
    projections = {found.name: found for found in grouped([sums, sums], "projection")}
    assert projections["q"].share == pytest.approx(5 / 9)
    assert projections["up"].share == pytest.approx(4 / 9)
    assert sum(found.parameters for found in projections.values()) == 4
    modules = grouped([sums], "module")
    assert [module.name for module in modules] == [UP, Q, Q1]


def test_shares_are_undefined_where_nothing_moved() -> None:
    sums = module_sums(BASE, BASE)
    assert all(isinstance(found.share, Undefined) and found.shift == 0 for found in grouped([sums], "layer"))


def test_names_and_shapes_must_agree() -> None:
    with pytest.raises(InputError, match="measured in one model only"):
        module_sums(BASE, {Q: BASE[Q]})
    with pytest.raises(InputError, match=r"shape \(2, 2\)"):
        module_sums({Q: BASE[Q]}, {Q: torch.ones(2, 2)})


def test_half_widths() -> None:
    values = [1.0, 2.0, 4.0]
    deviation = math.sqrt(sum((value - 7 / 3) ** 2 for value in values) / 2)
    assert half_width(values) == pytest.approx(4.302653 * deviation / math.sqrt(3), rel=1e-6)
    assert half_width([2.0, 2.0]) == 0
    assert half_width([1.0]) == Undefined(undefined="one subset")
    assert interval(values, "all subsets hold the same text").half_width == Undefined(
        undefined="all subsets hold the same text"
    )


def test_a_role_is_the_plain_mean_of_its_corpora() -> None:
    role = role_interval([Shift(value=1.0, half_width=3.0), Shift(value=2.0, half_width=4.0)])
    assert (role.value, role.half_width) == (1.5, 2.5)
    why = Undefined(undefined="one subset")
    assert role_interval([Shift(value=1.0, half_width=why)]).half_width == why


def test_floor_share() -> None:
    assert floor_share({Q: torch.tensor([1e-6, 1.0, 1e-7, -2e-5])}) == 0.5


def test_documents_are_ranked_by_how_far_their_trace_moved() -> None:
    found = document_shifts(
        ["a", "b", "a"], ([1.0, 1.0, 3.0], [0.0, 0.0, 0.0]), ([4.0, 0.1, 4.0], [1.0, 1.0, 1.0])
    )
    assert [document.document for document in found] == ["b", "a"]
    assert found[1].shift == pytest.approx(100.0)
    assert found[1].units == 2
