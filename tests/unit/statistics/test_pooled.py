"""Units pooled over bundles."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.contracts import Interval, Undefined
from vestige.statistics import Cell, pooled_units, seed_averaged


def grid(bundles: int = 3, units: int = 4, seeds: int = 2) -> list[Cell]:
    rng = np.random.default_rng(0)
    return [
        Cell(str(seed), f"{bundle:02d}", rng.normal(0.1, 1, units))
        for seed in range(seeds)
        for bundle in range(1, bundles + 1)
    ]


def pooled(cells: list[Cell], draws: int = 400, view: str = "F"):  # type: ignore[no-untyped-def]
    return pooled_units(cells, view=view, condition="the trained checkpoints", draws=draws)


def test_seeds_are_averaged_inside_a_unit_before_bundles_are() -> None:
    """Bundle 01 at two seeds counts once; bundle 02, of one seed and one unit, counts as much."""
    cells = [
        Cell("17", "01", np.array([1.0, 3.0])),
        Cell("42", "01", np.array([3.0, 5.0])),
        Cell("17", "02", np.array([9.0])),
    ]
    assert {name: item.tolist() for name, item in seed_averaged(cells).items()} == {"01": [2, 4], "02": [9]}
    found = pooled(cells)
    assert found.by_bundle == {"01": 3.0, "02": 9.0}
    assert (found.estimate, found.units, found.bundles) == (6.0, 3, 2)
    assert found.unit.estimate == pytest.approx(6.0)


def test_unit_bootstrap_is_the_plain_one_where_bundles_have_equal_numbers() -> None:
    cells = grid()
    found = pooled(cells)
    gains = np.concatenate(list(seed_averaged(cells).values()))
    drawn = np.random.default_rng(301).integers(0, 12, (400, 12))
    np.testing.assert_allclose(found.unit.draws_values, gains[drawn].mean(axis=1), atol=1e-14)
    interval = found.unit.interval("x")
    assert isinstance(interval, Interval)
    assert interval.kind == "unit bootstrap, units of all bundles drawn together, percentile"
    low, high = np.quantile(gains[drawn].mean(axis=1), [0.025, 0.975])
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


def test_bundle_then_unit_variance_is_the_sum_of_both_levels() -> None:
    cells = grid(seeds=1)
    gains = np.stack(list(seed_averaged(cells).values()))
    expected = gains.mean(axis=1).var() / 3 + gains.var(axis=1).mean() / 12
    found = pooled(cells, draws=20_000)
    assert isinstance(found.bundle, Interval)
    assert (found.bundle.seed, found.bundle.draws) == (401, 20_000)
    # A percentile interval of 3.92 standard deviations where the draws are near normal.
    assert (found.bundle.high - found.bundle.low) / 3.92 == pytest.approx(np.sqrt(expected), rel=0.08)


def test_one_bundle_has_no_interval_over_bundles_and_one_unit_none_at_all() -> None:
    found = pooled([Cell("17", "01", np.array([0.5]))])
    assert found.estimate == 0.5
    assert isinstance(found.bundle, Undefined)
    assert isinstance(found.unit.interval("x"), Undefined)


def test_views_draw_apart() -> None:
    cells = grid()
    assert not np.array_equal(pooled(cells).unit.draws_values, pooled(cells, view="G").unit.draws_values)


def test_a_bundle_whose_units_differ_between_seeds_is_refused() -> None:
    with pytest.raises(ValueError, match="bundle 01 needs the same units"):
        seed_averaged([Cell("17", "01", np.ones(2)), Cell("42", "01", np.ones(3))])
    with pytest.raises(ValueError, match="at least one cell"):
        seed_averaged([])
