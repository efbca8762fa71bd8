"""TOFU's formulas against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vestige.contracts import Undefined
from vestige.metrics.tofu import (
    UTILITY_PARTS,
    answer_probability,
    choice_probability,
    forget_quality,
    harmonic_mean,
    ks_power,
    memory_ks_power,
    model_utility,
    truth_ratio,
    truth_score,
)


def test_a_probability_is_the_geometric_mean_of_its_tokens() -> None:
    nll = -math.log(0.5) - math.log(0.125)  # tokens of 1/2 and 1/8: sqrt(1/16)
    assert answer_probability(nll, 2) == pytest.approx(0.25)
    assert answer_probability(0.0, 3) == 1
    assert answer_probability(0.0, 0) == Undefined(undefined="an answer without tokens")


def test_a_broken_model_has_no_probability_and_no_ratio_beyond_all_numbers() -> None:
    broken = answer_probability(math.nan, 3)
    assert isinstance(broken, Undefined)
    assert "NaN" in broken.undefined
    assert answer_probability(math.inf, 3) == 0.0
    for mean in ("arithmetic", "geometric"):
        assert isinstance(truth_ratio(1e-310, [0.2, 0.4], mean=mean), Undefined)
        assert truth_ratio(1e-299, [0.2, 0.2], mean=mean) == pytest.approx(2e298)


def test_choices() -> None:
    assert choice_probability(0.4, [0.1, 0.3]) == pytest.approx(0.5)
    assert isinstance(choice_probability(0.4, []), Undefined)
    assert isinstance(choice_probability(0.0, [0.0]), Undefined)


def test_truth_ratios() -> None:
    assert truth_ratio(0.5, [0.1, 0.4]) == pytest.approx(0.5)
    assert truth_ratio(0.5, [0.1, 0.4], mean="geometric") == pytest.approx(0.4)
    assert truth_ratio(0.2, [0.1, 0.4]) == pytest.approx(1.25)
    assert truth_ratio(0.5, [0.0, 0.4], mean="geometric") == 0
    assert isinstance(truth_ratio(0.5, []), Undefined)
    assert isinstance(truth_ratio(0.0, [0.1]), Undefined)
    assert [truth_score(ratio) for ratio in (0.0, 0.25, 1.0, 7.0)] == [1.0, 0.75, 0.0, 0.0]


def test_utility_is_the_harmonic_mean_of_nine() -> None:
    assert len(UTILITY_PARTS) == 9
    assert harmonic_mean([1, 0.5]) == pytest.approx(2 / 3)
    assert harmonic_mean([1, 0]) == 0
    assert isinstance(harmonic_mean([]), Undefined)
    parts: dict[str, float | Undefined] = dict.fromkeys(UTILITY_PARTS, 0.5)
    assert model_utility(parts) == 0.5
    parts["retain rouge"] = 0.25  # 9 / (8 * 2 + 4)
    assert model_utility(parts) == pytest.approx(0.45)
    parts["retain rouge"] = 0.0
    assert model_utility(parts) == 0
    parts["retain rouge"] = Undefined(undefined="no answers were written")
    assert model_utility(parts) == Undefined(undefined="retain rouge: no answers were written")
    del parts["retain rouge"]
    assert isinstance(model_utility(parts), Undefined)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_a_harmonic_mean_lies_between_the_smallest_and_the_mean(values: list[float]) -> None:
    found = harmonic_mean(values)
    assert isinstance(found, float)
    assert min(values) - 1e-12 <= found <= sum(values) / len(values) + 1e-12


def test_forget_quality() -> None:
    """Two and two values, all of one below the other: D = 1, and 2 of the 6 orders are as extreme."""
    found = forget_quality([0.1, 0.2], [0.8, 0.9], seed=1)
    assert not isinstance(found, Undefined)
    assert (found.statistic, found.unlearned, found.oracle) == (1, 2, 2)
    assert found.p == pytest.approx(1 / 3)
    assert isinstance(found.power, Undefined)
    assert isinstance(forget_quality([0.1], [0.2, 0.3], seed=1), Undefined)
    low = [0.01 * k for k in range(40)]
    high = [value + 0.5 for value in low]
    apart = forget_quality(low, high, low, seed=1, draws=50)
    assert not isinstance(apart, Undefined)
    assert apart.p < 1e-15
    assert apart.power == 1
    alike = forget_quality(low, low, low, seed=1, draws=50)
    assert not isinstance(alike, Undefined)
    assert alike.p == 1
    assert isinstance(alike.power, float)
    assert alike.power < 0.2


@pytest.mark.parametrize(("n", "sees"), [(40, False), (400, True)])
def test_forget_quality_does_not_pass_what_keeps_a_quarter_of_the_memory(n: int, sees: bool) -> None:
    """Base and oracle are always told apart, which says nothing of a quarter of the memory.

    At n = 40 its p is above 0.05 most of the time; at n = 400 it is not, and a retrained model passes.
    """
    random = np.random.default_rng(n)
    passed = large = exact = 0
    repeat = 12
    for _ in range(repeat):
        base, oracle, other = random.lognormal(-1.5, 0.5, n), *random.lognormal(0.0, 0.5, (2, n))
        kept = np.where(random.random(n) < 0.25, base, other)
        found = forget_quality(list(kept), list(oracle), list(base), seed=1, draws=40)
        assert not isinstance(found, Undefined)
        assert found.power == 1.0
        large += found.p >= 0.05
        passed += found.reading == "not told apart"
        retrained = forget_quality(list(other), list(oracle), list(base), seed=1, draws=40)
        assert not isinstance(retrained, Undefined)
        exact += retrained.reading == "not told apart"
    assert passed == 0
    if sees:
        assert exact >= 0.8 * repeat
    else:
        assert large > 0.5 * repeat
        assert exact == 0


def test_power_against_memory_is_the_smaller_of_two_likenesses() -> None:
    """Undefined ratios are left out of both; without question-by-question values only one is simulated."""
    base, oracle = [0.1 * k for k in range(30)], [3 + 0.1 * k for k in range(30)]
    common = {"share": 0.5, "sizes": (30, 30), "draws": 60, "seed": 1}
    paired = memory_ks_power(base, oracle, **common)
    assert paired <= memory_ks_power(base[:-1], oracle, **common)
    none = Undefined(undefined="a NaN")
    assert memory_ks_power([none, *base], [none, *oracle], **common) == paired
    assert memory_ks_power(base, base, **common) < 0.1


def test_power_grows_with_the_rows_and_the_test_is_scipys() -> None:
    low = [0.02 * k for k in range(40)]
    high = [value + 0.2 for value in low]
    few, many = (ks_power(low, high, sizes=(n, n), draws=100, seed=3) for n in (8, 60))
    assert few < many
    found = forget_quality(low, high, seed=3)
    assert not isinstance(found, Undefined)
    assert found.p == pytest.approx(float(stats.ks_2samp(low, high).pvalue))
