"""Resampling as the specification words it: explicit draws, explicit loops, statistics of the drawn rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


def row_bootstrap(statistic: Callable[[np.ndarray], float], n: int, draws: int, seed: int) -> list[float]:
    """statistic(row numbers) of each draw of `default_rng(seed).integers(0, n, (B, n))`."""
    return [statistic(rows) for rows in np.random.default_rng(seed).integers(0, n, (draws, n))]


def unit_bootstrap(
    statistic: Callable[[np.ndarray], float], units: Sequence[str], draws: int, seed: int
) -> list[float]:
    """statistic(row numbers of the drawn units, whole, repeats kept) of each draw."""
    names = sorted(set(units))
    rows_of = {name: [row for row, unit in enumerate(units) if unit == name] for name in names}
    values = []
    for drawn in np.random.default_rng(seed).integers(0, len(names), (draws, len(names))):
        rows = [row for number in drawn for row in rows_of[names[number]]]
        values.append(statistic(np.array(rows)))
    return values


def hierarchical_bootstrap(
    gains: Mapping[str, Mapping[str, Sequence[float]]], draws: int, seed: int
) -> list[float]:
    """Nested draws over gains[seed][bundle][unit], from three spawned generators, one a level."""
    of_seeds, of_bundles, of_units = np.random.default_rng(seed).spawn(3)
    seeds = sorted(gains)
    widest = max(len(bundles) for bundles in gains.values())
    longest = max(len(units) for bundles in gains.values() for units in bundles.values())
    values = []
    for _ in range(draws):
        drawn_seeds = [seeds[of_seeds.integers(0, len(seeds))] for _ in seeds]
        drawn_cells = []
        for name in drawn_seeds:
            bundles = sorted(gains[name])
            picked = [bundles[of_bundles.integers(0, len(bundles))] for _ in range(widest)]
            drawn_cells.append([gains[name][bundle] for bundle in picked])
        seed_means = []
        for name, cells in zip(drawn_seeds, drawn_cells, strict=True):
            cell_means = []
            for units in cells:
                picked_units = [units[of_units.integers(0, len(units))] for _ in range(longest)]
                cell_means.append(np.mean(picked_units[: len(units)]))
            seed_means.append(np.mean(cell_means[: len(gains[name])]))
        values.append(float(np.mean(seed_means)))
    return values


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p_i = max over j with p_j <= p_i of min(1, (number of p_k >= p_j, ties by position) p_j)."""
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i], i))
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted
