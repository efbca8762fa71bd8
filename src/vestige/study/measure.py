"""All statistics of one view for all models of a comparison, resampled under the same draws. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Metric, RowTerms, View
from vestige.metrics import METRICS
from vestige.metrics.noise import NoiseFloor, noise_floor
from vestige.metrics.oracle import js2, progress_terms
from vestige.statistics.bootstrap import (
    ROW_SEEDS,
    UNIT_SEED_OFFSET,
    BootstrapResult,
    bootstrap_rows,
    bootstrap_two_views,
    bootstrap_units,
    bootstrap_units_two_views,
)
from vestige.statistics.terms import ReasonedTerms, mean_of, reason_of

__all__ = ["BOTH_VIEWS", "Measured", "ModelRows", "Role", "ViewRows", "measure_both", "measure_view"]

Role = Literal["full", "oracle", "unlearned"]
BOTH_VIEWS = "FG"
"""How metrics call F and G together in their `views`."""


@dataclass(frozen=True, eq=False)
class ModelRows:
    """One model on one view. seeds: (N, C) of each of its training seeds; most models have one."""

    role: Role
    seeds: Sequence[Floats]

    @cached_property
    def p(self) -> Floats:
        """Mean over seeds, (N, C): what is said of a single distribution, such as where probability went."""
        return self.seeds[0] if len(self.seeds) == 1 else np.asarray(np.mean(self.seeds, axis=0))


@dataclass(frozen=True, eq=False)
class ViewRows:
    """One view of aligned models, rows sorted by row_id and options by name.

    fulls, oracles: every model of that kind, (N, C) each, the compared one first. gold (N,): columns.
    forgotten (C,) or None where no option is forgotten. units (N,): names whose order is that of the units.
    models: the models to measure.
    """

    view: View
    fulls: Sequence[Floats]
    oracles: Sequence[Floats]
    gold: NDArray[np.intp]
    forgotten: NDArray[np.bool_] | None
    units: NDArray[np.str_]
    models: Sequence[ModelRows]

    @property
    def full(self) -> Floats:
        """The compared full model, (N, C)."""
        return self.fulls[0]

    @property
    def oracle(self) -> Floats | None:
        """The compared oracle, (N, C), or None."""
        return self.oracles[0] if self.oracles else None

    @cached_property
    def displacement(self) -> Floats | None:
        """Distance of the full model to the oracle, (N,)."""
        return None if self.oracle is None else js2(self.full, self.oracle)

    @cached_property
    def distances(self) -> list[Floats | None]:
        """Distance of each model to the oracle, (N,); None without one and for the oracle itself."""
        found: list[Floats | None] = []
        for model in self.models:
            if self.oracle is None or model.role == "oracle":
                found.append(None)
            else:
                found.append(
                    self.displacement
                    if model.role == "full"
                    else np.asarray(np.mean([js2(p, self.oracle) for p in model.seeds], axis=0))
                )
        return found

    @cached_property
    def noise_full(self) -> NoiseFloor:
        """Noise floor between the full models."""
        return noise_floor(self.fulls)

    @cached_property
    def noise_oracle(self) -> NoiseFloor:
        """Noise floor between the oracles."""
        return noise_floor(self.oracles)


@dataclass(frozen=True, eq=False)
class Measured:
    """Resampled statistics of one view.

    row, unit: by (model's place, metric) and, for what is no model's, by (-1, name): `noise_full`,
    `noise_oracle`. unit is empty where units mean nothing (R). differences: by the places of two models.
    """

    row: Mapping[tuple[int, str], BootstrapResult]
    unit: Mapping[tuple[int, str], BootstrapResult]
    differences: Mapping[tuple[int, int], tuple[BootstrapResult, BootstrapResult | None]]


def measure_view(rows: ViewRows, *, draws: int) -> Measured:
    """Every statistic of every model on one view, under one set of row draws and one of unit draws."""
    items: dict[tuple[int, str], RowTerms] = {}
    for place, model in enumerate(rows.models):
        for metric in METRICS:
            if rows.view in metric.views and _applies(metric, model.role, rows):
                items[place, metric.name] = _terms(metric, rows, place)
    for name, floor in (("noise_full", rows.noise_full), ("noise_oracle", rows.noise_oracle)):
        if floor.terms is not None:
            items[-1, name] = floor.terms
    pairs = _differences(rows)
    names = {_key(*key): item for key, item in items.items()}
    names |= {_key(*pair, "difference"): item for pair, item in pairs.items()}
    seed = ROW_SEEDS[rows.view]
    row = bootstrap_rows(names, draws=draws, seed=seed)
    unit: dict[str, BootstrapResult] = {}
    if rows.view != "R":
        unit = bootstrap_units(names, rows.units, draws=draws, seed=seed + UNIT_SEED_OFFSET)
    return Measured(
        row={key: row[_key(*key)] for key in items},
        unit={key: unit[_key(*key)] for key in items} if unit else {},
        differences={
            pair: (row[_key(*pair, "difference")], unit.get(_key(*pair, "difference"))) for pair in pairs
        },
    )


def measure_both(f: ViewRows, g: ViewRows, *, draws: int) -> Measured:
    """The metrics over F and G together: rows drawn apart with each view's seed, units drawn once."""
    first: dict[str, RowTerms] = {}
    second: dict[str, RowTerms] = {}
    keys: list[tuple[int, str]] = []
    for place, model in enumerate(f.models):
        for metric in METRICS:
            if BOTH_VIEWS in metric.views and _applies(metric, model.role, f):
                first[_key(place, metric.name)] = _terms(metric, f, place)
                second[_key(place, metric.name)] = _terms(metric, g, place)
                keys.append((place, metric.name))
    if not keys:
        return Measured(row={}, unit={}, differences={})
    row = bootstrap_two_views(
        first, second, draws=draws, seed_first=ROW_SEEDS["F"], seed_second=ROW_SEEDS["G"]
    )
    unit = bootstrap_units_two_views(
        first, second, f.units, g.units, draws=draws, seed=ROW_SEEDS["F"] + UNIT_SEED_OFFSET
    )
    return Measured(
        row={key: row[_key(*key)] for key in keys},
        unit={key: unit[_key(*key)] for key in keys},
        differences={},
    )


def _applies(metric: Metric, role: Role, rows: ViewRows) -> bool:
    """Whether the metric says something about a model of this role with what is given.

    The full model is not compared with itself, nor the oracle; a metric that does not look at the model
    (displacement) belongs to the full model.
    """
    given = {"p", "gold", "full", "oracle", "forgotten"}
    if rows.oracle is None or role == "oracle":
        given.discard("oracle")
    if rows.forgotten is None:
        given.discard("forgotten")
    if role == "full" and "p" in metric.needs:
        given.discard("full")
    return set(metric.needs) <= given and ("p" in metric.needs or role == "full")


def _terms(metric: Metric, rows: ViewRows, place: int) -> RowTerms:
    """The metric's terms; those made of distances alone from the distances that are there already."""
    start, distance = rows.displacement, rows.distances[place]
    if start is not None and distance is not None:
        if metric.name in ("oracle_distance", "displacement"):
            return mean_of(distance)
        if metric.name == "gain":
            return mean_of(start - distance)
        if metric.name == "progress":
            return progress_terms(start, distance)
    arrays: dict[str, Any] = {
        "full": rows.full,
        "oracle": rows.oracle,
        "gold": rows.gold,
        "forgotten": rows.forgotten,
    }

    def of(p: Floats) -> RowTerms:
        return metric.compute(**{name: p if name == "p" else arrays[name] for name in metric.needs})

    found = [of(p) for p in rows.models[place].seeds]
    if len(found) == 1:
        return found[0]
    # A metric of several seeds is finished from their mean terms: the mean over seeds of a mean, and of a
    # ratio of sums the ratio of the mean sums.
    return ReasonedTerms(
        np.mean([item.terms for item in found], axis=0), found[0].finish, reason_of(found[0])
    )


def _differences(rows: ViewRows) -> dict[tuple[int, int], RowTerms]:
    """Oracle distance of one model under test minus another's, by their places; on F and G."""
    if rows.view == "R":
        return {}
    found = {}
    tested = [place for place, model in enumerate(rows.models) if model.role == "unlearned"]
    for first, second in combinations(tested, 2):
        one, other = rows.distances[first], rows.distances[second]
        if one is not None and other is not None:
            found[first, second] = mean_of(one - other)
    return found


def _key(*parts: object) -> str:
    return "/".join(map(str, parts))
