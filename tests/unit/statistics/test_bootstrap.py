"""Draws, intervals and their records; the decision rule's false acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.contracts import Interval, RowTerms, Undefined
from vestige.metrics import progress_terms
from vestige.statistics import (
    bootstrap_rows,
    bootstrap_two_views,
    bootstrap_units,
    bootstrap_units_two_views,
    decide,
    difference,
    estimate,
    mean_of,
    minimum_detectable,
    ratio_of,
    row_counts,
    value_of,
)


def normal(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**32), st.integers(1, 61))
def test_chunking_does_not_change_the_drawn_rows(n: int, draws: int, seed: int, chunk: int) -> None:
    found = np.concatenate(list(row_counts(n, draws, seed, chunk)))
    rows = np.random.default_rng(seed).integers(0, n, (draws, n))
    expected = np.stack([np.bincount(drawn, minlength=n) for drawn in rows])
    np.testing.assert_array_equal(found, expected)
    assert (found.sum(axis=1) == n).all()


def test_chunking_does_not_change_the_drawn_rows_across_the_default_block() -> None:
    blocks = list(row_counts(50_000, 85, 3))
    assert len(blocks) > 1
    whole = np.concatenate(list(row_counts(50_000, 85, 3, 85)))
    np.testing.assert_array_equal(np.concatenate(blocks), whole)


@pytest.mark.parametrize(("n", "draws"), [(-1, 10), (5, 0)])
def test_impossible_draws_are_refused(n: int, draws: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        next(row_counts(n, draws, 1))


def test_all_statistics_share_the_draws() -> None:
    values = normal(30)
    found = bootstrap_rows({"a": mean_of(values), "b": mean_of(3 * values + 1)}, draws=300, seed=1)
    np.testing.assert_allclose(found["b"].draws_values, 3 * found["a"].draws_values + 1, rtol=0, atol=1e-13)
    alone = bootstrap_rows({"b": mean_of(3 * values + 1)}, draws=300, seed=1)["b"]
    np.testing.assert_allclose(found["b"].draws_values, alone.draws_values, rtol=0, atol=1e-13)


def test_estimate_is_the_mean_to_the_last_bit() -> None:
    values = normal(10_001)
    assert bootstrap_rows({"mean": mean_of(values)}, draws=2, seed=1)["mean"].estimate == np.mean(values)
    assert value_of(mean_of(values)) == np.mean(values)


def test_difference_of_two_statistics_is_paired() -> None:
    a, b = normal(25, 1), normal(25, 2)
    found = bootstrap_rows(
        {"d": difference(mean_of(a), mean_of(b)), "direct": mean_of(a - b)}, draws=200, seed=1
    )
    np.testing.assert_allclose(found["d"].draws_values, found["direct"].draws_values, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="25 and 24"):
        difference(mean_of(a), mean_of(b[1:]))


def test_undefined_resamples_are_counted_and_left_out() -> None:
    # Only row 0 has a denominator: a draw without it is undefined, with probability (2/3)^3.
    item = ratio_of([1.0, 1.0, 1.0], [1.0, 0.0, 0.0], above=0.0, undefined="nothing to divide by")
    result = bootstrap_rows({"r": item}, draws=2000, seed=1)["r"]
    assert result.undefined_share == np.isnan(result.draws_values).mean()
    assert result.undefined_share == pytest.approx(8 / 27, abs=0.03)  # three standard errors
    defined = result.draws_values[~np.isnan(result.draws_values)]
    assert (result.low, result.high) == tuple(np.quantile(defined, [0.025, 0.975]))
    interval = result.interval("these rows")
    assert isinstance(interval, Interval)
    assert interval.kind == (
        f"row bootstrap, percentile, {result.undefined_share:.1%} of the draws undefined and left out"
    )


def test_statistic_without_value_is_undefined_with_its_reason() -> None:
    result = bootstrap_rows({"p": progress_terms([0.0, 0.0], [0.1, 0.2])}, draws=50, seed=1)["p"]
    assert result.undefined_share == 1.0
    record = estimate(result, condition="these rows")
    assert str(record.value) == "undefined: displacement below 1e-9"
    assert isinstance(record.row, Undefined)
    assert isinstance(minimum_detectable(result), Undefined)


def test_no_rows_and_one_row_have_no_interval() -> None:
    empty = bootstrap_rows({"m": mean_of([])}, draws=10, seed=1)["m"]
    assert str(empty.value) == str(empty.interval("x")) == "undefined: no rows"
    assert str(bootstrap_units({"m": mean_of([])}, [], draws=10, seed=1)["m"].value) == "undefined: no rows"
    one = bootstrap_rows({"m": mean_of([0.5])}, draws=10, seed=1)["m"]
    assert one.value == 0.5
    assert str(one.interval("x")) == "undefined: an interval needs at least two rows, there is one"
    unit = bootstrap_units({"m": mean_of([0.5, 0.7])}, ["a", "a"], draws=10, seed=101)["m"]
    assert str(unit.interval("x")) == "undefined: an interval needs at least two units, there is one"


def test_record_states_kind_level_draws_seed_and_condition() -> None:
    values, units = normal(12), list("aabbccddeeff")
    row = bootstrap_rows({"m": mean_of(values)}, draws=100, seed=1, level=0.9)["m"]
    unit = bootstrap_units({"m": mean_of(values)}, units, draws=100, seed=101, level=0.9)["m"]
    record = estimate(row, unit, condition="training seed 17", note="small")
    assert isinstance(record.row, Interval)
    assert isinstance(record.unit, Interval)
    assert (record.row.kind, record.unit.kind) == ("row bootstrap, percentile", "unit bootstrap, percentile")
    assert (record.row.level, record.row.draws, record.row.seed) == (0.9, 100, 1)
    assert (record.unit.seed, record.unit.condition) == (101, "training seed 17")
    assert (record.rows, record.units, record.note) == (12, 6, "small")
    assert record.row.low < row.estimate < record.row.high


def test_two_views_name_both_seeds_and_need_the_same_statistics() -> None:
    item = {"m": mean_of(normal(8))}
    found = bootstrap_two_views(item, item, draws=20, seed_first=1, seed_second=2)["m"]
    assert found.kind == "row bootstrap, views drawn apart with seeds 1 and 2"
    assert found.n == 16
    with pytest.raises(ValueError, match="same statistics"):
        bootstrap_two_views(item, {"other": item["m"]}, draws=20, seed_first=1, seed_second=2)
    with pytest.raises(ValueError, match="same statistics"):
        bootstrap_units_two_views(item, {}, list("abababab"), [], draws=20, seed=101)


def test_unit_bootstrap_ignores_the_order_of_rows_and_knows_unit_names_whole() -> None:
    values = normal(9)
    units = np.array(["a", "a__b", "a,b", "a", "é", "a__b", "é", "a,b", "a"])
    order = np.random.default_rng(0).permutation(9)
    first = bootstrap_units({"m": mean_of(values)}, units, draws=100, seed=101)["m"]
    second = bootstrap_units({"m": mean_of(values[order])}, units[order], draws=100, seed=101)["m"]
    assert first.n == 4
    np.testing.assert_allclose(first.draws_values, second.draws_values, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="one unit a row"):
        bootstrap_units({"m": mean_of(values)}, units[1:], draws=10, seed=101)


@pytest.mark.parametrize(
    ("terms", "message"),
    [(np.array([[np.nan]]), "finite"), (np.array([1.0]), "shape"), (np.zeros((2, 1)), "2 rows")],
)
def test_terms_that_cannot_be_summed_are_refused(terms: np.ndarray, message: str) -> None:
    items = {"good": mean_of([1.0]), "bad": RowTerms(terms, lambda sums: sums[..., 0])}
    with pytest.raises(ValueError, match=message):
        bootstrap_rows(items, draws=5, seed=1)


def test_level_must_be_a_share() -> None:
    with pytest.raises(ValueError, match="level"):
        bootstrap_rows({"m": mean_of([1.0, 2.0])}, draws=5, seed=1, level=95)


def test_row_interval_covers_the_true_mean_as_stated() -> None:
    """Coverage over 1,500 samples of 200 rows: 95 % less the known shortfall of percentiles, 3 SE = 1.7 %."""
    samples = np.random.default_rng(0).normal(size=(1500, 200))
    found = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(samples)}, draws=600, seed=1)
    covered = np.mean([result.low <= 0 <= result.high for result in found.values()])
    assert covered == pytest.approx(0.947, abs=0.017)


def test_minimum_detectable_gain_is_found_four_times_out_of_five() -> None:
    rng = np.random.default_rng(1)
    sizes = [
        minimum_detectable(bootstrap_rows({"m": mean_of(rng.normal(size=100))}, draws=600, seed=1)["m"])
        for _ in range(20)
    ]
    # Standard error 1/10, times 1.96 + 0.84; the bootstrap's is sqrt(99/100) of it.
    assert np.mean(sizes) == pytest.approx(0.2802 * np.sqrt(0.99), abs=0.015)
    truth = 0.2802
    samples = rng.normal(truth, 1, (1000, 100))
    found = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(samples)}, draws=600, seed=1)
    power = np.mean([result.low > 0 for result in found.values()])
    assert power == pytest.approx(0.8, abs=0.045)


@pytest.mark.parametrize("views", ["independent", "identical"])
def test_rule_accepts_exchangeable_gains_at_most_as_often_as_stated(views: str) -> None:
    """40 rows a view, gains exchangeable around 0: accepted at most 2.5 % + 3 standard errors of the time."""
    trials, n = 2000, 40
    rng = np.random.default_rng(17)
    gains_f = rng.laplace(scale=0.1, size=(trials, n)) * rng.choice([-1, 1], size=(trials, n))
    gains_g = gains_f if views == "identical" else rng.normal(scale=0.1, size=(trials, n))
    f = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(gains_f)}, draws=500, seed=1)
    g = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(gains_g)}, draws=500, seed=2)
    decisions = [decide(f[name].estimate, f[name].low, g[name].estimate, g[name].low, 0.0, 0.0) for name in f]
    accepted = decisions.count("accepted") / trials
    assert accepted <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / trials)
    assert decisions.count("no benefit") / trials >= (0.45 if views == "identical" else 0.7)


def test_rule_accepts_real_gains() -> None:
    """A gain of one standard deviation on 40 rows is six standard errors from 0: practically always found."""
    gains = np.random.default_rng(3).normal(0.1, 0.1, (2, 100, 40))
    f = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(gains[0])}, draws=300, seed=1)
    g = bootstrap_rows({str(j): mean_of(row) for j, row in enumerate(gains[1])}, draws=300, seed=2)
    decisions = {decide(f[j].estimate, f[j].low, g[j].estimate, g[j].low, -0.01, 0.01) for j in f}
    assert decisions == {"accepted"}
