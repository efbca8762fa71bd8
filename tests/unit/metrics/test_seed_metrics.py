"""Known answers and limits of the metrics over several seeds."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.contracts import Interval, SeedModels, Undefined
from vestige.metrics import SEED_METRICS
from vestige.metrics.several.klom import SMOOTHING, margin_divergence
from vestige.metrics.several.likelihood_ratio import likelihood_ratios
from vestige.metrics.several.membership import two_sided
from vestige.statistics.ranks import auc, permuted_auc

Tables = dict[int, dict[str, np.ndarray]]
ROWS = {"F": 40, "G": 30, "R": 50}


def logits_group(
    seeds: int, shift: float, seed: int, options: int = 4
) -> tuple[Tables, dict[str, np.ndarray]]:
    """Models whose gold logit on F and G is `shift`, with noise of size 0.3 a seed; gold is column 0."""
    rng = np.random.default_rng(seed)
    found: Tables = {}
    for place in range(seeds):
        found[place] = {}
        for view, count in ROWS.items():
            z = 0.3 * rng.normal(size=(count, options))
            z[:, 0] += 4.0 if view == "R" else shift
            found[place][view] = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return found, {view: np.zeros(count, dtype=np.intp) for view, count in ROWS.items()}


def pair(shift: float, seeds: int = 8) -> SeedModels:
    oracle, gold = logits_group(seeds, 0.0, 1)
    unlearned, _ = logits_group(seeds, shift, 2)
    return SeedModels(gold=gold, unlearned=unlearned, oracle=oracle)


@pytest.mark.parametrize("name", ["klom", "u_lira"])
def test_seven_seeds_are_too_few(name: str) -> None:
    found = SEED_METRICS.get(name).compute(pair(1.0, seeds=7))
    assert isinstance(found.value, Undefined)
    assert "at least 8" in found.value.undefined
    assert "7 and 7" in found.value.undefined
    assert found.seeds == {"unlearned": 7, "oracle": 7}
    assert isinstance(SEED_METRICS.get(name).compute(pair(1.0, seeds=8)).value, float)


@pytest.mark.parametrize("name", ["klom", "u_lira"])
def test_models_like_retrained_ones_lie_in_the_chance_band_and_others_outside(name: str) -> None:
    metric = SEED_METRICS.get(name)
    same, far = metric.compute(pair(0.0)), metric.compute(pair(2.0))
    for found in (same, far):
        assert isinstance(found.chance, Interval)
        assert found.chance.kind.startswith("chance band")
        assert found.chance.draws == 200
    assert same.chance.low <= same.value <= same.chance.high
    assert far.value > far.chance.high


def shifted(random: np.random.Generator, seeds: int, rows: int, together: bool) -> SeedModels:
    """Unlearned models whose gold margin is half a standard deviation over seeds above that of oracles.

    together: all rows of a model move alike, as with one training that came out surer; else each for itself.
    """
    gold = {view: np.zeros(rows, dtype=np.intp) for view in ROWS}

    def group(shift: float) -> Tables:
        margins = shift + np.broadcast_to(random.normal(size=(seeds, 1 if together else rows)), (seeds, rows))
        p = 1 / (1 + np.exp(-margins))
        return {seed: dict.fromkeys(ROWS, np.stack([own, 1 - own], axis=1)) for seed, own in enumerate(p)}

    return SeedModels(gold=gold, unlearned=group(0.5), oracle=group(0.0))


@pytest.mark.parametrize(
    ("name", "seeds", "together", "enough"),
    [
        ("u_lira", 8, True, False),
        ("u_lira", 24, False, True),
        ("klom", 8, True, False),
        ("klom", 8, False, False),
        ("klom", 100, False, True),
    ],
)
def test_too_few_seeds_for_half_a_standard_deviation_are_said(
    name: str, seeds: int, together: bool, enough: bool
) -> None:
    found = SEED_METRICS.get(name).compute(shifted(np.random.default_rng(seeds), seeds, 10, together))
    assert (found.power >= 0.8) == enough
    assert ("are too few" in found.note) != enough
    assert f"{seeds} unlearned models and {seeds} oracles are too few" in found.note or enough


def test_the_power_is_how_often_half_a_standard_deviation_is_seen() -> None:
    """Twelve models a side, ten rows that move each for itself: seen in about half of such comparisons."""
    random = np.random.default_rng(12)
    found = [SEED_METRICS.get("u_lira").compute(shifted(random, 12, 10, False)) for _ in range(25)]
    seen = np.mean([one.value > one.chance.high for one in found])
    # Three standard errors of a share of a half over 25.
    assert seen == pytest.approx(np.mean([one.power for one in found]), abs=0.3)
    assert 0.3 < seen < 0.8


def test_likelihood_ratio_of_far_models_is_certain() -> None:
    assert SEED_METRICS.get("u_lira").compute(pair(6.0)).value == pytest.approx(1.0, abs=1e-6)
    assert SEED_METRICS.get("u_lira").compute(pair(6.0)).beside["balanced accuracy at ratio 1"] == 1.0


def test_likelihood_ratios_change_sign_when_the_sides_change() -> None:
    rng = np.random.default_rng(3)
    u, o = rng.normal(0, 1, (9, 5)), rng.normal(1, 2, (9, 5))
    first, second = likelihood_ratios(u, o)
    swapped_o, swapped_u = likelihood_ratios(o, u)
    np.testing.assert_allclose(first, -swapped_u, atol=1e-12)
    np.testing.assert_allclose(second, -swapped_o, atol=1e-12)


def test_klom_counts_the_right_edge() -> None:
    """All oracles at the largest margin: they fill the last bin, and disjoint models have the closed form."""
    unlearned, oracle = np.zeros((8, 1)), np.ones((8, 1))
    p, q = (1 + SMOOTHING) / (1 + 20 * SMOOTHING), SMOOTHING / (1 + 20 * SMOOTHING)
    expected = p * np.log(p / q) + q * np.log(q / p)
    assert margin_divergence(unlearned, oracle)[0] == pytest.approx(expected, abs=1e-12)


def test_klom_of_equal_margins_is_0() -> None:
    values = np.random.default_rng(4).normal(size=(8, 6))
    np.testing.assert_allclose(margin_divergence(values, values), 0.0, atol=1e-15)
    assert margin_divergence(np.ones((8, 2)), np.ones((9, 2))).tolist() == [0.0, 0.0]


def test_auc_of_ties_is_a_half() -> None:
    assert auc(np.ones(5), np.ones(7)) == 0.5
    assert auc([1.0, 2.0], [1.0, 2.0]) == 0.5
    assert (auc([2.0, 3.0], [1.0]), auc([0.0], [1.0, 2.0])) == (1.0, 0.0)
    assert auc([1.0, 2.0], [1.0]) == 0.75
    drawn = permuted_auc(np.ones(12), np.arange(12) < 5, np.zeros(12), draws=20, seed=1)
    np.testing.assert_allclose(drawn, 0.5)  # nothing can vary
    with pytest.raises(ValueError, match="at least one"):
        auc([], [1.0])


def test_the_membership_band_flags_retrained_models_one_time_in_twenty_though_classes_mix_unevenly() -> None:
    """Models that saw neither view, surer of some classes than of others, which are more frequent in F.

    Pairs of any two rows put such models outside very often, pairs of one class do not.
    """
    random = np.random.default_rng(5)
    metric = SEED_METRICS.get("membership_auc")
    mix = {"F": np.repeat([0, 1, 2, 3], [24, 24, 8, 8]), "G": np.repeat([0, 1, 2, 3], [6, 6, 18, 18])}
    flagged = plain = 0
    for _ in range(200):
        sure = random.normal(size=4)
        tables = {}
        for view, gold in mix.items():
            p = 1 / (1 + np.exp(-sure[gold] - random.normal(size=len(gold))))
            tables[view] = np.repeat((1 - p)[:, None] / 3, 4, axis=1)
            tables[view][np.arange(len(gold)), gold] = p
        found = metric.compute(SeedModels(gold=mix, unlearned={17: tables}, oracle={}))
        flagged += found.value > found.chance.high
        own = [tables[view][np.arange(len(gold)), gold] for view, gold in mix.items()]
        z = (auc(*own) - 0.5) / np.sqrt((64 + 48 + 1) / (12 * 64 * 48))
        plain += abs(z) > 1.96
    assert flagged / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert plain / 200 > 0.3


def test_rows_that_were_memorised_lie_outside_the_membership_band() -> None:
    """The band can be left: one standard deviation on F alone."""
    random = np.random.default_rng(6)
    gold = {"F": np.tile([0, 1], 30), "G": np.tile([0, 1], 20)}
    tables = {}
    for view, column in gold.items():
        p = 1 / (1 + np.exp(-random.normal(size=len(column)) - (view == "F")))
        tables[view] = np.where(np.arange(2) == column[:, None], p[:, None], 1 - p[:, None])
    found = SEED_METRICS.get("membership_auc").compute(
        SeedModels(gold=gold, unlearned={1: tables}, oracle={})
    )
    assert found.value > found.chance.high
    assert "1 of 1 seeds outside" in found.note


def test_membership_without_a_shared_class_is_undefined() -> None:
    gold = {"F": np.zeros(4, dtype=np.intp), "G": np.ones(4, dtype=np.intp)}
    tables = {1: {view: np.full((4, 2), 0.5) for view in gold}}
    found = SEED_METRICS.get("membership_auc").compute(SeedModels(gold=gold, unlearned=tables, oracle={}))
    assert isinstance(found.value, Undefined)
    assert "no class has rows in both" in found.value.undefined


def test_membership_is_two_sided_and_says_its_numbers() -> None:
    seen = pair(0.0)
    # F surer than G, and G surer than F, are equally told apart.
    for order in (1, -1):
        tables = {
            17: {
                view: np.stack([np.full(n, p), np.full(n, 1 - p)], axis=1)
                for view, n, p in (("F", 40, 0.5 + 0.2 * order), ("G", 30, 0.5), ("R", 50, 0.9))
            }
        }
        found = SEED_METRICS.get("membership_auc").compute(
            SeedModels(gold=seen.gold, unlearned=tables, oracle={})
        )
        assert found.value == 1.0
        assert found.by_seed == {"17": 1.0 if order == 1 else 0.0}
        assert "40 members (F), 30 non-members" in found.note
        assert "1 of 1 seeds outside" in found.note
        assert found.rows == {"F": 40, "G": 30}
    np.testing.assert_allclose(two_sided(np.array([0.3, 0.7])), 0.7)
    chance = SEED_METRICS.get("membership_auc").compute(seen)
    assert chance.chance.low == 0.5
    assert set(chance.beside) == {"oracle"}


def test_oracle_as_unlearned_has_tug_of_war_1() -> None:
    oracle, gold = logits_group(3, 0.2, 1)
    found = SEED_METRICS.get("tow").compute(SeedModels(gold=gold, unlearned=oracle, oracle=oracle))
    assert found.value == 1.0
    assert found.by_seed == {"0": 1.0, "1": 1.0, "2": 1.0}


def test_tug_of_war_of_known_accuracies() -> None:
    """F: 0.5 against 0, G: 0 against 0, R: 0.9 against 1: (1 - 0.5) x 1 x 0.9."""

    def table(count: int, right: int) -> np.ndarray:
        return np.array([[0.9, 0.1]] * right + [[0.1, 0.9]] * (count - right))

    gold = {view: np.zeros(10, dtype=np.intp) for view in ("F", "G", "R")}
    unlearned = {1: {"F": table(10, 5), "G": table(10, 0), "R": table(10, 9)}}
    oracle = {1: {"F": table(10, 0), "G": table(10, 0), "R": table(10, 10)}}
    found = SEED_METRICS.get("tow").compute(SeedModels(gold=gold, unlearned=unlearned, oracle=oracle))
    assert found.value == pytest.approx(0.45, abs=1e-15)


def test_zrf_of_the_untrained_model_itself_is_1_and_of_a_disjoint_one_0() -> None:
    gold = {view: np.zeros(3, dtype=np.intp) for view in ("F", "G", "R")}
    sure = {1: {view: np.tile([1.0, 0.0], (3, 1)) for view in gold}}
    other = {1: {view: np.tile([0.0, 1.0], (3, 1)) for view in gold}}
    metric = SEED_METRICS.get("zrf")
    same = metric.compute(SeedModels(gold=gold, unlearned=sure, oracle=other, random=sure))
    assert (same.value, same.beside["oracle"]) == (1.0, pytest.approx(0.0, abs=1e-9))
    missing = metric.compute(SeedModels(gold=gold, unlearned=sure, oracle=other))
    assert missing.value == Undefined(undefined="no random model of the same seed")


@pytest.mark.parametrize("name", ["klom", "u_lira", "membership_auc", "tow", "zrf"])
def test_no_rows_is_undefined(name: str) -> None:
    full = pair(0.0)
    empty = {
        role: {seed: {view: p[:0] for view, p in t.items()} for seed, t in getattr(full, role).items()}
        for role in ("unlearned", "oracle")
    }
    gold = {view: column[:0] for view, column in full.gold.items()}
    found = SEED_METRICS.get(name).compute(SeedModels(gold=gold, **empty, random=empty["oracle"]))
    assert found.value == Undefined(undefined="no rows")
