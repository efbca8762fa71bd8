"""Checks of the metrics over several seeds, recomputed from probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.study import audit_numbers as numbers
from vestige.study.audit_compare import UNDEFINED, Later, Near, Said, Words, anything, compared
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Table, right
from vestige.study.audit_summaries import cell_tables, framed, labels_of, tested

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
    found = folder.finding("values")
    name = "summaries/seeds.json"
    stored = tested(folder, name, found)
    if stored is None:
        return found
    cells = cell_tables(folder)
    methods = []
    told = {(method["label"], method["bundle"]): method for method in stored["methods"]}
    for bundle in sorted({cell.bundle for cell in cells}):
        for label in labels_of(folder):
            here = [cell for cell in cells if cell.bundle == bundle and label in cell.models]
            if not here:
                continue
            models = _models(folder, label, bundle)
            given = told.get((label, bundle), {"metrics": {}})["metrics"]
            metrics: dict[str, Any] = {
                key: make(models, given.get(key, {})) for key, make in _METRICS.items()
            }
            if folder.earlier and (given.get("membership_auc", {}).get("chance") or {}).get("draws") == 0:
                metrics["membership_auc"] = anything
                found.unchecked.append(
                    f"membership_auc of '{label}', bundle {bundle}, compares rows of different classes: a "
                    "run of an earlier version"
                )
            strange = sorted(given.keys() - metrics.keys())
            found.unchecked += [f"'{key}' is a metric that the audit does not know" for key in strange]
            methods.append(
                {
                    "label": label,
                    "method": here[0].models[label]["method"],
                    "control": here[0].models[label]["control"],
                    "bundle": bundle,
                    "metrics": {**metrics, **dict.fromkeys(strange, anything)},
                }
            )
    compared(framed(folder, "vestige-seeds-1", methods), stored, found, name)
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


def _area(high: Array, low: Array) -> float:
    """P(high > low) + P(equal) / 2 from mean ranks."""
    values = np.concatenate([high, low])
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def _told(
    value: Any,
    *,
    rows: Mapping[str, int] | None = None,
    seeds: Mapping[str, int] | None = None,
    by_seed: Mapping[int, Any] | None = None,
    chance: Any = None,
    power: Any = None,
    beside: Mapping[str, Any] | None = None,
    note: Any = "",
) -> dict[str, Any]:
    """The record of one metric."""
    return {
        "value": value,
        "by_seed": {str(seed): one for seed, one in (by_seed or {}).items()},
        "chance": chance,
        "power": Later(power),
        "beside": dict(beside or {}),
        "seeds": dict(seeds or {}),
        "rows": dict(rows or {}),
        "note": Words(note),
    }


def _counts(models: Models, *roles: str) -> dict[str, int]:
    return {role: len(models.of_role[role]) for role in roles}


def _sizes(models: Models, views: Sequence[str]) -> dict[str, int]:
    return {view: len(models.rows[view]) for view in views}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _tow(models: Models, told: Any) -> dict[str, Any]:
    def product(role: str, seed: int) -> float:
        gaps = [models.right(role, seed, view) - models.right("oracle", seed, view) for view in VIEWS]
        return math.prod(1 - abs(gap) for gap in gaps)

    unlearned, oracles, fulls = (models.of_role[role] for role in ("unlearned", "oracle", "full"))
    shared = sorted(unlearned.keys() & oracles.keys())
    sizes = _sizes(models, VIEWS)
    if not shared or min(sizes.values()) == 0:
        return _told(UNDEFINED, rows=sizes)
    again = {seed: product("unlearned", seed) for seed in shared}
    full = [product("full", seed) for seed in shared if seed in fulls]
    return _told(
        Near(_mean(list(again.values()))),
        rows=sizes,
        seeds={"unlearned": len(shared), "oracle": len(shared)},
        by_seed={seed: Near(value) for seed, value in again.items()},
        beside={"full": Near(_mean(full))} if full else {},
        note="each unlearned model against the oracle of its own seed; mean over seeds",
    )


def _zrf(models: Models, told: Any) -> dict[str, Any]:
    rows, random = models.rows["F"], models.of_role["random"]

    def over(role: str) -> dict[int, float]:
        return {
            seed: 1 - float(numbers.js(table.p[rows], random[seed].p[rows]).mean())
            for seed, table in sorted(models.of_role[role].items())
            if seed in random
        }

    again = over("unlearned")
    sizes = _sizes(models, ("F",))
    if not again or not rows:
        return _told(UNDEFINED, rows=sizes)
    others = {role: list(over(role).values()) for role in ("oracle", "full")}
    return _told(
        Near(_mean(list(again.values()))),
        rows=sizes,
        seeds={"unlearned": len(again), "random": len(again)},
        by_seed={seed: Near(value) for seed, value in again.items()},
        beside={role: Near(_mean(values)) for role, values in others.items() if values},
        note="the oracle's value is what retraining gives: higher than that is no better",
    )


def _membership(models: Models, told: Any) -> dict[str, Any]:
    """Pairs of one class, pooled by m n / (m + n + 1); a chance band by changing places inside classes."""
    f, g = (models.gold[models.rows[view]] for view in ("F", "G"))
    sizes = {"F": len(f), "G": len(g)}
    counts = _counts(models, "unlearned", "oracle", "full")
    shared = sorted(set(f.tolist()) & set(g.tolist()))
    if not shared:
        return _told(UNDEFINED, rows=sizes, seeds=counts)
    pairs = [(int((f == one).sum()), int((g == one).sum())) for one in shared]
    weights = [m * n / (m + n + 1) for m, n in pairs]
    rows = [np.flatnonzero(np.concatenate([f, g]) == one) for one in shared]

    def scores_of(role: str, seed: int) -> Array:
        return np.concatenate([models.own(role, seed, view) for view in ("F", "G")])

    def area(score: Array) -> float:
        areas = [_area(score[r[:m]], score[r[m:]]) for r, (m, _) in zip(rows, pairs, strict=True)]
        return float(np.average(areas, weights=weights))

    seeds = sorted(models.of_role["unlearned"])
    scores = {seed: scores_of("unlearned", seed) for seed in seeds}
    again = {seed: area(score) for seed, score in scores.items()}
    keys = np.random.default_rng(MEMBERSHIP_SEED).random((PERMUTATIONS, len(f) + len(g)))
    drawn = np.zeros((len(seeds), PERMUTATIONS))
    for r, (m, n), weight in zip(rows, pairs, weights, strict=True):
        # Sum of members' midranks a draw, members being the rows with the m smallest numbers.
        member = np.argsort(np.argsort(keys[:, r], axis=1), axis=1) < m
        for line, seed in enumerate(seeds):
            score = scores[seed][r]
            ranks = np.array([(score < one).sum() + ((score == one).sum() + 1) / 2 for one in score])
            drawn[line] += weight * (member @ ranks - m * (m + 1) / 2) / (m * n)
    drawn /= sum(weights)
    sided = np.maximum(drawn, 1 - drawn)
    high = _quantile(sided.mean(axis=0), 0.95)
    # A seed on the very edge of its band may fall on either side of it.
    outside = [
        sum(
            max(again[seed], 1 - again[seed]) > _quantile(sided[line], 0.95) + margin
            for line, seed in enumerate(seeds)
        )
        for margin in (1e-9, -1e-9)
    ]
    beside = {
        role: Near(
            _mean([max(v, 1 - v) for v in [area(scores_of(role, seed)) for seed in models.of_role[role]]])
        )
        for role in ("oracle", "full")
        if models.of_role[role]
    }
    lost = sum(int((~np.isin(one, other)).sum()) for one, other in ((f, g), (g, f)))
    left = f", {lost} of them of a class that the other view lacks: left out" if lost else ""
    notes = [
        f"{len(f)} members (F), {len(g)} non-members (G, rows that no model was trained on){left}; by seed "
        f"one-sided, {number} of {len(seeds)} seeds outside the chance band"
        for number in range(outside[0], outside[1] + 1)
    ]
    return _told(
        Near(_mean([max(v, 1 - v) for v in again.values()])),
        rows=sizes,
        seeds=counts,
        by_seed={seed: Near(value) for seed, value in again.items()},
        chance={
            "low": 0.5,
            "high": Near(high, 1e-9),
            "kind": "chance band: members and non-members of each class change places",
            "level": 0.95,
            "draws": PERMUTATIONS,
            "seed": MEMBERSHIP_SEED,
            "condition": f"{len(f)} members and {len(g)} non-members, rows of a class exchangeable",
        },
        beside=beside,
        note=notes[0] if len(notes) == 1 else Said(notes[0], lambda note: note in notes),
    )


def _quantile(values: Array, share: float) -> float:
    return numbers.Resampled(0.0, values, 2, 1.0).quantile(share)


def _few(models: Models) -> bool:
    """Whether there are too few seeds for a distribution; then the value must be undefined."""
    return min(len(models.of_role[role]) for role in ("unlearned", "oracle")) < LEAST_SEEDS


def _band(
    statistic: Callable[[Array, Array], float],
    sides: tuple[Array, Array],
    what: str,
    *,
    seed: int,
    tolerance: float,
) -> dict[str, Any]:
    """Central 95 % when the models change sides at random."""
    models = np.vstack(sides)
    random = np.random.default_rng(seed)
    values = np.empty(RELABELLINGS)
    for draw in range(RELABELLINGS):
        order = random.permutation(len(models))
        values[draw] = statistic(models[order[: len(sides[0])]], models[order[len(sides[0]) :]])
    return {
        "low": Near(_quantile(values, 0.025), tolerance),
        "high": Near(_quantile(values, 0.975), tolerance),
        "kind": f"chance band: {what} of models whose labels are drawn anew",
        "level": 0.95,
        "draws": RELABELLINGS,
        "seed": seed,
        "condition": f"{len(sides[0])} unlearned models and {len(sides[1])} oracles",
    }


def _power(
    statistic: Callable[[Array, Array], float], sides: tuple[Array, Array], told: Any, *, seed: int
) -> tuple[Any, str]:
    """Share of relabelled, centred models that leave the band once one side is moved by half a deviation, and
    what a small one means for a reader."""
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
    again = float((moved > _quantile(null, 0.975)).mean())
    # A statistic on the band's very edge may fall on either side of it.
    near = Near(again, 1.5 / RELABELLINGS)
    stored = told.get("power")
    power = stored if isinstance(stored, float) and abs(stored - again) <= near.tolerance else again
    if power >= 0.8:
        return near, ""
    counts = f"{len(sides[0])} unlearned models and {len(sides[1])} oracles"
    return near, (
        f"; {counts} are too few: a difference of half a standard deviation over seeds would leave the "
        f"chance band {100 * power:.0f} % of the time, 80 % is wanted, so a value inside the band shows "
        "little"
    )


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


def _klom(models: Models, told: Any) -> dict[str, Any]:
    counts = _counts(models, "unlearned", "oracle")
    if _few(models):
        return _told(UNDEFINED, seeds=counts)
    values = {}
    for view in VIEWS:
        if models.rows[view]:
            sides = models.log_odds("unlearned", view), models.log_odds("oracle", view)
            values[view] = Near(_klom_value(*sides), 1e-9)
    sides = models.log_odds("unlearned", "F"), models.log_odds("oracle", "F")
    power, words = _power(_klom_value, sides, told, seed=KLOM_SEED)
    return _told(
        values["F"],
        rows=_sizes(models, list(values)),
        seeds=counts,
        chance=_band(_klom_value, sides, "KLoM on F", seed=KLOM_SEED, tolerance=1e-9),
        power=power,
        beside={f"on {view}": value for view, value in values.items() if view != "F"},
        note="few models a row leave most bins empty: read the value beside its chance band, not against 0"
        + words,
    )


def _lira_ratios(first: Array, second: Array) -> list[list[Array]]:
    """Log likelihood ratio of each model on each row, by side, the model itself held out."""
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
    return scores


def _lira_value(first: Array, second: Array) -> float:
    scores = _lira_ratios(first, second)
    return _area(np.concatenate(scores[0]), np.concatenate(scores[1]))


def _lira(models: Models, told: Any) -> dict[str, Any]:
    counts = _counts(models, "unlearned", "oracle")
    if _few(models):
        return _told(UNDEFINED, seeds=counts)
    sides = models.log_odds("unlearned", "F"), models.log_odds("oracle", "F")
    power, words = _power(_lira_value, sides, told, seed=LIRA_SEED)
    scores = _lira_ratios(*sides)
    mine, others = (np.concatenate(side) for side in scores)
    seeds = sorted(models.of_role["unlearned"])
    right = (float((mine > 0).mean()) + float((others < 0).mean())) / 2
    return _told(
        Near(_area(mine, others), RANK_TOLERANCE),
        rows=_sizes(models, ("F",)),
        seeds=counts,
        by_seed={
            seed: Near(_area(row, others), RANK_TOLERANCE) for seed, row in zip(seeds, scores[0], strict=True)
        },
        chance=_band(_lira_value, sides, "AUC", seed=LIRA_SEED, tolerance=RANK_TOLERANCE),
        power=power,
        beside={"balanced accuracy at ratio 1": Near(right, RANK_TOLERANCE)},
        note="0.5: the test cannot tell unlearned from retrained models; 1: it always does" + words,
    )


_METRICS: dict[str, Callable[[Models, Any], dict[str, Any]]] = {
    "klom": _klom,
    "membership_auc": _membership,
    "tow": _tow,
    "u_lira": _lira,
    "zrf": _zrf,
}
