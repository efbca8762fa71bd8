"""Each several-seed metric against its slow definition and, where one has it, a library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, mannwhitneyu, norm
from slow_seed_metrics import SEED_DEFINITIONS

from vestige.contracts import SeedModels
from vestige.metrics import SEED_METRICS
from vestige.metrics.several.klom import margin_divergence
from vestige.metrics.several.margins import logit_margin
from vestige.statistics.ranks import auc, permuted_auc, stratified_auc

ROWS = {"F": 14, "G": 9, "R": 11}


def models(seed: int, options: int, seeds: int, sharpness: float = 0.4) -> SeedModels:
    """Unlearned models near the full ones, oracles elsewhere; seeds differ a little."""
    rng = np.random.default_rng(seed)
    base = {
        role: {view: rng.dirichlet(np.full(options, sharpness), count) for view, count in ROWS.items()}
        for role in ("unlearned", "oracle", "full", "random")
    }

    def group(role: str) -> dict[int, dict[str, np.ndarray]]:
        return {
            17 + place: {
                view: 0.8 * p + 0.2 * rng.dirichlet(np.full(options, 0.3), len(p))
                for view, p in base[role].items()
            }
            for place in range(seeds)
        }

    return SeedModels(
        gold={view: rng.integers(0, options, count) for view, count in ROWS.items()},
        **{role: group(role) for role in base},
    )


def plain(found: SeedModels) -> dict[str, Any]:
    """The same as lists."""
    lists: dict[str, Any] = {"gold": {view: gold.tolist() for view, gold in found.gold.items()}}
    for role in ("unlearned", "oracle", "full", "random"):
        lists[role] = {
            seed: {view: p.tolist() for view, p in tables.items()}
            for seed, tables in getattr(found, role).items()
        }
    return lists


def test_every_registered_metric_has_a_slow_definition() -> None:
    assert sorted(SEED_DEFINITIONS) == SEED_METRICS.names()


@pytest.mark.parametrize("name", sorted(SEED_DEFINITIONS))
@pytest.mark.parametrize(("seed", "options", "seeds"), [(1, 5, 8), (2, 150, 9), (3, 2, 8)])
def test_metric_equals_its_slow_definition(name: str, seed: int, options: int, seeds: int) -> None:
    found = models(seed, options, seeds)
    value = SEED_METRICS.get(name).compute(found).value
    # Sums of at most 9 x 14 terms of size one; a bin edge would have to be met to 1e-12 to matter.
    assert value == pytest.approx(SEED_DEFINITIONS[name](plain(found)), abs=1e-10)


def test_zrf_is_scipys_divergence_averaged_over_rows_at_150_options() -> None:
    found = models(4, 150, 1, sharpness=2.0)
    p, q = found.unlearned[17]["F"], found.random[17]["F"]
    expected = 1 - np.mean(jensenshannon(p, q, base=2, axis=1) ** 2)
    assert SEED_METRICS.get("zrf").compute(found).value == pytest.approx(expected, abs=1e-9)
    # Averaging over rows x options instead would leave almost nothing of the divergence.
    assert 1 - expected > 0.1


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_is_scipys_mann_whitney_with_ties(levels: int) -> None:
    rng = np.random.default_rng(levels)
    high, low = rng.integers(0, levels, 60).astype(float), rng.integers(0, levels, 45).astype(float)
    test = mannwhitneyu(high, low, use_continuity=False, method="asymptotic")
    assert auc(high, low) == pytest.approx(test.statistic / (60 * 45), abs=1e-15)
    # In one stratum the permutations spread as that test's normal approximation.
    given = np.concatenate([high, low]), np.arange(105) < 60, np.zeros(105)
    assert stratified_auc(*given) == pytest.approx(auc(high, low))
    drawn = permuted_auc(*given, draws=4000, seed=1)
    z = abs(auc(high, low) - 0.5) / drawn.std()
    assert 2 * norm.sf(z) == pytest.approx(test.pvalue, rel=0.05)


def test_klom_of_one_row_is_scipys_relative_entropy_of_numpys_histograms() -> None:
    rng = np.random.default_rng(5)
    u, o = rng.normal(0, 1, 12), rng.normal(0.5, 1, 10)
    edges = np.linspace(min(u.min(), o.min()), max(u.max(), o.max()), 21)
    p, q = (np.histogram(values, edges)[0] / len(values) + 1e-5 for values in (u, o))
    assert np.histogram(u, edges)[0].sum() == 12  # NumPy counts both ends too
    assert margin_divergence(u[:, None], o[:, None])[0] == pytest.approx(entropy(p, q), abs=1e-12)


def test_the_margin_is_the_difference_of_logits_against_the_rest() -> None:
    rng = np.random.default_rng(6)
    logits = rng.normal(0, 2, (7, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gold = np.array([0, 1, 2, 3, 0, 1, 2])
    rest = [np.log(np.exp(np.delete(row, g)).sum()) for row, g in zip(logits, gold, strict=True)]
    np.testing.assert_allclose(logit_margin(p, gold), logits[np.arange(7), gold] - rest, atol=1e-11)
