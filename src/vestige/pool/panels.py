"""One comparison drawn from a pool: some full models, some oracles, and a retrained model that is none of
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from vestige.contracts import Floats, View
from vestige.pool.contents import VIEWS, Deletion, Outputs, Pool
from vestige.seeds import generator

__all__ = ["Panel", "mean_of_models", "mix", "panels"]


@dataclass(frozen=True, eq=False)
class Panel:
    """fulls, oracles: what a comparison is given. held: the place of a retrained model outside it; others: of
    further ones. everyone: all oracles and all full models of the pool, which the truth is measured with."""

    pool: Pool
    deletion: Deletion
    full_places: Sequence[int]
    oracle_places: Sequence[int]
    held: int
    others: Sequence[int]

    @cached_property
    def all_fulls(self) -> list[Outputs]:
        """Every full model."""
        return self.pool.role(self.deletion.key, "full")

    @cached_property
    def all_oracles(self) -> list[Outputs]:
        """Every retrained model."""
        return self.pool.role(self.deletion.key, "oracle")

    @property
    def fulls(self) -> list[Outputs]:
        """Those of the comparison."""
        return [self.all_fulls[place] for place in self.full_places]

    @property
    def oracles(self) -> list[Outputs]:
        """Those of the comparison."""
        return [self.all_oracles[place] for place in self.oracle_places]

    @property
    def retrained(self) -> Outputs:
        """The retrained model that the comparison does not know."""
        return self.all_oracles[self.held]

    def random(self, *names: object) -> np.random.Generator:
        """Draws that belong to this panel and these names."""
        return generator("pool", self.deletion.key, len(self.oracle_places), self.held, *names)


def panels(pool: Pool, key: str, oracles: int, *, fulls: int = 2) -> Iterator[Panel]:
    """A panel for every retrained model of the deletion in turn, the other places drawn at random.

    The draws depend on names alone. None where the pool has too few oracles.
    """
    count, starts = len(pool.role(key, "oracle")), len(pool.role(key, "full"))
    if count < oracles + 1:
        return
    for held in range(count):
        random = generator("pool", "panel", key, oracles, fulls, held)
        order = [int(place) for place in random.permutation(np.delete(np.arange(count), held))]
        yield Panel(
            pool=pool,
            deletion=pool.deletion(key),
            full_places=[int(place) for place in random.permutation(starts)[:fulls]],
            oracle_places=order[:oracles],
            held=held,
            others=order[oracles:],
        )


def mix(first: Outputs, second: Outputs, share: float) -> Outputs:
    """`share` of the first and the rest of the second, in probability."""
    return {view: share * first[view] + (1 - share) * second[view] for view in first}


def mean_of_models(models: Sequence[Outputs]) -> Outputs:
    """Their mean probabilities."""
    return {view: np.asarray(np.mean([model[view] for model in models], axis=0)) for view in VIEWS}


def replaced(model: Outputs, **views: Floats) -> Outputs:
    """The model with other probabilities on some views."""
    return {**model, **cast(dict[View, Floats], views)}
