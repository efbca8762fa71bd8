"""Checks of the summaries over seeds and bundles: replication, pooled units, paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from vestige.study import audit_numbers as numbers
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import SEEDS, UNIT_OFFSET, Array, Resampled, Stat, Table

__all__ = ["CellTables", "cell_tables", "replication", "tested"]

TOLERANCE = 1e-12
NESTED_SEEDS = {"F": 201, "G": 202}
POOLED_SEEDS = {"F": 301, "G": 302}
BUNDLE_SEEDS = {"F": 401, "G": 402}
VIEWS = ("F", "G")


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
        found.unchecked.append(f"no {name}: an interrupted run, or one of an earlier version")
        return None
    return folder.json(name)


@dataclass(frozen=True)
class Gains:
    """Distances to the oracle before and after of one method, seed, bundle and view, with units."""

    start: Array
    distance: Array
    units: list[str]

    @property
    def by_unit(self) -> list[float]:
        """Mean gain of each unit, units in order of name."""
        gain = self.start - self.distance
        return [
            float(np.mean([value for value, unit in zip(gain, self.units, strict=True) if unit == name]))
            for name in sorted(set(self.units))
        ]


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


def replication(folder: Folder) -> Finding:
    """Nested and pooled estimates, their intervals, leave-one-out, differences and the decision."""
    found = Finding(what="values and intervals")
    cells = cell_tables(folder)
    labels = list(dict.fromkeys(label for cell in cells for label in cell.unlearned))
    for name, check in (("summaries/replication.json", _replicated), ("summaries/pooled.json", _pooled)):
        stored = tested(folder, name, found)
        if stored is None:
            continue
        given = [method["label"] for method in stored["methods"]]
        found.need(sorted(given) == sorted(labels), f"{name}: methods {given}, not {labels}")
        told = stored["draws"] == folder.plan.get("draws", 5000)
        found.need(told, f"{name}: another number of draws than planned")
        for method in stored["methods"]:
            for view in method["views"]:
                gains = _gains(cells, method["label"], view["view"])
                place = f"{name}: '{method['label']}' on {view['view']}"
                check(gains, view, stored, found, place)
        if name.endswith("replication.json"):
            for method in stored["methods"]:
                _decision(cells, method, found)
            _differences(cells, labels, stored, found)
    return found


def _near(again: float, stored: Any, scale: float = 1.0) -> bool:
    if isinstance(stored, dict):
        return math.isnan(again)
    return bool(abs(again - stored) <= TOLERANCE * max(1.0, scale))


def _interval(
    again: Array, stored: Any, place: str, found: Finding, *, seed: int, draws: int, kind: str, condition: str
) -> None:
    """A percentile interval from draws of one's own, and what it says of itself."""
    if "undefined" in stored:
        found.need(bool(np.ptp(again) == 0), f"{place} exists")
        return
    told = (stored["seed"], stored["draws"], stored["level"], stored["condition"])
    found.need(told == (seed, draws, 0.95, condition), f"{place}: another seed, draws, level or condition")
    found.need(stored["kind"].startswith(kind), f"{place} is called {stored['kind']}")
    resampled = Resampled(0.0, again, 2, 1.0)
    low, high = resampled.quantile(0.025), resampled.quantile(0.975)
    found.need(
        _near(low, stored["low"]) and _near(high, stored["high"]),
        f"{place} is [{low!r}, {high!r}], recorded [{stored['low']!r}, {stored['high']!r}]",
    )


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


def _crossed_interval(
    by_unit: Mapping[tuple[int, str], list[float]], stored: Any, condition: str, found: Finding, place: str
) -> None:
    if stored is None:
        found.unchecked.append(f"{place} is not recorded: a run of an earlier version")
        return
    again = _crossed(by_unit)
    if again is None or "undefined" in stored:
        found.need(again is None and "undefined" in stored, f"{place} is {again}, recorded {stored}")
        return
    same = all(abs(one - stored[end]) <= 1e-9 for one, end in zip(again, ("low", "high"), strict=True))
    found.need(same, f"{place} is {list(again)}, recorded [{stored['low']!r}, {stored['high']!r}]")
    told = (stored["draws"], stored["seed"], stored["level"], stored["condition"]) == (0, 0, 0.95, condition)
    found.need(told and "crossed" in stored["kind"], f"{place}: another level, condition or kind")


def _replicated(gains: Cells, view: Any, stored: Any, found: Finding, place: str) -> None:
    by_unit = {key: item.by_unit for key, item in gains.items()}
    again = _nested(by_unit)
    found.need(_near(again, view["estimate"]), f"{place} is {again!r}, recorded {view['estimate']!r}")
    given = {(cell["seed"], cell["bundle"]): cell for cell in view["cells"]}
    if found.need(given.keys() == gains.keys(), f"{place}: other cells than were assessed"):
        for key, cell in given.items():
            item = gains[key]
            scale = len(item.start) / max(float(item.start.sum()), 1e-300)
            same = (
                _near(float(np.mean(by_unit[key])), cell["gain"])
                and cell.get("positive") in (None, float(np.mean([gain > 0 for gain in by_unit[key]])))
                and _near(numbers.progress(item.start, item.distance).value, cell["progress"], scale)
                and (cell["units"], cell["rows"]) == (len(by_unit[key]), len(item.start))
            )
            found.need(same, f"{place}: seed {key[0]}, bundle {key[1]}")
    left = {f"seed {seed}": [key for key in by_unit if key[0] != seed] for seed, _ in by_unit}
    left |= {f"bundle {name}": [key for key in by_unit if key[1] != name] for _, name in by_unit}
    wanted = {name: _nested({key: by_unit[key] for key in rest}) for name, rest in left.items() if rest}
    same = wanted.keys() == view["left_out"].keys()
    same = same and all(_near(value, view["left_out"][name]) for name, value in wanted.items())
    found.need(same, f"{place}: leave-one-out is {wanted}")
    text = {(str(seed), bundle): units for (seed, bundle), units in by_unit.items()}
    seed = NESTED_SEEDS[view["view"]]
    _interval(
        _nested_draws(text, stored["draws"], seed),
        view["interval"],
        f"{place}: hierarchical interval",
        found,
        seed=seed,
        draws=stored["draws"],
        kind="hierarchical bootstrap",
        condition=stored["condition"],
    )
    _crossed_interval(by_unit, view.get("crossed"), stored["condition"], found, f"{place}: crossed interval")


def _decision(cells: list[CellTables], method: Any, found: Finding) -> None:
    """The replication rule, from the recorded bounds, and the infeasible cells from the assessments."""
    place = f"replication of '{method['label']}'"
    wrong = set()
    for cell in cells:
        model = cell.models.get(method["label"])
        if model is None:
            continue
        change = [model["metrics"][f"{name}.R"]["value"] for name in ("delta_accuracy", "delta_ece")]
        fits = all(isinstance(value, float | int) for value in change)
        if not (fits and change[0] >= -0.02 - TOLERANCE and change[1] <= 0.02 + TOLERANCE):
            wrong.add(f"seed {cell.seed}, bundle {cell.bundle}")
    found.need(set(method["infeasible"]) == wrong, f"{place}: infeasible cells are {sorted(wrong)}")
    left_out = [value for view in method["views"] for value in view["left_out"].values()]
    earlier = method.get("crossed") is None
    if earlier:
        found.unchecked.append(f"{place}: made before crossed intervals, by an earlier version")
    for rule, interval in (("decision", "interval"), ("crossed", "crossed"))[: 1 if earlier else 2]:
        said = method[rule]
        bounds = [view[interval]["low"] for view in method["views"] if "low" in (view.get(interval) or {})]
        decision = "infeasible cell(s)" if wrong else "replicates"
        few = len(method["seeds"]) < 2 and not earlier
        if not left_out or few or method["control"] or len(bounds) < len(method["views"]):
            decision = "undefined"
        elif min(bounds + left_out) <= 0:
            decision = "does not replicate"
        same = isinstance(said, dict) if decision == "undefined" else said == decision
        found.need(same, f"{place} by {rule} is '{decision}', recorded '{said}'")


def _pooled(gains: Cells, view: Any, stored: Any, found: Finding, place: str) -> None:
    bundles = sorted({bundle for _, bundle in gains})
    averaged = {
        bundle: np.mean([item.by_unit for key, item in gains.items() if key[1] == bundle], axis=0)
        for bundle in bundles
    }
    means = {bundle: float(np.mean(units)) for bundle, units in averaged.items()}
    same = means.keys() == view["by_bundle"].keys()
    same = same and all(_near(value, view["by_bundle"][bundle]) for bundle, value in means.items())
    again = float(np.mean(list(means.values())))
    found.need(
        same and _near(again, view["estimate"]), f"{place} is {again!r}, recorded {view['estimate']!r}"
    )
    units = np.concatenate([averaged[bundle] for bundle in bundles])
    numbered = (view["units"], view["bundles"]) == (len(units), len(bundles))
    found.need(numbered, f"{place}: {len(units)} units of {len(bundles)} bundles")
    weight = np.concatenate([np.full(len(averaged[bundle]), 1 / len(averaged[bundle])) for bundle in bundles])
    seed, draws = POOLED_SEEDS[view["view"]], stored["draws"]
    drawn = np.random.default_rng(seed).integers(0, len(units), (draws, len(units)))
    common = {"found": found, "draws": draws, "condition": stored["condition"]}
    _interval(
        (weight[drawn] * units[drawn]).sum(axis=1) / weight[drawn].sum(axis=1),
        view["unit"],
        f"{place}: interval over units",
        seed=seed,
        kind="unit bootstrap",
        **common,
    )
    seed = BUNDLE_SEEDS[view["view"]]
    if len(bundles) < 2:
        found.need("undefined" in view["bundle"], f"{place}: an interval over one bundle")
        return
    _interval(
        _nested_draws({("", bundle): list(averaged[bundle]) for bundle in bundles}, draws, seed),
        view["bundle"],
        f"{place}: interval over bundles",
        seed=seed,
        kind="bundle-then-unit bootstrap",
        **common,
    )


def _differences(cells: list[CellTables], labels: list[str], stored: Any, found: Finding) -> None:
    """Second minus first between seeds, on the same rows, and between bundles."""
    given = {
        (item["label"], item["view"], item["within"], item["first"], item["second"]): item
        for item in stored["differences"]
    }
    wanted = 0
    for label in labels:
        for view in VIEWS:
            gains = _gains(cells, label, view)
            for first, second in combinations(sorted(gains), 2):
                if first[1] == second[1]:
                    ends = f"bundle {first[1]}", f"seed {first[0]}", f"seed {second[0]}"
                elif first[0] == second[0]:
                    ends = f"seed {first[0]}", f"bundle {first[1]}", f"bundle {second[1]}"
                else:
                    continue
                wanted += 1
                key = (label, view, *ends)
                if found.need(key in given, f"no difference {key}"):
                    _difference(given[key], gains[first], gains[second], stored["draws"], found)
    found.need(
        wanted == len(stored["differences"]), f"{len(stored['differences'])} differences, not {wanted}"
    )


def _difference(item: Any, first: Gains, second: Gains, draws: int, found: Finding) -> None:
    place = f"'{item['label']}' on {item['view']}, {item['second']} minus {item['first']}, {item['within']}"
    ends = [
        {
            "gain": numbers.mean(side.start - side.distance),
            "progress": numbers.progress(side.start, side.distance),
        }
        for side in (first, second)
    ]
    stats: dict[str, Stat] = {}
    for name in ("gain", "progress"):
        again = ends[1][name].value - ends[0][name].value
        scale = max(end[name].scale for end in ends)
        found.need(_near(again, item[name]["value"], scale), f"{place}: {name} is {again!r}")
        if item["across"] == "seed":
            stats[name] = numbers.minus(ends[1][name], ends[0][name])
        else:
            found.need(item[name]["row"] is None, f"{place}: a paired interval over other rows")
    for kind, units, offset in (("row", None, 0), ("unit", first.units, UNIT_OFFSET)):
        for name, again_ in numbers.resample(stats, draws, SEEDS[item["view"]] + offset, units).items():
            interval = item[name][kind]
            if "undefined" in interval:
                found.need(
                    again_.n < 2 or math.isnan(again_.value), f"{place}: {kind} interval of {name} exists"
                )
                continue
            low, high = again_.quantile(0.025), again_.quantile(0.975)
            scale = max(end[name].scale for end in ends)
            same = _near(low, interval["low"], scale) and _near(high, interval["high"], scale)
            same = same and interval["seed"] == SEEDS[item["view"]] + offset and interval["draws"] == draws
            found.need(same, f"{place}: {kind} interval of {name} is [{low!r}, {high!r}]")
