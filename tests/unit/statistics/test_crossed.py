"""The two-way variance of a mean over seeds x units, and the coverage of its interval."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.contracts import Floats, Undefined
from vestige.statistics.crossed import CrossedMean, Part, combined_quantile, crossed_mean


def drawn(random: np.random.Generator, seeds: int, units: int, mix: tuple[float, float, float]) -> Floats:
    """A table around 0 with these deviations of seeds, units and their interaction."""
    seed, unit, both = mix
    return np.asarray(
        seed * random.normal(size=(seeds, 1))
        + unit * random.normal(size=(1, units))
        + both * random.normal(size=(seeds, units))
    )


def crossed(values: Floats, weights: Floats | None = None) -> CrossedMean:
    found = crossed_mean(values, weights)
    assert isinstance(found, CrossedMean)
    return found


def test_a_complete_table_gives_the_two_way_analysis_of_variance() -> None:
    table = drawn(np.random.default_rng(0), 4, 6, (1.0, 0.5, 0.3)) + 2
    found = crossed(table)
    rows, columns = table.mean(axis=1), table.mean(axis=0)
    residual = table - rows[:, None] - columns + table.mean()
    assert found.estimate == pytest.approx(table.mean())
    assert found.seed.variance == pytest.approx(rows.var(ddof=1) / 4)
    assert found.unit.variance == pytest.approx(columns.var(ddof=1) / 6)
    assert found.interaction == pytest.approx((residual**2).sum() / 15 / 24)
    assert (found.seed.df, found.unit.df) == (pytest.approx(3), pytest.approx(5))
    assert found.variance == pytest.approx(found.seed.variance + found.unit.variance - found.interaction)


def test_the_order_of_seeds_changes_nothing_to_the_last_bit() -> None:
    random = np.random.default_rng(1)
    table = drawn(random, 5, 7, (1.0, 1.0, 1.0))
    table[random.random(table.shape) < 0.2] = np.nan
    assert crossed(table) == crossed(table[[3, 0, 4, 2, 1]])


def test_four_units_copied_to_ten_seeds_tell_as_much_as_at_one_seed() -> None:
    units = np.array([0.1, 0.3, 0.2, 0.5])
    two, ten = crossed(np.tile(units, (2, 1))), crossed(np.tile(units, (10, 1)))
    alone = units.std(ddof=1) / 2
    for found in (two, ten):
        assert found.variance**0.5 == pytest.approx(alone)
        assert found.half_width(0.975) == pytest.approx(3.18245 * alone, rel=1e-4)  # t, 3 degrees of freedom


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("units", [2, 4, 10, 40])
def test_the_95_percent_interval_covers(seeds: int, units: int) -> None:
    """At least 92 % in the mixes that are hardest: one source alone, both alike, mostly interaction.

    Satterthwaite's degrees of freedom cover 88 % at two seeds and forty units.
    """
    random = np.random.default_rng([seeds, units])
    for mix in ((1.0, 0.0, 0.0), (seeds**0.5, units**0.5, 0.0), (1.0, 0.1, 1.0)):
        tables = [crossed(drawn(random, seeds, units, mix)) for _ in range(400)]
        hits = np.mean([abs(found.estimate) <= found.half_width(0.975) for found in tables])
        assert hits >= 0.92, mix


def test_missing_cells_and_weights_leave_the_variance_unbiased() -> None:
    """Two bundles, one of them absent at a seed, units of several sizes: mean estimated = true variance."""
    random = np.random.default_rng(2)
    mix = (0.5, 1.0, 0.7)
    weights = np.tile([1.0, 2.0, 3.0, 1.0, 1.0, 4.0], (3, 1))
    weights[2, 3:] = 0
    share = weights / weights.sum()
    truth = (
        mix[0] ** 2 * (share.sum(axis=1) ** 2).sum()
        + mix[1] ** 2 * (share.sum(axis=0) ** 2).sum()
        + mix[2] ** 2 * (share**2).sum()
    )
    tables = [drawn(random, 3, 6, mix) for _ in range(2000)]
    found = [crossed(np.where(weights > 0, table, np.nan), weights) for table in tables]
    assert found[0] == crossed(tables[0], weights)
    sums = [item.seed.variance + item.unit.variance - item.interaction for item in found]
    assert np.mean(sums) == pytest.approx(truth, rel=0.06)  # three standard errors
    hits = np.mean([abs(item.estimate) <= item.half_width(0.975) for item in found])
    assert hits >= 0.93


def test_units_that_never_recur_leave_the_spread_of_seeds() -> None:
    table = np.array([[1.0, 3.0, np.nan, np.nan], [np.nan, np.nan, 2.0, 6.0]])
    found = crossed(table)
    assert found.variance == pytest.approx(np.var([2, 4], ddof=1) / 2)
    turned = crossed(table.T)
    assert turned.variance == pytest.approx(found.variance)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ([[0.1, 0.2]], "one training run: how another would come out is not known"),
        ([[0.1, 0.2], [np.nan, np.nan]], "one training run"),
        ([[0.1], [0.2]], "one unit"),
        ([[0.1, np.nan], [0.2, 0.3]], "share too few units"),
    ],
)
def test_what_cannot_be_told_is_undefined(table: list[list[float]], reason: str) -> None:
    found = crossed_mean(table)
    assert isinstance(found, Undefined)
    assert reason in found.undefined


def test_impossible_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        crossed_mean([[np.inf, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="weights"):
        crossed_mean(np.zeros((2, 2)), -np.ones((2, 2)))
    with pytest.raises(ValueError, match="at least one part"):
        combined_quantile([], 0.975)


def test_the_combined_quantile_lies_between_its_parts() -> None:
    one, many = Part(1.0, 1), Part(3.0, 100)
    assert combined_quantile([one, many], 0.975) == pytest.approx((12.7062 + 3 * 1.98397) / 4, rel=1e-4)
    assert combined_quantile([Part(0.0, 1), Part(0.0, 9)], 0.975) == pytest.approx(12.7062, rel=1e-4)
