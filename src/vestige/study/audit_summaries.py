"""Checks of the summaries over seeds and bundles: replication, pooled units, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from vestige.study import audit_numbers as numbers
from vestige.study.audit_compare import TOLERANCE, UNDEFINED, Later, Near, Said, compared
from vestige.study.audit_estimates import estimate
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import SEEDS, UNIT_OFFSET, Array, Resampled, Stat, Table

__all__ = ["TOLERANCE", "CellTables", "cell_tables", "framed", "labels_of", "replication", "tested"]

NESTED_SEEDS = {"F": 201, "G": 202}
POOLED_SEEDS = {"F": 301, "G": 302}
BUNDLE_SEEDS = {"F": 401, "G": 402}
VIEWS = ("F", "G")
NESTED = "hierarchical bootstrap over seeds, bundles and units, percentile"
POOLED = "unit bootstrap, units of all bundles drawn together, percentile"
BUNDLES = "bundle-then-unit bootstrap of seed-averaged units, percentile"
OTHER_ROWS = "other rows: no paired interval"
INPUTS = Said("a hash", lambda told: isinstance(told, str) and len(told) == 64)


@dataclass(frozen=True)
class CellTables:
    """One assessed seed x bundle under all options. models: label -> stored model under test."""

    seed: int
    bundle: str
    full: Table
    oracle: Table
    unlearned: dict[str, Table]
    models: dict[str, Any]
    paths: list[tuple[str, str]]
    """(role, path) of every source."""


def cell_tables(folder: Folder) -> list[CellTables]:
    """The planned cells that were assessed against an oracle, in order of seed as text, then bundle."""
    return folder.once("cell tables", lambda: _cell_tables(folder))


def _cell_tables(folder: Folder) -> list[CellTables]:
    planned = {entry["assessment"] for entry in folder.evaluations}
    found = []
    for stem, stored in folder.assessments.items():
        whole = stored.get("candidates", "S0") == "S0" and stored["has_oracle"]
        if not whole or f"assessments/{stem}.json" not in planned:
            continue
        of_role = {
            role: [item for item in stored["sources"] if item["role"] == role]
            for role in ("full", "oracle", "unlearned")
        }
        found.append(
            CellTables(
                seed=stored["provenance"]["seed"],
                bundle=stored["provenance"]["request"]["bundle"],
                full=folder.table(of_role["full"][0]["path"]),
                oracle=folder.table(of_role["oracle"][0]["path"]),
                unlearned={item["label"]: folder.table(item["path"]) for item in of_role["unlearned"]},
                models={model["label"]: model for model in stored["models"] if model["role"] == "unlearned"},
                paths=[(item["role"], item["path"]) for item in stored["sources"]],
            )
        )
    return sorted(found, key=lambda cell: (str(cell.seed), cell.bundle))


def tested(folder: Folder, name: str, found: Finding) -> Any:
    """A summary, or None with the reason noted: nothing was compared, or the run has not written it."""
    if not any(cell.unlearned for cell in cell_tables(folder)):
        if folder.has(name):
            found.need(False, f"{name} summarises nothing that was assessed")
        return None
    if not folder.has(name):
        if folder.earlier:
            found.unchecked.append(f"no {name}: a run of an earlier version")
        else:
            found.there(False, f"no {name}, though there is something to summarise")
        return None
    return folder.json(name)


def framed(folder: Folder, form: str, methods: Sequence[Any]) -> dict[str, Any]:
    """What every summary says of itself, with its methods."""
    return {
        "format": form,
        "inputs": INPUTS,
        "draws": folder.planned.draws,
        "condition": _condition(folder),
        "methods": list(methods),
    }


def _condition(folder: Folder) -> str:
    planned = folder.planned.planned
    seeds = sorted({cell.seed for cell in planned})
    bundles = sorted({cell.bundle for cell in planned})
    return f"training seeds {', '.join(map(str, seeds))}; bundles {', '.join(bundles)}"


@dataclass(frozen=True)
class Gains:
    """Distances to the oracle before and after of one method, seed, bundle and view, with units."""

    start: Array
    distance: Array
    units: list[str]

    @property
    def by_unit(self) -> list[float]:
        """Mean gain of each unit, units in order of name."""
        gain, units = self.start - self.distance, np.array(self.units)
        return [float(gain[units == name].mean()) for name in sorted(set(self.units))]


Cells = dict[tuple[int, str], Gains]


def _gains(cells: list[CellTables], label: str, view: str) -> Cells:
    found: Cells = {}
    for cell in cells:
        if label not in cell.unlearned:
            continue
        rows = [row for row, name in enumerate(cell.full.view) if name == view]
        oracle = cell.oracle.p[rows]
        found[cell.seed, cell.bundle] = Gains(
            numbers.js(cell.full.p[rows], oracle),
            numbers.js(cell.unlearned[label].p[rows], oracle),
            [cell.full.unit[row] for row in rows],
        )
    return found


def labels_of(folder: Folder) -> list[str]:
    """Labels of the methods that were compared, in the order of the plan."""
    planned = [entry["label"] for entry in folder.evaluations]
    there = {label for cell in cell_tables(folder) for label in cell.models}
    return [label for label in dict.fromkeys(planned) if label in there]


def replication(folder: Folder) -> Finding:
    """Nested and pooled estimates, their intervals, leave-one-out, differences and the decision."""
    found = folder.finding("values and intervals")
    cells = cell_tables(folder)
    labels = labels_of(folder)
    for name, form, make in (
        ("summaries/replication.json", "vestige-replication-1", _replicated),
        ("summaries/pooled.json", "vestige-pooled-1", _pooled),
    ):
        stored = tested(folder, name, found)
        if stored is None:
            continue
        methods = [
            {
                "label": label,
                **{key: _model(cells, label)[key] for key in ("method", "control")},
                **make(folder, cells, label),
            }
            for label in labels
        ]
        expected = framed(folder, form, methods)
        if name.endswith("replication.json"):
            expected["differences"] = Later(_differences(folder, cells, labels))
        compared(expected, stored, found, name)
    return found


def _model(cells: list[CellTables], label: str) -> Any:
    return next(cell.models[label] for cell in cells if label in cell.models)


def _near(value: float, scale: float = 1.0) -> Near:
    return Near(value, TOLERANCE * max(1.0, scale))


def _interval(
    again: Array, *, seed: int, draws: int, kind: str, condition: str, scale: float = 1.0
) -> dict[str, Any]:
    """A percentile interval from draws of one's own, and what it says of itself."""
    resampled = Resampled(0.0, again, 2, 1.0)
    return {
        "low": _near(resampled.quantile(0.025), scale),
        "high": _near(resampled.quantile(0.975), scale),
        "kind": kind,
        "level": 0.95,
        "draws": draws,
        "seed": seed,
        "condition": condition,
    }


def _nested(cells: Mapping[tuple[int, str], list[float]]) -> float:
    """Mean over seeds of the mean over bundles of the mean over units."""
    seeds = sorted({seed for seed, _ in cells})
    means = [np.mean([np.mean(units) for (seed, _), units in cells.items() if seed == one]) for one in seeds]
    return float(np.mean(means))


def _nested_draws(cells: Mapping[tuple[str, str], list[float]], draws: int, seed: int) -> Array:
    """Nested resamples: seeds, bundles inside each, units inside each; slot by slot, all draws at once."""
    order = sorted(cells)
    names = sorted({seed_name for seed_name, _ in order})
    groups = [[place for place, key in enumerate(order) if key[0] == name] for name in names]
    counts = np.array([len(group) for group in groups])
    units = np.array([len(cells[key]) for key in order])
    widest, most = int(counts.max()), int(units.max())
    table = np.full((len(order), most), np.nan)
    for place, key in enumerate(order):
        table[place, : units[place]] = cells[key]
    of_seeds, of_bundles, of_units = np.random.default_rng(seed).spawn(3)
    drawn = of_seeds.integers(0, len(groups), (draws, len(groups)))
    limits = np.repeat(counts[drawn][..., None], widest, axis=2)
    slots = of_bundles.integers(0, limits)
    first = np.array([group[0] for group in groups])
    total = np.zeros(draws)
    places = first[drawn][..., None] + slots
    picks = of_units.integers(0, np.repeat(units[places][..., None], most, axis=3))
    for one in range(len(groups)):
        inner = np.zeros(draws)
        for slot in range(widest):
            cell = places[:, one, slot]
            mean = np.zeros(draws)
            for unit in range(most):
                mean += np.where(unit < units[cell], table[cell, picks[:, one, slot, unit]], 0.0)
            inner += np.where(slot < counts[drawn[:, one]], mean / units[cell], 0.0)
        total += inner / counts[drawn[:, one]]
    return np.asarray(total / len(groups))


def _crossed(cells: Mapping[tuple[int, str], list[float]]) -> tuple[float, float] | None:
    """Bounds of the 95 % interval over crossed seeds and units, None where there is none.

    Dense matrices over the present cells: expectations of quadratic forms are traces of them with the
    covariance that one source alone gives.
    """
    seeds = sorted({seed for seed, _ in cells})
    per_seed = {one: sum(seed == one for seed, _ in cells) for one in seeds}
    items = [
        (seeds.index(seed), (bundle, place), value, 1 / (len(seeds) * per_seed[seed] * len(units)))
        for (seed, bundle), units in sorted(cells.items())
        for place, value in enumerate(units)
    ]
    names = sorted({name for _, name, _, _ in items})
    if len(seeds) < 2 or len(names) < 2:
        return None
    y, w = (np.array([item[place] for item in items], dtype=float) for place in (2, 3))
    of_seed = np.array([[item[0] == place for place in range(len(seeds))] for item in items], dtype=float)
    of_unit = np.array([[item[1] == name for name in names] for item in items], dtype=float)
    design = np.hstack([of_seed, of_unit])
    fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    df = len(y) - int(np.linalg.matrix_rank(design))
    mean = float(w @ y)
    forms, frees = [], []
    for groups in (of_seed, of_unit):
        weight = groups.T @ w
        gaps = groups.T * w - np.outer(weight, w)  # one group's weight times (its mean minus the whole's)
        forms.append(gaps.T @ gaps)
        free = (np.eye(len(weight)) - weight[:, None]) @ np.diag(weight**2) @ (np.eye(len(weight)) - weight)
        frees.append(float(np.trace(free) ** 2 / np.trace(free @ free)))
    sizes = [float(((groups.T @ w) ** 2).sum()) for groups in (of_seed, of_unit)]
    if df == 0:
        # Nothing recurs: the groups that hold several cells are independent, and their spread has it all.
        side = 0 if np.all(of_unit.sum(axis=0) == 1) else 1
        if side and not np.all(of_seed.sum(axis=0) == 1):
            return None
        half = stats.t.ppf(0.975, frees[side]) * math.sqrt(y @ forms[side] @ y / (1 - sizes[side]))
        return mean - half, mean + half
    residual = float((y - fitted) @ (y - fitted)) / df
    loads = np.array(
        [[np.trace(form @ groups @ groups.T) for groups in (of_seed, of_unit)] for form in forms]
    )
    if np.linalg.cond(loads) >= 1e8:
        return None
    known = [float(y @ form @ y) - residual * float(np.trace(form)) for form in forms]
    shared = residual * float(w @ w)
    parts = [
        max(0.0, v * size + shared) for v, size in zip(np.linalg.solve(loads, known), sizes, strict=True)
    ]
    quantiles = [float(stats.t.ppf(0.975, free)) for free in frees]
    q = float(np.average(quantiles, weights=parts)) if sum(parts) else max(quantiles)
    half = q * math.sqrt(max(sum(parts) - shared, *parts))
    return mean - half, mean + half


def _crossed_interval(by_unit: Mapping[tuple[int, str], list[float]], condition: str) -> Any:
    again = _crossed(by_unit)
    if again is None:
        return UNDEFINED
    seeds = len({seed for seed, _ in by_unit})
    units = len({(bundle, place) for (_, bundle), gains in by_unit.items() for place in range(len(gains))})
    return {
        "low": Near(again[0], 1e-9),
        "high": Near(again[1], 1e-9),
        "kind": f"t interval over {seeds} training seeds and {units} units, crossed",
        "level": 0.95,
        "draws": 0,
        "seed": 0,
        "condition": condition,
    }


def _replicated(folder: Folder, cells: list[CellTables], label: str) -> dict[str, Any]:
    """One method over seeds x bundles, whole."""
    draws, condition = folder.planned.draws, _condition(folder)
    frame: dict[str, Any] = {"draws": draws, "condition": condition}
    gains = {view: _gains(cells, label, view) for view in VIEWS}
    keys = sorted(gains["F"])
    views, bounds, crossed_bounds = [], [], []
    left_out: list[float] = []
    for view in VIEWS:
        by_unit = {key: gains[view][key].by_unit for key in keys}
        left = {f"seed {seed}": [key for key in keys if key[0] != seed] for seed, _ in keys}
        left |= {f"bundle {name}": [key for key in keys if key[1] != name] for _, name in keys}
        without = {name: _nested({key: by_unit[key] for key in rest}) for name, rest in left.items() if rest}
        text = {(str(seed), bundle): units for (seed, bundle), units in by_unit.items()}
        enough = len(keys) > 1 or len(by_unit[keys[0]]) > 1
        drawn = _nested_draws(text, draws, NESTED_SEEDS[view])
        crossed = _crossed_interval(by_unit, condition)
        views.append(
            {
                "view": view,
                "estimate": _near(_nested(by_unit)),
                "interval": _interval(drawn, seed=NESTED_SEEDS[view], kind=NESTED, **frame)
                if enough
                else UNDEFINED,
                "crossed": Later(crossed),
                "left_out": {name: _near(value) for name, value in without.items()},
                "cells": [_cell(key, gains[view][key]) for key in keys],
            }
        )
        bounds.append(Resampled(0.0, drawn, 2, 1.0).quantile(0.025))
        crossed_bounds.append(None if crossed is UNDEFINED else crossed["low"].value)
        left_out += without.values()
    wrong = _infeasible(cells, label)
    control = _model(cells, label)["control"]
    planned = {
        (entry["identity"]["seed"], entry["bundle"])
        for entry in folder.evaluations
        if entry["label"] == label and entry["identity"]["candidates"] == "S0"
    }
    few = control or len({seed for seed, _ in keys}) < 2 or not left_out
    before = folder.earlier and "crossed" not in next(
        item for item in folder.json("summaries/replication.json")["methods"] if item["label"] == label
    )
    few = few and not (before and not control and left_out)
    return {
        "seeds": sorted({seed for seed, _ in keys}),
        "bundles": sorted({bundle for _, bundle in keys}),
        "decision": UNDEFINED if few else _rule(bounds, left_out, wrong),
        "crossed": Later(
            UNDEFINED if few or None in crossed_bounds else _rule(crossed_bounds, left_out, wrong)
        ),
        "views": views,
        "infeasible": [f"seed {seed}, bundle {bundle}" for seed, bundle in wrong],
        "missing": [f"seed {seed}, bundle {bundle}" for seed, bundle in sorted(planned - set(keys))],
    }


def _rule(bounds: Sequence[Any], left_out: Sequence[float], wrong: Sequence[Any]) -> str:
    """The replication rule."""
    if min([*bounds, *left_out]) <= 0:
        return "does not replicate"
    return "infeasible cell(s)" if wrong else "replicates"


def _cell(key: tuple[int, str], item: Gains) -> dict[str, Any]:
    by_unit = item.by_unit
    scale = len(item.start) / max(float(item.start.sum()), 1e-300)
    return {
        "seed": key[0],
        "bundle": key[1],
        "gain": _near(float(np.mean(by_unit))),
        "positive": Later(_near(float(np.mean([gain > 0 for gain in by_unit])))),
        "progress": _near(numbers.progress(item.start, item.distance).value, scale),
        "units": len(by_unit),
        "rows": len(item.start),
    }


def _infeasible(cells: list[CellTables], label: str) -> list[tuple[int, str]]:
    """Seeds and bundles whose retained rows do not work, from the assessments, which have checks of their
    own."""
    wrong = []
    for cell in cells:
        model = cell.models.get(label)
        if model is None:
            continue
        change = [model["metrics"][f"{name}.R"]["value"] for name in ("delta_accuracy", "delta_ece")]
        fits = all(isinstance(value, float | int) for value in change)
        if not (fits and change[0] >= -0.02 - TOLERANCE and change[1] <= 0.02 + TOLERANCE):
            wrong.append((cell.seed, cell.bundle))
    return sorted(wrong)


def _pooled(folder: Folder, cells: list[CellTables], label: str) -> dict[str, Any]:
    """One method with its units pooled over bundles, whole."""
    draws, condition = folder.planned.draws, _condition(folder)
    views = []
    seeds: dict[str, list[int]] = {}
    for view in VIEWS:
        gains = _gains(cells, label, view)
        bundles = sorted({bundle for _, bundle in gains})
        seeds = {name: sorted(seed for seed, bundle in gains if bundle == name) for name in bundles}
        averaged = {
            bundle: np.mean([item.by_unit for key, item in gains.items() if key[1] == bundle], axis=0)
            for bundle in bundles
        }
        means = {bundle: float(np.mean(units)) for bundle, units in averaged.items()}
        units = np.concatenate([averaged[bundle] for bundle in bundles])
        weight = np.concatenate(
            [np.full(len(averaged[bundle]), 1 / len(averaged[bundle])) for bundle in bundles]
        )
        drawn = np.random.default_rng(POOLED_SEEDS[view]).integers(0, len(units), (draws, len(units)))
        over_units = (weight[drawn] * units[drawn]).sum(axis=1) / weight[drawn].sum(axis=1)
        unit: Any = UNDEFINED
        if len(units) > 1:
            unit = _interval(
                over_units, seed=POOLED_SEEDS[view], draws=draws, kind=POOLED, condition=condition
            )
        bundle_interval: Any = UNDEFINED
        if len(bundles) > 1:
            nested = {("", bundle): list(averaged[bundle]) for bundle in bundles}
            seed = BUNDLE_SEEDS[view]
            bundle_interval = _interval(
                _nested_draws(nested, draws, seed), seed=seed, draws=draws, kind=BUNDLES, condition=condition
            )
        views.append(
            {
                "view": view,
                "estimate": _near(float(np.mean(list(means.values())))),
                "unit": unit,
                "bundle": bundle_interval,
                "by_bundle": {bundle: _near(value) for bundle, value in means.items()},
                "units": len(units),
                "bundles": len(bundles),
            }
        )
    return {"seeds": seeds, "views": views}


def _differences(folder: Folder, cells: list[CellTables], labels: list[str]) -> list[dict[str, Any]]:
    """Second minus first between seeds, on the same rows, and between bundles, in the order of a run."""
    draws, found = folder.planned.draws, []
    for view in VIEWS:
        gains = {label: _gains(cells, label, view) for label in labels}
        bundles = sorted({bundle for item in gains.values() for _, bundle in item})
        seeds = sorted({seed for item in gains.values() for seed, _ in item})
        for bundle in bundles:
            found += _between_seeds(gains, view, bundle, draws)
        for seed in seeds:
            for label in labels:
                here = {key[1]: item for key, item in gains[label].items() if key[0] == seed}
                for first, second in combinations(sorted(here), 2):
                    found.append(_between_bundles(label, view, seed, (first, second), here))
    return found


def _ends(item: Gains) -> dict[str, Stat]:
    return {
        "gain": numbers.mean(item.start - item.distance),
        "progress": numbers.progress(item.start, item.distance),
    }


def _between_bundles(
    label: str, view: str, seed: int, names: tuple[str, str], here: Mapping[str, Gains]
) -> dict[str, Any]:
    first, second = (_ends(here[name]) for name in names)
    told: dict[str, Any] = {}
    for name in ("gain", "progress"):
        value = second[name].value - first[name].value
        scale = max(first[name].scale, second[name].scale)
        nothing = {"row": None, "unit": None, "rows": None, "units": None, "unstable": False}
        told[name] = {"value": _near(value, scale), **nothing, "note": OTHER_ROWS}
    return {
        "label": label,
        "view": view,
        "across": "bundle",
        "within": f"seed {seed}",
        "first": f"bundle {names[0]}",
        "second": f"bundle {names[1]}",
        **told,
    }


def _between_seeds(gains: Mapping[str, Cells], view: str, bundle: str, draws: int) -> list[dict[str, Any]]:
    """All pairs of seeds of every method on one bundle's rows, under the same draws."""
    stats_of: dict[tuple[str, int, int, str], Stat] = {}
    units: list[str] = []
    pairs: list[tuple[str, int, int]] = []
    for label, mine in gains.items():
        here = {key[0]: item for key, item in mine.items() if key[1] == bundle}
        for first, second in combinations(sorted(here), 2):
            units = here[first].units
            pairs.append((label, first, second))
            ends = _ends(here[first]), _ends(here[second])
            for name in ("gain", "progress"):
                made = numbers.minus(ends[1][name], ends[0][name])
                scale = max(end[name].scale for end in ends)
                stats_of[label, first, second, name] = Stat(made.columns, made.finish, scale)
    row = numbers.resample(stats_of, draws, SEEDS[view])
    unit = numbers.resample(stats_of, draws, SEEDS[view] + UNIT_OFFSET, units)
    found = []
    for label, first, second in pairs:
        condition = f"training seeds {first} and {second}, bundle {bundle}"
        told = {
            name: estimate(
                row[key],
                unit[key],
                seeds=(SEEDS[view], SEEDS[view] + UNIT_OFFSET),
                draws=draws,
                condition=condition,
            )
            for name in ("gain", "progress")
            for key in [(label, first, second, name)]
        }
        found.append(
            {
                "label": label,
                "view": view,
                "across": "seed",
                "within": f"bundle {bundle}",
                "first": f"seed {first}",
                "second": f"seed {second}",
                **told,
            }
        )
    return found
