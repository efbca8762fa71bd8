"""Replication over seeds x bundles."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.statistics import (
    Cell,
    CrossedMean,
    hierarchical_bootstrap,
    leave_one_out,
    nested_mean,
    replication,
    unit_means,
)
from vestige.statistics.hierarchical import crossed_cells


def grid(shift: float = 0.0, seed: int = 0, spread: float = 1.0) -> list[Cell]:
    rng = np.random.default_rng(seed)
    return [
        Cell(name, bundle, shift + spread * rng.normal(size=4))
        for name in ("17", "42", "99")
        for bundle in ("01", "02", "03")
    ]


def test_unit_means_weigh_rows_within_units_only() -> None:
    assert unit_means([1.0, 3.0, 10.0], ["b", "b", "a"]).tolist() == [10.0, 2.0]


def test_nested_mean_gives_every_unit_of_a_cell_and_every_bundle_equal_weight() -> None:
    cells = [
        Cell("17", "01", np.array([1.0, 2.0, 3.0])),
        Cell("17", "02", np.array([10.0])),
        Cell("42", "01", np.array([0.0])),
    ]
    assert nested_mean(cells) == pytest.approx(((2 + 10) / 2 + 0) / 2)
    assert leave_one_out(cells) == pytest.approx(
        {"seed 17": 0.0, "seed 42": 6.0, "bundle 01": 10.0, "bundle 02": 1.0}
    )


def test_leaving_out_the_only_seed_is_no_leave_one_out() -> None:
    cells = [Cell("17", bundle, np.array([value])) for bundle, value in (("01", 1.0), ("02", 2.0))]
    assert leave_one_out(cells) == {"bundle 01": 2.0, "bundle 02": 1.0}


def test_variance_is_the_sum_of_the_three_levels() -> None:
    """Closed form of the nested bootstrap variance on a balanced grid, population variances at each level."""
    cells = grid()
    gains = np.stack([cell.unit_gains for cell in cells]).reshape(3, 3, 4)
    expected = (
        gains.mean(axis=(1, 2)).var() / 3
        + gains.mean(axis=2).var(axis=1).mean() / 9
        + gains.var(axis=2).mean() / 36
    )
    result = hierarchical_bootstrap(cells, draws=40_000, seed=201)
    assert result.draws_values.var() == pytest.approx(expected, rel=0.03)  # 3 SE of a variance at 40,000
    assert result.draws_values.mean() == pytest.approx(gains.mean(), abs=3 * np.sqrt(expected / 40_000))
    assert result.estimate == pytest.approx(gains.mean())


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [*grid()[:5], Cell("99", "01", np.array([1.0, 2.0]))]
    whole = hierarchical_bootstrap(cells, draws=200, seed=201).draws_values
    monkeypatch.setattr("vestige.statistics.hierarchical._BLOCK", 100)
    np.testing.assert_array_equal(hierarchical_bootstrap(cells, draws=200, seed=201).draws_values, whole)


def test_interval_states_what_it_is() -> None:
    interval = hierarchical_bootstrap(grid(), draws=100, seed=201).interval("frozen settings")
    assert interval.kind == "hierarchical bootstrap over seeds, bundles and units, percentile"
    assert (interval.draws, interval.seed, interval.condition) == (100, 201, "frozen settings")


def test_replication_of_a_clear_gain() -> None:
    found = replication(grid(0.5, 1, 0.1), grid(0.4, 2, 0.1), [True] * 9, draws=500)
    assert found.decision == "replicates"
    assert set(found.left_out_f) == {
        "seed 17",
        "seed 42",
        "seed 99",
        "bundle 01",
        "bundle 02",
        "bundle 03",
    }
    assert (found.f.seeds, found.f.cells) == (3, 9)


def test_replication_names_infeasible_cells() -> None:
    found = replication(grid(0.5, 1, 0.1), grid(0.4, 2, 0.1), [True] * 8 + [False], draws=500)
    assert found.decision == "infeasible cell(s)"
    assert found.infeasible == ("seed 99, bundle 03",)


def test_one_view_alone_does_not_replicate() -> None:
    found = replication(grid(0.5, 1, 0.1), grid(-0.4, 2, 0.1), [True] * 9, draws=500)
    assert found.decision == "does not replicate"


def test_a_bound_at_or_below_zero_on_either_view_does_not_replicate() -> None:
    clear = grid(0.5, 1, 0.1)
    vague = [Cell(cell.seed, cell.bundle, np.array([2.0, -1.8, 2.0, -1.8])) for cell in clear]
    for f, g in ((clear, vague), (vague, clear)):
        found = replication(f, g, [True] * 9, draws=500)
        assert min(*found.left_out_f.values(), *found.left_out_g.values()) > 0
        assert found.decision == "does not replicate"


def test_a_gain_that_one_bundle_carries_does_not_replicate() -> None:
    cells = [
        Cell(cell.seed, cell.bundle, np.full(4, 0.9 if cell.bundle == "01" else -0.01)) for cell in grid()
    ]
    found = replication(cells, grid(0.4, 2, 0.1), [True] * 9, draws=500)
    assert found.left_out_f["bundle 01"] == pytest.approx(-0.01)
    assert found.decision == "does not replicate"


@pytest.mark.parametrize("bundles", [("01",), ("01", "02")])
def test_one_training_seed_is_undefined(bundles: tuple[str, ...]) -> None:
    cells = [Cell("17", bundle, np.array([0.5, 0.6])) for bundle in bundles]
    found = replication(cells, cells, [True] * len(cells), draws=50)
    assert str(found.decision) == "undefined: replication needs at least two training seeds, there is 1"
    assert "one training run" in str(found.crossed)


def test_cells_copied_to_more_seeds_do_not_narrow_the_crossed_interval() -> None:
    """Ten seeds at which the same four units gain alike tell of other units what one seed tells."""
    units = np.array([0.1, 0.3, 0.2, 0.5])
    copied = [Cell(f"{seed:02d}", "01", units) for seed in range(10)]
    few, many = crossed_cells(copied[:2]), crossed_cells(copied)
    assert isinstance(few, CrossedMean)
    assert isinstance(many, CrossedMean)
    assert many.half_width(0.975) == pytest.approx(few.half_width(0.975))
    assert many.estimate - many.half_width(0.975) < 0.01  # the four units alone: t with 3 degrees of freedom
    nested = hierarchical_bootstrap(copied, draws=500, seed=201)
    assert nested.high - nested.low < 0.4 * (2 * many.half_width(0.975))  # the published rule, as published


def test_units_that_recur_do_not_make_a_gain_of_nothing_replicate() -> None:
    """Units gain around 0, alike at each of five seeds. One view decides, the other gains for certain."""
    random = np.random.default_rng(7)
    sure = [Cell(str(seed), "01", np.full(4, 0.5) + 1e-3 * random.random(4)) for seed in range(5)]
    said = {"published": 0, "crossed": 0}
    for _ in range(300):
        units = 0.1 * random.normal(size=4)
        cells = [Cell(str(seed), "01", units + 0.02 * random.normal(size=4)) for seed in range(5)]
        found = replication(cells, sure, [True] * 5, draws=100)
        said["published"] += found.decision == "replicates"
        said["crossed"] += found.crossed == "replicates"
    assert said["crossed"] <= 0.025 * 300 + 3 * (0.025 * 0.975 * 300) ** 0.5
    assert said["published"] > 0.15 * 300  # why the crossed one stands beside it


def test_a_missing_bundle_keeps_the_weights_of_the_nested_mean() -> None:
    cells = [*grid()[:5], *grid()[6:]]
    found = crossed_cells(cells)
    assert isinstance(found, CrossedMean)
    assert found.estimate == pytest.approx(nested_mean(cells))
    assert (found.seeds, found.units, found.cells) == (3, 12, 32)
    with pytest.raises(ValueError, match="same units"):
        crossed_cells([*cells, Cell("42", "03", np.ones(2))])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([], "at least one cell"),
        ([Cell("17", "01", np.array([]))], "at least one unit"),
        ([Cell("17", "01", np.array([np.nan]))], "finite"),
        ([Cell("17", "01", np.array([0.1]))] * 2, "occurs twice"),
    ],
)
def test_impossible_grids_are_refused(cells: list[Cell], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hierarchical_bootstrap(cells, seed=201)


def test_views_must_cover_the_same_cells() -> None:
    with pytest.raises(ValueError, match="same cells"):
        replication(grid(), grid()[::-1], [True] * 9)
    with pytest.raises(ValueError, match="same cells"):
        replication(grid(), grid(), [True])
