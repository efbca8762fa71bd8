"""Checks of the metrics over several seeds, recomputed from probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.study import audit_numbers as numbers
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Table, right
from vestige.study.audit_summaries import TOLERANCE, cell_tables, tested

__all__ = ["seed_metrics"]

LEAST_SEEDS = 8
RELABELLINGS = 200
PERMUTATIONS = 1000
KLOM_SEED, LIRA_SEED, MEMBERSHIP_SEED = 501, 502, 503
RANK_TOLERANCE = 1e-6
"""Of areas over likelihood ratios: scores that are equal but for rounding may change places."""
VIEWS = ("F", "G", "R")


@dataclass(frozen=True)
class Models:
    """Seed -> table, by role; the rows of each view and the gold column of each row."""

    of_role: dict[str, dict[int, Table]]
    rows: dict[str, list[int]]
    gold: NDArray[np.intp]

    def right(self, role: str, seed: int, view: str) -> float:
        """Accuracy on a view."""
        rows = self.rows[view]
        return float(right(self.of_role[role][seed].p[rows], self.gold[rows]).mean())

    def own(self, role: str, seed: int, view: str) -> Array:
        """Gold probabilities of a view."""
        rows = self.rows[view]
        return np.asarray(self.of_role[role][seed].p[rows, self.gold[rows]])

    def log_odds(self, role: str, view: str) -> Array:
        """Models in order of seed x rows of a view."""
        rows = self.rows[view]
        found = []
        for _, table in sorted(self.of_role[role].items()):
            p = np.where(table.p[rows] < 1e-12, 1e-12, table.p[rows])
            own = p[np.arange(len(rows)), self.gold[rows]]
            others = np.where(np.arange(p.shape[1]) == self.gold[rows][:, None], 0.0, p).sum(axis=1)
            found.append(np.log(own / others))
        return np.array(found)


def seed_metrics(folder: Folder) -> Finding:
    """Every several-seed metric of every method and bundle, with its chance band."""
    found = Finding(what="values")
    stored = tested(folder, "summaries/seeds.json", found)
    if stored is None:
        return found
    cells = cell_tables(folder)
    wanted = {(label, cell.bundle) for cell in cells for label in cell.unlearned}
    given = {(method["label"], method["bundle"]) for method in stored["methods"]}
    found.need(
        wanted == given, f"summaries/seeds.json: {sorted(wanted ^ given)} differ from what was assessed"
    )
    for method in stored["methods"]:
        models = _models(folder, method["label"], method["bundle"])
        missing = sorted(_CHECKS.keys() - method["metrics"].keys())
        found.need(not missing, f"'{method['label']}', bundle {method['bundle']}: no {', '.join(missing)}")
        for name, item in method["metrics"].items():
            place = f"{name} of '{method['label']}', bundle {method['bundle']}"
            if name in _CHECKS:
                _CHECKS[name](models, item, found, place)
            else:
                found.unchecked.append(f"'{name}' is a metric that the audit does not know")
    return found


def _models(folder: Folder, label: str, bundle: str) -> Models:
    """The models of one method and bundle, their seeds taken from the nodes that made them."""
    of_role: dict[str, dict[int, Table]] = {"unlearned": {}, "oracle": {}, "full": {}, "random": {}}
    rows_hash = ""
    first: Table | None = None
    for cell in cell_tables(folder):
        if cell.bundle != bundle:
            continue
        first = first or cell.full
        for role, path in cell.paths:
            record = folder.nodes[Path(path).parent.name]
            rows_hash = record["identity"]["rows"]
            table = folder.table(path)
            if role == "unlearned" and table is not cell.unlearned.get(label):
                continue
            of_role[role][folder.by_key(role, record["identity"]["model"])["identity"]["seed"]] = table
    assert first is not None
    untrained = {
        record["key"]: record["identity"]["seed"]
        for record in folder.nodes.values()
        if record["kind"] == "random"
    }
    for name, record in folder.nodes.items():
        identity = record["identity"]
        if (
            record["kind"] == "predictions"
            and identity["model"] in untrained
            and identity["rows"] == rows_hash
        ):
            table = folder.table(f"nodes/{name}/predictions.parquet")
            of_role["random"][untrained[identity["model"]]] = table
    return Models(
        of_role,
        {view: [row for row, name in enumerate(first.view) if name == view] for view in VIEWS},
        np.array([first.options.index(name) for name in first.gold], dtype=np.intp),
    )


def _value(again: float, item: Any, found: Finding, place: str, tolerance: float = TOLERANCE) -> None:
    stored = item["value"]
    same = isinstance(stored, float | int) and abs(again - stored) <= tolerance
    found.need(same, f"{place} is {again!r}, recorded {stored!r}")


def _by_seed(again: dict[int, float], item: Any, found: Finding, place: str, tolerance: float) -> None:
    same = {str(seed) for seed in again} == item["by_seed"].keys()
    same = same and all(abs(value - item["by_seed"][str(seed)]) <= tolerance for seed, value in again.items())
    found.need(same, f"{place}: by seed {again}")


def _tow(models: Models, item: Any, found: Finding, place: str) -> None:
    shared = sorted(models.of_role["unlearned"].keys() & models.of_role["oracle"].keys())
    again = {}
    for seed in shared:
        gaps = [models.right("unlearned", seed, view) - models.right("oracle", seed, view) for view in VIEWS]
        again[seed] = math.prod(1 - abs(gap) for gap in gaps)
    _value(sum(again.values()) / len(again), item, found, place)
    _by_seed(again, item, found, place, TOLERANCE)


def _zrf(models: Models, item: Any, found: Finding, place: str) -> None:
    rows, random = models.rows["F"], models.of_role["random"]
    again = {
        seed: 1 - float(numbers.js(table.p[rows], random[seed].p[rows]).mean())
        for seed, table in models.of_role["unlearned"].items()
        if seed in random
    }
    if not again:
        found.need(isinstance(item["value"], dict), f"{place} has a value without an untrained model")
        return
    _value(sum(again.values()) / len(again), item, found, place)
    _by_seed(again, item, found, place, TOLERANCE)


def _area(high: Array, low: Array) -> float:
    """P(high > low) + P(equal) / 2 from mean ranks."""
    values = np.concatenate([high, low])
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def _membership(models: Models, item: Any, found: Finding, place: str) -> None:
    """Pairs of one class, pooled by m n / (m + n + 1); a chance band by changing places inside classes."""
    band = item["chance"]
    if isinstance(band, dict) and band.get("draws") == 0:
        found.unchecked.append(f"{place} compares rows of different classes: a run of an earlier version")
        return
    f, g = (models.gold[models.rows[view]] for view in ("F", "G"))
    found.need(item["rows"] == {"F": len(f), "G": len(g)}, f"{place}: {len(f)} members, {len(g)} others")
    shared = sorted(set(f.tolist()) & set(g.tolist()))
    if not shared:
        found.need(isinstance(item["value"], dict), f"{place} has a value without a class in both views")
        return
    sizes = [(int((f == one).sum()), int((g == one).sum())) for one in shared]
    weights = [m * n / (m + n + 1) for m, n in sizes]
    seeds = sorted(models.of_role["unlearned"])
    scores = {
        seed: np.concatenate([models.own("unlearned", seed, view) for view in ("F", "G")]) for seed in seeds
    }
    rows = [np.flatnonzero(np.concatenate([f, g]) == one) for one in shared]
    again = {
        seed: float(
            np.average(
                [_area(score[r[:m]], score[r[m:]]) for r, (m, _) in zip(rows, sizes, strict=True)],
                weights=weights,
            )
        )
        for seed, score in scores.items()
    }
    _value(sum(max(v, 1 - v) for v in again.values()) / len(again), item, found, place)
    _by_seed(again, item, found, place, TOLERANCE)
    keys = np.random.default_rng(MEMBERSHIP_SEED).random((PERMUTATIONS, len(f) + len(g)))
    drawn = np.zeros((len(seeds), PERMUTATIONS))
    for r, (m, n), weight in zip(rows, sizes, weights, strict=True):
        # Sum of members' midranks a draw, members being the rows with the m smallest numbers.
        member = np.argsort(np.argsort(keys[:, r], axis=1), axis=1) < m
        for line, seed in enumerate(seeds):
            score = scores[seed][r]
            ranks = np.array([(score < one).sum() + ((score == one).sum() + 1) / 2 for one in score])
            drawn[line] += weight * (member @ ranks - m * (m + 1) / 2) / (m * n)
    drawn /= sum(weights)
    high = numbers.Resampled(0.0, np.maximum(drawn, 1 - drawn).mean(axis=0), 2, 1.0).quantile(0.95)
    same = band["low"] == 0.5 and abs(band["high"] - high) <= 1e-9
    same = same and (band["draws"], band["seed"]) == (PERMUTATIONS, MEMBERSHIP_SEED)
    found.need(same, f"{place}: the chance band is [0.5, {high!r}]")


def _few(models: Models, item: Any, found: Finding, place: str) -> bool:
    """Whether there are too few seeds for a distribution; then the value must be undefined."""
    if min(len(models.of_role[role]) for role in ("unlearned", "oracle")) >= LEAST_SEEDS:
        return False
    found.need(isinstance(item["value"], dict), f"{place} has a value from fewer than {LEAST_SEEDS} seeds")
    return True


def _band(
    statistic: Callable[[Array, Array], float],
    sides: tuple[Array, Array],
    item: Any,
    found: Finding,
    place: str,
    *,
    seed: int,
    tolerance: float,
) -> None:
    """Central 95 % when the models change sides at random."""
    models = np.vstack(sides)
    random = np.random.default_rng(seed)
    values = np.empty(RELABELLINGS)
    for draw in range(RELABELLINGS):
        order = random.permutation(len(models))
        values[draw] = statistic(models[order[: len(sides[0])]], models[order[len(sides[0]) :]])
    low, high = (numbers.Resampled(0.0, values, 2, 1.0).quantile(share) for share in (0.025, 0.975))
    band = item["chance"]
    told = (band["seed"], band["draws"], band["level"]) == (seed, RELABELLINGS, 0.95)
    found.need(told, f"{place}: another seed, number of draws or level of the chance band")
    same = abs(low - band["low"]) <= tolerance and abs(high - band["high"]) <= tolerance
    found.need(same, f"{place}: the chance band is [{low!r}, {high!r}]")


def _power(
    statistic: Callable[[Array, Array], float],
    sides: tuple[Array, Array],
    item: Any,
    found: Finding,
    place: str,
    *,
    seed: int,
) -> None:
    """Share of relabelled, centred models that leave the band once one side is moved by half a deviation."""
    if item.get("power") is None:
        found.unchecked.append(f"{place}: no power, a run of an earlier version")
        return
    centred = [side - side.mean(axis=0) for side in sides]
    centred = [side * math.sqrt(len(side) / (len(side) - 1)) for side in centred]
    models = np.vstack(centred)
    half = np.sqrt((models * models).sum(axis=0) / len(models)) / 2
    random = np.random.default_rng(seed)
    null, moved = np.empty(RELABELLINGS), np.empty(RELABELLINGS)
    for draw in range(RELABELLINGS):
        order = random.permutation(len(models))
        first, second = models[order[: len(sides[0])]], models[order[len(sides[0]) :]]
        null[draw], moved[draw] = statistic(first, second), statistic(first + half, second)
    high = numbers.Resampled(0.0, null, 2, 1.0).quantile(0.975)
    again = float((moved > high).mean())
    # A statistic on the band's very edge may fall on either side of it.
    same = abs(again - item["power"]) <= 1.5 / RELABELLINGS
    told = ("too few" in item["note"]) == (item["power"] < 0.8)
    found.need(same and told, f"{place}: the power is {again!r}, recorded {item['power']!r}")


def _klom_value(first: Array, second: Array) -> float:
    """Mean over rows of the divergence of 20-bin histograms, the last bin closed."""
    both = np.vstack([first, second])
    inner = np.linspace(both.min(axis=0), both.max(axis=0), 21)[1:-1]
    flat = both.min(axis=0) == both.max(axis=0)
    shares = []
    for side in (first, second):
        place = np.where(flat, 0, (side[None] >= inner[:, None]).sum(axis=0))
        counts = np.array([(place == index).sum(axis=0) for index in range(20)])
        shares.append((counts / len(side) + 1e-5) / (1 + 20e-5))
    return float((shares[0] * np.log(shares[0] / shares[1])).sum(axis=0).mean())


def _klom(models: Models, item: Any, found: Finding, place: str) -> None:
    if _few(models, item, found, place):
        return
    for view in VIEWS:
        sides = models.log_odds("unlearned", view), models.log_odds("oracle", view)
        if view == "F":
            _value(_klom_value(*sides), item, found, place, 1e-9)
            _band(_klom_value, sides, item, found, place, seed=KLOM_SEED, tolerance=1e-9)
            _power(_klom_value, sides, item, found, place, seed=KLOM_SEED)
        else:
            again = _klom_value(*sides)
            same = abs(again - item["beside"][f"on {view}"]) <= 1e-9
            found.need(same, f"{place}: on {view} it is {again!r}")


def _lira_value(first: Array, second: Array) -> float:
    sides = (first, second)
    scores: list[list[Array]] = [[], []]
    for side in (0, 1):
        for place in range(len(sides[side])):
            logs = []
            for other in (0, 1):
                skip = place if other == side else place % len(sides[other])
                kept = np.delete(sides[other], skip, axis=0)
                spread = max(math.sqrt(float(kept.var(axis=0, ddof=1).mean())), 1e-6)
                z = (sides[side][place] - kept.mean(axis=0)) / spread
                logs.append(-0.5 * z * z - math.log(spread))
            scores[side].append(logs[0] - logs[1])
    return _area(np.concatenate(scores[0]), np.concatenate(scores[1]))


def _lira(models: Models, item: Any, found: Finding, place: str) -> None:
    if _few(models, item, found, place):
        return
    sides = models.log_odds("unlearned", "F"), models.log_odds("oracle", "F")
    _value(_lira_value(*sides), item, found, place, RANK_TOLERANCE)
    _band(_lira_value, sides, item, found, place, seed=LIRA_SEED, tolerance=RANK_TOLERANCE)
    _power(_lira_value, sides, item, found, place, seed=LIRA_SEED)


_CHECKS: dict[str, Callable[[Models, Any, Finding, str], None]] = {
    "klom": _klom,
    "membership_auc": _membership,
    "tow": _tow,
    "u_lira": _lira,
    "zrf": _zrf,
}
