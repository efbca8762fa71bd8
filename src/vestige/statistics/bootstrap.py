"""Row and unit bootstrap of additive statistics, percentile intervals.

Draws are exactly `default_rng(seed).integers(0, n, (B, n))`, filled row by row, so neither the chunk size nor
the number of statistics changes them. Each draw becomes a vector of counts; the sums of all terms of all
statistics are one matrix product. Bitwise equality of the sums also needs the same chunk size and BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Estimate, Floats, Interval, RowTerms, Undefined
from vestige.statistics.terms import NO_ROWS, reason_of, stack_rows, sum_terms

__all__ = [
    "DRAWS",
    "LEVEL",
    "ROW_SEEDS",
    "UNIT_SEED_OFFSET",
    "BootstrapResult",
    "bootstrap_rows",
    "bootstrap_two_views",
    "bootstrap_units",
    "bootstrap_units_two_views",
    "estimate",
    "minimum_detectable",
    "row_counts",
    "unit_sums",
]

DRAWS = 5000
LEVEL = 0.95
ROW_SEEDS: Mapping[str, int] = {"F": 1, "G": 2, "R": 3}
UNIT_SEED_OFFSET = 100
_BLOCK = 2_000_000
"""Entries of one block of counts: 16 MB of float64."""


@dataclass(frozen=True, eq=False)
class BootstrapResult:
    """A statistic, its resamples and its percentile interval.

    estimate: value on the observed rows, NaN where undefined. low, high: percentile bounds over the defined
    resamples, NaN when there are none. draws_values (B,): one value a resample, NaN where undefined.
    undefined_share: share of NaN resamples, in [0, 1]. n: rows or units drawn from. reason: why a NaN is one.
    """

    estimate: float
    low: float
    high: float
    draws_values: Floats
    undefined_share: float
    n: int
    kind: str
    level: float
    seed: int
    reason: str

    @property
    def draws(self) -> int:
        """B, the number of resamples, undefined ones included."""
        return len(self.draws_values)

    @property
    def value(self) -> float | Undefined:
        """The estimate, or why there is none."""
        return Undefined(undefined=self.reason) if math.isnan(self.estimate) else self.estimate

    def interval(self, condition: str) -> Interval | Undefined:
        """The interval as a record. condition: what it is conditional on, `training seed 17`.

        Undefined when the statistic is, when fewer than two rows or units were drawn from, and when no
        resample is defined. A positive share of undefined resamples is part of the kind.
        """
        if math.isnan(self.estimate) or math.isnan(self.low):
            return Undefined(undefined=self.reason)
        if self.n < 2:
            what = self.kind.split()[0]
            return Undefined(undefined=f"an interval needs at least two {what}s, there is one")
        kind = f"{self.kind}, percentile"
        if self.undefined_share:
            kind += f", {self.undefined_share:.1%} of the draws undefined and left out"
        return Interval(
            low=self.low,
            high=self.high,
            kind=kind,
            level=self.level,
            draws=self.draws,
            seed=self.seed,
            condition=condition,
        )


def row_counts(n: int, draws: int, seed: int, chunk: int | None = None) -> Iterator[Floats]:
    """Blocks (b, n) of how often each of n rows was drawn; the blocks have `draws` rows together.

    Row k of all blocks counts `default_rng(seed).integers(0, n, (draws, n))[k]`, whatever the chunk (rows a
    block, default: 16 MB). Each row sums to n. n = 0 gives blocks without columns.
    """
    if n < 0 or draws < 1:
        raise ValueError(f"n must be at least 0 and draws at least 1, not {n} and {draws}")
    for drawn in _drawn(n, draws, seed, chunk):
        yield _count(drawn, np.empty(drawn.shape))


def bootstrap_rows(
    items: Mapping[str, RowTerms],
    *,
    draws: int = DRAWS,
    seed: int,
    level: float = LEVEL,
    chunk: int | None = None,
) -> dict[str, BootstrapResult]:
    """Row bootstrap of every statistic of one view under the same draws.

    items: statistics over the same N rows, in the same order (sorted by row_id). Each draw takes N rows with
    replacement and finishes the summed terms. seed: 1 for F, 2 for G, 3 for R.
    """
    terms, columns = _pooled(items)
    sums = _resampled(terms, draws, seed, chunk)
    return _finish(items, columns, sum_terms(terms), sums, len(terms), "row bootstrap", level, seed)


def bootstrap_units(
    items: Mapping[str, RowTerms],
    units: Sequence[str] | NDArray[np.str_],
    *,
    draws: int = DRAWS,
    seed: int,
    level: float = LEVEL,
    chunk: int | None = None,
) -> dict[str, BootstrapResult]:
    """Unit bootstrap: units (classes, clusters, customers) are drawn whole, in sorted order of their names.

    units (N,): the unit of each row. The statistic of a draw is `finish` of the summed terms of the drawn
    units: for a mean, summed values over summed rows. seed: the row seed of the view + 100.
    """
    terms, columns = _pooled(items)
    per_unit = unit_sums(terms, units)
    sums = _resampled(per_unit, draws, seed, chunk)
    return _finish(items, columns, sum_terms(terms), sums, len(per_unit), "unit bootstrap", level, seed)


def bootstrap_two_views(
    first: Mapping[str, RowTerms],
    second: Mapping[str, RowTerms],
    *,
    draws: int = DRAWS,
    seed_first: int,
    seed_second: int,
    level: float = LEVEL,
    chunk: int | None = None,
) -> dict[str, BootstrapResult]:
    """Row bootstrap of a statistic over two views together, each view drawn apart with its own seed.

    first, second: the same statistics over F (N1 rows) and G (N2 rows). A draw's sums are those of its F draw
    plus those of its G draw. Used for suppression over F and G.
    """
    terms, columns = _pooled(first)
    other, other_columns = _pooled(second)
    _same_statistics(first, second)
    sums = _resampled(terms, draws, seed_first, chunk)
    other_sums = _resampled(other, draws, seed_second, chunk)
    kind = f"row bootstrap, views drawn apart with seeds {seed_first} and {seed_second}"
    results = {}
    for name, item in first.items():
        total = sum_terms(terms)[columns[name]] + sum_terms(other)[other_columns[name]]
        drawn = sums[:, columns[name]] + other_sums[:, other_columns[name]]
        n = len(terms) + len(other)
        results[name] = _result(item, total, drawn, n, kind, level, seed_first)
    return results


def bootstrap_units_two_views(
    first: Mapping[str, RowTerms],
    second: Mapping[str, RowTerms],
    units_first: Sequence[str] | NDArray[np.str_],
    units_second: Sequence[str] | NDArray[np.str_],
    *,
    draws: int = DRAWS,
    seed: int,
    level: float = LEVEL,
) -> dict[str, BootstrapResult]:
    """Unit bootstrap over two views together: each unit is drawn once, with its rows of both views."""
    _same_statistics(first, second)
    both = {name: stack_rows(item, second[name]) for name, item in first.items()}
    units = [*map(str, units_first), *map(str, units_second)]
    return bootstrap_units(both, units, draws=draws, seed=seed, level=level)


def unit_sums(terms: Floats, units: Sequence[str] | NDArray[np.str_]) -> Floats:
    """Sums of the terms of each unit: (N, K) and (N,) -> (U, K), units in sorted order of their names."""
    names = np.asarray(units, dtype=np.str_)
    if names.shape != (len(terms),):
        raise ValueError(f"one unit a row is needed: {len(terms)} rows, units of shape {names.shape}")
    if not len(terms):
        return np.zeros((0, terms.shape[1]))
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return np.asarray(np.add.reduceat(terms[order], starts, axis=0), dtype=np.float64)


def minimum_detectable(
    result: BootstrapResult, *, power: float = 0.8, level: float = LEVEL
) -> float | Undefined:
    """The smallest true gain that this many rows would find with this power.

    (z_{(1 + level) / 2} + z_{power}) x standard deviation of the resamples, in the statistic's unit:
    2.80 standard errors at the defaults. Cohen 1988. Undefined below two rows or defined resamples.
    """
    defined = result.draws_values[~np.isnan(result.draws_values)]
    if result.n < 2 or len(defined) < 2:
        return Undefined(undefined="a standard error needs at least two rows")
    normal = NormalDist()
    return float((normal.inv_cdf((1 + level) / 2) + normal.inv_cdf(power)) * defined.std(ddof=1))


def estimate(
    row: BootstrapResult,
    unit: BootstrapResult | None = None,
    *,
    condition: str,
    unstable: bool = False,
    note: str = "",
) -> Estimate:
    """The record of a statistic with its row interval and, where units exist, its unit interval."""
    return Estimate(
        value=row.value,
        row=row.interval(condition),
        unit=None if unit is None else unit.interval(condition),
        rows=row.n,
        units=None if unit is None else unit.n,
        unstable=unstable,
        note=note,
    )


def _same_statistics(first: Mapping[str, RowTerms], second: Mapping[str, RowTerms]) -> None:
    if first.keys() != second.keys():
        raise ValueError("both views need the same statistics")


def _pooled(items: Mapping[str, RowTerms]) -> tuple[Floats, dict[str, NDArray[np.intp]]]:
    """All distinct term columns (N, K), and the columns of each statistic. Equal columns are kept once."""
    columns: list[Floats] = []
    position: dict[bytes, int] = {}
    where: dict[str, NDArray[np.intp]] = {}
    rows: int | None = None
    for name, item in items.items():
        terms = np.asarray(item.terms, dtype=np.float64)
        if terms.ndim != 2 or not np.isfinite(terms).all():
            raise ValueError(f"terms of '{name}' must be finite and (N, K), not of shape {terms.shape}")
        if rows is not None and len(terms) != rows:
            raise ValueError(f"'{name}' has {len(terms)} rows, the statistics before it {rows}")
        rows = len(terms)
        places = []
        for column in np.ascontiguousarray(terms.T):
            place = position.setdefault(column.tobytes(), len(columns))
            if place == len(columns):
                columns.append(column)
            places.append(place)
        where[name] = np.asarray(places, dtype=np.intp)
    pooled = np.stack(columns, axis=1) if columns else np.zeros((rows or 0, 0))
    return np.ascontiguousarray(pooled), where


def _resampled(terms: Floats, draws: int, seed: int, chunk: int | None) -> Floats:
    """Sums (B, K) of the terms (n, K) in every draw."""
    sums = np.empty((draws, terms.shape[1]))
    block = np.empty((0, len(terms)))
    start = 0
    # The generator works on the next block, without the interpreter's lock, while this one is counted.
    with ThreadPoolExecutor(max_workers=1) as ahead:
        blocks = _drawn(len(terms), draws, seed, chunk)
        following = ahead.submit(next, blocks, None)
        while (drawn := following.result()) is not None:
            following = ahead.submit(next, blocks, None)
            block = block if len(block) else np.empty(drawn.shape)
            counts = _count(drawn, block[: len(drawn)])
            np.matmul(counts, terms, out=sums[start : start + len(drawn)])
            start += len(drawn)
    return sums


def _drawn(n: int, draws: int, seed: int, chunk: int | None) -> Iterator[NDArray[np.int64]]:
    """Blocks (b, n) of `default_rng(seed).integers(0, n, (draws, n))`, in order."""
    rows = chunk or max(1, _BLOCK // max(n, 1))
    generator = np.random.default_rng(seed)
    for start in range(0, draws, rows):
        yield generator.integers(0, max(n, 1), (min(rows, draws - start), n))


def _count(drawn: NDArray[np.int64], block: Floats) -> Floats:
    """Fill block (b, n) with how often each of n rows was drawn in each of the b draws."""
    for row, counts in zip(drawn, block, strict=True):
        counts[:] = np.bincount(row, minlength=len(counts))
    return block


def _finish(
    items: Mapping[str, RowTerms],
    columns: Mapping[str, NDArray[np.intp]],
    total: Floats,
    sums: Floats,
    n: int,
    kind: str,
    level: float,
    seed: int,
) -> dict[str, BootstrapResult]:
    return {
        name: _result(item, total[columns[name]], sums[:, columns[name]], n, kind, level, seed)
        for name, item in items.items()
    }


def _result(
    item: RowTerms, total: Floats, sums: Floats, n: int, kind: str, level: float, seed: int
) -> BootstrapResult:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    if n == 0:
        values, point = np.full(len(sums), np.nan), math.nan
    else:
        values = np.asarray(item.finish(sums), dtype=np.float64)
        point = float(item.finish(total))
    defined = values[~np.isnan(values)]
    low, high = (
        np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]) if len(defined) else (math.nan, math.nan)
    )
    return BootstrapResult(
        estimate=point,
        low=float(low),
        high=float(high),
        draws_values=values,
        undefined_share=1 - len(defined) / len(values),
        n=n,
        kind=kind,
        level=level,
        seed=seed,
        reason=NO_ROWS if n == 0 else reason_of(item),
    )
