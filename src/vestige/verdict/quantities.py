"""Distances to all retrained models and shares of the way to them, row by row and from totals.

Everything about one view is read from two tables over pairs of models: Jensen-Shannon divergences and inner
products of their probabilities. A language model fills the same tables with means over a document's
positions. All models of a role count alike, so their order changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats
from vestige.metrics.oracle import js2

__all__ = ["Models", "ViewTable", "at_temperature", "view_table"]

Indices = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Models:
    """Places of the models in a table. unlearned: label -> its training seeds. Any of them may be empty."""

    fulls: Indices
    oracles: Indices
    unlearned: Mapping[str, Indices]


@dataclass(frozen=True, eq=False)
class ViewTable:
    """One view of all models of a comparison.

    js (M, M, N): base-2 divergence of two models on each row; NaN for pairs that no quantity reads. inner (M,
    M, N): inner product of their probabilities. reach (2, N): the least and the most that `made` could be on
    a row for any distribution at all; zeros without an oracle. units (N,): names of the rows' units.
    """

    js: Floats
    inner: Floats
    reach: Floats
    units: NDArray[np.str_]
    models: Models

    @property
    def rows(self) -> int:
        """N."""
        return int(self.js.shape[-1])

    def distance(self, places: Indices, oracles: Indices | None = None) -> Floats:
        """d, (N,): mean divergence of the models at `places` from the oracles. `oracles`: default all."""
        chosen = self.models.oracles if oracles is None else oracles
        return np.asarray(self.js[np.ix_(places, chosen)].mean(axis=(0, 1)), dtype=np.float64)

    def spread(self, oracles: Indices | None = None) -> Floats:
        """What two retrainings differ by, (N,): mean divergence over pairs of oracles. Needs two of them."""
        return self._pairs(self.js, self.models.oracles if oracles is None else oracles)

    def excess(self, places: Indices, oracles: Indices | None = None) -> Floats:
        """e, (N,): how much further from an oracle than another oracle is. Needs two oracles."""
        return self.distance(places, oracles) - self.spread(oracles)

    def gain(self, places: Indices, oracles: Indices | None = None, fulls: Indices | None = None) -> Floats:
        """How much closer to the oracles than the full models are, (N,); negative: further away."""
        start = self.models.fulls if fulls is None else fulls
        return self.distance(start, oracles) - self.distance(places, oracles)

    def move(self, oracles: Indices | None = None, fulls: Indices | None = None) -> Floats:
        """Squared length of the way from the full models to retraining, (N,).

        Mean over pairs of different oracles of <O_i - F, O_j - F>, F the mean full model: noise of single
        oracles does not enter. With one oracle its squared distance from F.
        """
        chosen = self.models.oracles if oracles is None else oracles
        whole = self._centred(chosen, chosen, fulls)
        if len(chosen) == 1:
            return np.asarray(whole[0, 0], dtype=np.float64)
        return _pair_mean(whole)

    def made(self, places: Indices, oracles: Indices | None = None, fulls: Indices | None = None) -> Floats:
        """How far along that way the models at `places` are, (N,): mean over oracles of <U - F, O_j - F>."""
        chosen = self.models.oracles if oracles is None else oracles
        return np.asarray(self._centred(places, chosen, fulls).mean(axis=(0, 1)), dtype=np.float64)

    def memory(self, places: Indices, oracles: Indices | None = None, fulls: Indices | None = None) -> float:
        """1 - sum of `made` over sum of `move`: 0 for a retrained model, 1 for the full model. NaN without a
        way."""
        way = float(self.move(oracles, fulls).sum())
        return 1.0 - float(self.made(places, oracles, fulls).sum()) / way if way > 0 else float("nan")

    def take(self, rows: NDArray[np.bool_]) -> ViewTable:
        """The table of some of its rows."""
        return ViewTable(
            self.js[..., rows], self.inner[..., rows], self.reach[:, rows], self.units[rows], self.models
        )

    def _pairs(self, table: Floats, places: Indices) -> Floats:
        if len(places) < 2:
            raise ValueError("a spread needs at least two oracles")
        return _pair_mean(table[np.ix_(places, places)])

    def _centred(self, first: Indices, second: Indices, fulls: Indices | None) -> Floats:
        """<P_a - F, P_b - F> of each pair, (a, b, N), from the inner products alone."""
        start = self.models.fulls if fulls is None else fulls
        ab = self.inner[np.ix_(first, second)]
        af = self.inner[np.ix_(first, start)].mean(axis=1)[:, None]
        fb = self.inner[np.ix_(start, second)].mean(axis=0)[None]
        ff = self.inner[np.ix_(start, start)].mean(axis=(0, 1))
        return np.asarray(ab - af - fb + ff, dtype=np.float64)


def view_table(
    *,
    fulls: Sequence[Floats],
    oracles: Sequence[Floats],
    unlearned: Mapping[str, Sequence[Floats]],
    units: NDArray[np.str_],
) -> ViewTable:
    """The table of one view from probabilities, (N, C) each, rows and options the same in all.

    unlearned: label -> the models of its training seeds. units (N,).
    """
    every = [*fulls, *oracles, *(p for seeds in unlearned.values() for p in seeds)]
    k, m, count = len(fulls), len(oracles), len(every)
    stacked = np.stack([np.asarray(p, dtype=np.float64) for p in every])
    n = stacked.shape[1]
    js = np.full((count, count, n), np.nan)
    for first in range(count):
        js[first, first] = 0.0
        for second in range(first):
            # Only divergences from an oracle, and between full models, are ever read.
            if k <= second < k + m or k <= first < k + m or first < k:
                js[first, second] = js[second, first] = js2(stacked[first], stacked[second])
    by_row = stacked.transpose(1, 0, 2)
    inner = np.ascontiguousarray((by_row @ by_row.transpose(0, 2, 1)).transpose(1, 2, 0))
    reach = np.zeros((2, n))
    if m:
        start = stacked[:k].mean(axis=0)
        way = stacked[k : k + m].mean(axis=0) - start
        reach = np.stack([way.min(axis=1), way.max(axis=1)]) - (start * way).sum(axis=1)
    places, position = {}, k + m
    for label, seeds in unlearned.items():
        places[label] = np.arange(position, position + len(seeds))
        position += len(seeds)
    return ViewTable(
        js,
        inner,
        reach,
        units,
        Models(fulls=np.arange(k), oracles=np.arange(k, k + m), unlearned=places),
    )


def at_temperature(p: Floats, temperature: float) -> Floats:
    """Probabilities (N, C) as they would be at another softmax temperature: p^(1/T), renormalised. T > 0."""
    powers = np.exp(np.log(np.maximum(p, np.finfo(np.float64).tiny)) / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _pair_mean(table: Floats) -> Floats:
    """Mean over pairs of different models of a symmetric (m, m, N) table."""
    m = len(table)
    diagonal = table[np.arange(m), np.arange(m)].sum(axis=0)
    return np.asarray((table.sum(axis=(0, 1)) - diagonal) / (m * (m - 1)), dtype=np.float64)
