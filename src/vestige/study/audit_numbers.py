"""The audit's own arithmetic: distances, statistics and bootstrap from probabilities, in plain NumPy.

Written from the specification alone. It imports nothing of vestige's metrics or statistics, so that an error
there cannot hide here; keep it that way.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = [
    "SEEDS",
    "Resampled",
    "Stat",
    "Table",
    "View",
    "both_views",
    "js",
    "load_table",
    "over_both",
    "read_columns",
    "resample",
    "statistics_of",
    "view_of",
]

Array = NDArray[np.float64]
SEEDS = {"F": 1, "G": 2, "R": 3}
UNIT_OFFSET = 100
BINS = 15


@dataclass(frozen=True)
class Table:
    """A prediction file: rows sorted by id, options sorted by name, p (N, C).

    off: largest distance of a row's sum from 1 as stored. sha256: of rows, options and p.
    """

    row_ids: list[str]
    view: list[str]
    unit: list[str]
    gold: list[str]
    options: list[str]
    p: Array
    off: float = 0.0

    @cached_property
    def sha256(self) -> str:
        """Hash of everything in the table."""
        state = hashlib.sha256()
        names = json.dumps([self.options, self.row_ids, self.view, self.unit, self.gold]).encode()
        for data in (names, self.p.astype("<f8").tobytes()):
            state.update(f"{len(data)}:".encode())
            state.update(data)
        return state.hexdigest()


def load_table(path: Path) -> Table:
    """Read a Parquet prediction file. Raises OSError or ValueError when it is not one."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    named = ("row_id", "view", "unit", "gold")
    options = sorted(name[2:] for name in table.column_names if name.startswith("p:"))
    others = sorted(set(table.column_names) - {*named, *(f"p:{name}" for name in options)})
    if others or len(set(table.column_names)) < len(table.column_names):
        raise ValueError(f"{path.parent.name}/{path.name}: columns {others or 'twice'}")
    texts = {name: [str(item) for item in table[name].to_pylist()] for name in named}
    order = sorted(range(table.num_rows), key=texts["row_id"].__getitem__)
    p = np.column_stack([table[f"p:{name}"].to_numpy() for name in options]).astype(np.float64)[order]
    p = np.ascontiguousarray(p)
    sums = p.sum(axis=1)
    off = np.abs(sums - 1) > len(options) * np.finfo(np.float64).eps
    p[off] = p[off] / sums[off, None]
    row_ids, view, unit, gold = ([texts[name][row] for row in order] for name in named)
    return Table(row_ids, view, unit, gold, options, p, float(np.abs(sums - 1).max()))


def read_columns(path: Path) -> dict[str, list[Any]]:
    """A Parquet file, column by column. Raises OSError or ValueError when it is not one."""
    import pyarrow.parquet as pq

    found: dict[str, list[Any]] = pq.ParquetFile(path).read().to_pydict()
    return found


def js(p: Array, q: Array) -> Array:
    """Base-2 Jensen-Shannon divergence of rows, clipped at 1e-12 and renormalised, in [0, 1]."""
    a, b = (np.where(rows < 1e-12, 1e-12, rows) for rows in (p, q))
    a, b = a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
    both = a + b
    value = 0.5 * (a * np.log2(2 * a / both) + b * np.log2(2 * b / both)).sum(axis=1)
    return np.asarray(np.minimum(np.maximum(value, 0.0), 1.0))


@dataclass(frozen=True)
class Stat:
    """A statistic: per-row columns (n, K), and what makes its value of their sums (..., K).

    scale: how much rounding of the sums is magnified in the value (1 over a small denominator).
    """

    columns: Array
    finish: Callable[[Array], Array]
    scale: float = 1.0

    @property
    def value(self) -> float:
        """On the rows as they are; NaN where undefined."""
        return float(self.finish(self.columns.sum(axis=0)[None, :])[0])


def mean(values: Any) -> Stat:
    """Mean over rows."""
    column = np.asarray(values, dtype=np.float64)
    return Stat(np.column_stack([column, np.ones(len(column))]), lambda s: s[:, 0] / s[:, 1])


def ratio(top: Array, bottom: Array, least: float) -> Stat:
    """Ratio of sums; NaN where the lower sum is not above `least`."""

    def finish(s: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(s[:, 1] > least, s[:, 0] / s[:, 1], np.nan))

    total = abs(float(bottom.sum())) or 1.0
    return Stat(np.column_stack([top, bottom]), finish, max(1.0, len(top) / total))


def progress(start: Array, distance: Array) -> Stat:
    """(D0 - OD) / D0, a ratio of means; NaN for D0 < 1e-9."""

    def finish(s: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(s[:, 1] / s[:, 2] >= 1e-9, 1 - s[:, 0] / s[:, 1], np.nan))

    columns = np.column_stack([distance, start, np.ones(len(start))])
    return Stat(columns, finish, max(1.0, len(start) / max(float(start.sum()), 1e-300)))


def best(p: Array) -> list[frozenset[int]]:
    """The columns of the largest probability of each row: several in a tie."""
    return [frozenset(np.flatnonzero(row).tolist()) for row in _largest(p)]


def _largest(p: Array) -> NDArray[np.bool_]:
    """(N, C): where a row has its largest probability."""
    return np.asarray(p == p.max(axis=1, keepdims=True))


def right(p: Array, gold: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether gold is the one best option of its row: a tie is wrong."""
    largest = _largest(p)
    return np.asarray((largest.sum(axis=1) == 1) & largest[np.arange(len(p)), gold])


def same_best(p: Array, q: Array) -> NDArray[np.bool_]:
    """Whether two tables have the same best options in a row, ties included."""
    return np.asarray((_largest(p) == _largest(q)).all(axis=1))


def ece(p: Array, gold: NDArray[np.intp]) -> Stat:
    """Expected calibration error, 15 bins (j/15, (j+1)/15] of the top probability, 0 in the first."""
    top = p.max(axis=1)
    hit = right(p, gold).astype(np.float64)
    columns = np.zeros((len(p), BINS + 1))
    columns[np.arange(len(p)), bins_of(top)] = hit - top
    columns[:, BINS] = 1.0
    return Stat(columns, lambda s: np.abs(s[:, :BINS]).sum(axis=1) / s[:, BINS])


def bin_of(confidence: float) -> int:
    """Which of the 15 bins."""
    return next((j for j in range(BINS) if confidence <= (j + 1) / BINS), BINS - 1)


def bins_of(confidence: Array) -> NDArray[np.intp]:
    """Which of the 15 bins, of each: the first whose upper edge is not below it."""
    edges = np.array([(j + 1) / BINS for j in range(BINS - 1)])
    return np.asarray((confidence[:, None] > edges).sum(axis=1))


def minus(first: Stat, second: Stat) -> Stat:
    """Difference of two statistics under the same draws."""
    width = first.columns.shape[1]
    return Stat(
        np.column_stack([first.columns, second.columns]),
        lambda s: first.finish(s[:, :width]) - second.finish(s[:, width:]),
    )


@dataclass(frozen=True)
class View:
    """One view's rows of every model. models: (label, role, p), the compared full and oracle among them."""

    name: str
    options: list[str]
    units: list[str]
    gold: NDArray[np.intp]
    forgotten: NDArray[np.bool_] | None
    full: Array
    oracle: Array | None
    models: list[tuple[str, str, Array]]
    fulls: list[Array]
    oracles: list[Array]

    def floor(self, role: str) -> Stat | None:
        """Mean JS over pairs of models of a role, per row; None with fewer than two."""
        group = self.fulls if role == "full" else self.oracles
        pairs = [js(a, b) for a, b in combinations(group, 2)]
        return mean(sum(pairs) / len(pairs)) if pairs else None

    def floor_over_seeds(self, role: str) -> tuple[float, float] | None:
        """Ends of the 95 % interval of that floor over training seeds, by leaving out each model in turn.

        t with one degree of freedom less than there are models, for the logarithm. None below three models,
        and where models coincide.
        """
        group = self.fulls if role == "full" else self.oracles
        m = len(group)
        if m < 3:
            return None
        apart = {(i, j): float(np.mean(js(group[i], group[j]))) for i, j in combinations(range(m), 2)}
        means = [np.mean([gap for pair, gap in apart.items() if one not in pair]) for one in range(m)]
        if min(means) <= 0:
            return None
        error = math.sqrt((m - 1) * float(np.var(np.log(means))))
        factor = math.exp(float(stats.t.ppf(0.975, m - 1)) * error)
        middle = float(np.mean(list(apart.values())))
        return middle / factor, middle * factor


def view_of(
    name: str,
    fulls: Sequence[Table],
    unlearned: Mapping[str, Table],
    oracles: Sequence[Table],
    labels: tuple[str, str],
    forgotten: Sequence[str],
) -> View:
    """The rows of one view. labels: of the compared full model and oracle."""
    first = fulls[0]
    rows = [row for row, view in enumerate(first.view) if view == name]
    models = [(labels[0], "full", fulls[0].p[rows])]
    models += [(label, "unlearned", table.p[rows]) for label, table in unlearned.items()]
    models += [(labels[1], "oracle", oracles[0].p[rows])] if oracles else []
    chosen = np.array([option in set(forgotten) for option in first.options]) if forgotten else None
    return View(
        name=name,
        options=first.options,
        units=[first.unit[row] for row in rows],
        gold=np.array([first.options.index(first.gold[row]) for row in rows], dtype=np.intp),
        forgotten=chosen,
        full=fulls[0].p[rows],
        oracle=oracles[0].p[rows] if oracles else None,
        models=models,
        fulls=[table.p[rows] for table in fulls],
        oracles=[table.p[rows] for table in oracles],
    )


def statistics_of(view: View, role: str, p: Array) -> dict[str, Stat]:
    """Every statistic of one model on one view that the audit knows, by name."""
    rows = np.arange(len(p))
    ordered = np.sort(p, axis=1)
    found = {
        "gold_probability": mean(p[rows, view.gold]),
        "confidence": mean(ordered[:, -1]),
        "margin": mean(ordered[:, -1] - ordered[:, -2]),
    }
    accuracy = mean(right(p, view.gold))
    found["accuracy" if view.name == "R" else "forgotten_accuracy"] = accuracy
    if view.forgotten is not None:
        found["forgotten_mass"] = mean(p[:, view.forgotten].sum(axis=1))
    if view.name == "R":
        found["ece"] = ece(p, view.gold)
    if role != "full":
        found["churn"] = mean(~same_best(p, view.full))
        if view.name == "R":
            found["delta_accuracy"] = minus(accuracy, mean(right(view.full, view.gold)))
            found["delta_ece"] = minus(found["ece"], ece(view.full, view.gold))
    if view.oracle is not None and role != "oracle":
        found |= _against_oracle(view, view.oracle, role, p)
    return found


def _against_oracle(view: View, oracle: Array, role: str, p: Array) -> dict[str, Stat]:
    start, distance = js(view.full, oracle), js(p, oracle)
    found = {
        "oracle_distance": mean(distance),
        "completeness": mean(same_best(p, oracle)),
        "total_variation": mean(np.abs(p - oracle).sum(axis=1) / 2),
        "activation_distance": mean(np.sqrt(((p - oracle) ** 2).sum(axis=1))),
    }
    if role == "full":
        found["displacement"] = mean(start)
        return found
    noise = view.floor("oracle")
    if noise is not None:
        found["excess_distance"] = minus(mean(distance), noise)
    if view.name == "R":
        return found
    found["gain"] = mean(start - distance)
    found["progress"] = progress(start, distance)
    if view.forgotten is not None:
        found["suppression"] = suppression(view, p)
    return found | _geometry(view.full, oracle, p)


def suppression(view: View, p: Array) -> Stat:
    """Forgotten mass removed by unlearning over that removed by retraining."""
    assert view.forgotten is not None
    assert view.oracle is not None
    before, after, target = (rows[:, view.forgotten].sum(axis=1) for rows in (view.full, p, view.oracle))
    return ratio(before - after, before - target, 1e-9)


def _geometry(full: Array, oracle: Array, p: Array) -> dict[str, Stat]:
    du, do = p - full, oracle - full
    inner, length = (du * do).sum(axis=1), (do * do).sum(axis=1)
    still = length <= 1e-28
    a = np.where(still, 0.0, inner / np.where(still, 1.0, length))
    rest = du - a[:, None] * do
    rest2 = (rest * rest).sum(axis=1)
    moved = np.where(still, 0.0, length)

    def root(s: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(s[:, 1] > 0, np.sqrt(s[:, 0] / s[:, 1]), np.nan))

    scale = max(1.0, len(p) / max(float(moved.sum()), 1e-300))
    # The square root magnifies rounding of a residual near zero.
    steep = scale / max(math.sqrt(float(rest2.sum()) / max(float(moved.sum()), 1e-300)), 1e-8)
    return {
        "aligned_coefficient": ratio(np.where(still, 0.0, inner), moved, 0.0),
        "relative_residual": Stat(np.column_stack([rest2, moved]), root, steep),
        "squared_error": mean(((p - oracle) ** 2).sum(axis=1)),
        "magnitude_only_distance": mean(js(simplex(full + a[:, None] * do), oracle)),
        "residual_only_distance": mean(js(simplex(oracle + rest), oracle)),
    }


def identity_error(full: Array, oracle: Array, p: Array) -> tuple[float, int]:
    """Largest error of |dU - dO|^2 = (a - 1)^2 |dO|^2 + |r|^2, and rows that retraining does not move."""
    du, do = p - full, oracle - full
    length = (do * do).sum(axis=1)
    still = length <= 1e-28
    a = np.where(still, 0.0, (du * do).sum(axis=1) / np.where(still, 1.0, length))
    rest = du - a[:, None] * do
    whole = ((du - do) ** 2).sum(axis=1)
    return float(np.abs(whole - (a - 1) ** 2 * length - (rest**2).sum(axis=1)).max()), int(still.sum())


def simplex(rows: Array) -> Array:
    """Nearest point of the probability simplex: bisection on the shift tau with sum of (v - tau)+ = 1."""
    low, high = rows.max(axis=1) - 1.0, rows.max(axis=1)
    for _ in range(80):
        middle = (low + high) / 2
        above = np.maximum(rows - middle[:, None], 0.0).sum(axis=1) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    # Exact shift on the support that bisection found.
    support = rows > ((low + high) / 2)[:, None]
    tau = (np.where(support, rows, 0.0).sum(axis=1) - 1) / support.sum(axis=1)
    return np.asarray(np.maximum(rows - tau[:, None], 0.0))


@dataclass(frozen=True)
class Resampled:
    """Values of a statistic in every draw, NaN where undefined. n: rows or units that were drawn from."""

    value: float
    draws: Array
    n: int
    scale: float

    def quantile(self, share: float) -> float:
        """Linear-interpolated quantile of the defined draws; NaN without one."""
        kept = np.sort(self.draws[~np.isnan(self.draws)])
        if not len(kept):
            return math.nan
        place = share * (len(kept) - 1)
        below = math.floor(place)
        above = min(below + 1, len(kept) - 1)
        return float(kept[below] + (place - below) * (kept[above] - kept[below]))


def _counts(n: int, draws: int, seed: int) -> Iterator[Array]:
    """default_rng(seed).integers(0, n, (draws, n)), as counts, in blocks of draws."""
    rng = np.random.default_rng(seed)
    block = max(1, 2_000_000 // max(1, n))
    for begin in range(0, draws, block):
        size = min(block, draws - begin)
        picked = rng.integers(0, n, (size, n))
        flat = picked + n * np.arange(size)[:, None]
        yield np.bincount(flat.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _drawn(columns: Array, draws: int, seed: int) -> Array:
    return np.vstack([counts @ columns for counts in _counts(len(columns), draws, seed)])


def _by_unit(columns: Array, units: Sequence[str]) -> Array:
    names = sorted(set(units))
    sums = np.zeros((len(names), columns.shape[1]))
    np.add.at(sums, [names.index(unit) for unit in units], columns)
    return sums


def resample(
    stats: Mapping[Any, Stat], draws: int, seed: int, units: Sequence[str] | None = None
) -> dict[Any, Resampled]:
    """Row bootstrap of statistics on the same rows, or unit bootstrap when `units` are given."""
    if not stats:
        return {}
    columns = np.column_stack([item.columns for item in stats.values()])
    source = columns if units is None else _by_unit(columns, units)
    sums = _drawn(source, draws, seed)
    found, begin = {}, 0
    for name, item in stats.items():
        width = item.columns.shape[1]
        values = np.asarray(item.finish(sums[:, begin : begin + width]), dtype=np.float64)
        found[name] = Resampled(item.value, values, len(source), item.scale)
        begin += width
    return found


def over_both(view: View, p: Array) -> dict[str, Stat]:
    """What is also measured over F and G together, of a model under test."""
    assert view.oracle is not None
    split = _geometry(view.full, view.oracle, p)
    found = {name: split[name] for name in ("aligned_coefficient", "relative_residual")}
    if view.forgotten is not None:
        found["suppression"] = suppression(view, p)
    return found


def both_views(
    f: View, g: View, first: Mapping[Any, Stat], second: Mapping[Any, Stat], draws: int
) -> tuple[dict[Any, Resampled], dict[Any, Resampled]]:
    """Ratios of sums over F and G: rows drawn apart (seeds 1 and 2), units drawn once (seed 101).

    first, second: the same statistics on either view. Returns resamples over rows and over units.
    """
    joined = {
        name: Stat(
            np.vstack([item.columns, second[name].columns]), item.finish, max(item.scale, second[name].scale)
        )
        for name, item in first.items()
    }
    if not joined:
        return {}, {}
    sums = _drawn(np.column_stack([item.columns for item in first.values()]), draws, SEEDS["F"])
    sums = sums + _drawn(np.column_stack([item.columns for item in second.values()]), draws, SEEDS["G"])
    row, begin = {}, 0
    for name, item in joined.items():
        width = item.columns.shape[1]
        drawn = np.asarray(item.finish(sums[:, begin : begin + width]), dtype=np.float64)
        row[name] = Resampled(item.value, drawn, len(item.columns), item.scale)
        begin += width
    return row, resample(joined, draws, SEEDS["F"] + UNIT_OFFSET, [*f.units, *g.units])
