"""Checks of recovery curves, contrasts, thresholds, fresh heads and all their intervals, recomputed.

Written from the specification; it shares no metric and no statistics code with what made the records.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vestige.study import audit_numbers as numbers
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Resampled, Stat
from vestige.study.audit_recovery import CHECKPOINTS, columns, parts, records

__all__ = ["recovery_values"]

TOLERANCE = 1e-12
ROW_SEEDS = {"unseen": 2, "seen": 1, "label swap": 3}
UNIT_SEED = 102
Key = tuple[str, int, int, str]
Line = tuple[str, float, bool]


def recovery_values(folder: Folder) -> Finding:
    """Curves from the adaptations' tables, contrasts, thresholds and intervals from the curves."""
    found = folder.finding("values")
    made = records(folder)
    found.need(
        all(record["format"] == "vestige-recovery-1" for record in made.values()),
        "a record of another format",
    )
    for stem, record in made.items():
        if record["curves"]:
            data = (folder.root / record["curves"]).read_bytes()
            found.need(
                hashlib.sha256(data).hexdigest() == record["curves_sha256"],
                f"{stem}: another table of curves",
            )
            lines = _lines(folder, record)
            found.need(lines == _stored(folder, record), f"{stem}: curves are not those of its adaptations")
            _contrasts(folder, stem, record, lines, found)
        _heads(folder, stem, record, found)
    return found


def _lines(folder: Folder, record: Any) -> dict[Key, dict[tuple[int, str], Line]]:
    """(population, k, seed, checkpoint) -> (t, row) -> (unit, p, correct), from the nodes."""
    role = {key: name for name, key in record["nodes"].items()}
    found: dict[Key, dict[tuple[int, str], Line]] = {}
    for name, node in parts(folder, record, "recovery"):
        identity = node["identity"]
        table = columns(folder.root / "nodes" / name / "curves.parquet")
        for population, t, row, *line in zip(
            *(table[key] for key in ("population", "t", "row_id", "unit", "p_gold", "correct")), strict=True
        ):
            key = (population, identity["k"], identity["adapt_seed"], role[identity["model"]])
            found.setdefault(key, {})[t, row] = (line[0], line[1], line[2])
    return found


def _stored(folder: Folder, record: Any) -> dict[Key, dict[tuple[int, str], Line]]:
    table = columns(folder.root / record["curves"])
    names = ("population", "k", "adapt_seed", "checkpoint", "t", "row_id", "unit", "p_gold", "correct")
    found: dict[Key, dict[tuple[int, str], Line]] = {}
    for population, k, seed, checkpoint, t, row, *line in zip(*(table[name] for name in names), strict=True):
        found.setdefault((population, k, seed, checkpoint), {})[t, row] = (line[0], line[1], line[2])
    return found


def area(t: Sequence[int], p: Array) -> Array:
    """Trapezoid over the horizon: rows (n, T) -> (n,)."""
    whole = np.zeros(len(p))
    for before, after in zip(range(len(t) - 1), range(1, len(t)), strict=True):
        whole += (t[after] - t[before]) * (p[:, before] + p[:, after]) / 2
    return np.asarray(whole / t[-1])


def contrasts(t: Sequence[int], u: Array, o: Array, on: Array) -> dict[str, Stat]:
    """The four contrasts of rows (n, T) of the unlearned model and the oracle.

    on (n,): 1 where a row is scored, 0 where it is drawn with the others and adds nothing.
    """
    a_u, a_o, u0, o0 = area(t, u), area(t, o), u[:, 0], o[:, 0]

    def shares(s: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = s[:, 0] / s[:, 1] - s[:, 2] / s[:, 3]
        return np.asarray(np.where((s[:, 1] > 0) & (s[:, 3] > 0), value, np.nan))

    least = max(min(float(((1 - u0) * on).sum()), float(((1 - o0) * on).sum())), 1e-300)
    room = (u0 < 1) & (o0 < 1) & (on > 0)
    safe_u, safe_o = np.where(room, 1 - u0, 1.0), np.where(room, 1 - o0, 1.0)
    row = np.where(room, (a_u - u0) / safe_u - (a_o - o0) / safe_o, 0.0)
    return {
        "g_abs": numbers.ratio((a_u - a_o) * on, on, 0.0),
        "g_adj": numbers.ratio(((a_u - u0) - (a_o - o0)) * on, on, 0.0),
        "g_headroom": Stat(
            np.column_stack([a_u - u0, 1 - u0, a_o - o0, 1 - o0]) * on[:, None],
            shares,
            max(1.0, len(u) / least),
        ),
        "g_row_headroom": Stat(
            np.column_stack([row, room]),
            numbers.ratio(row, room.astype(np.float64), 0.0).finish,
            float(1 / min(safe_u.min(), safe_o.min())),
        ),
    }


def levels(u: Array, o: Array, on: Array) -> dict[str, Stat]:
    """After and before of rows (n, T) beside the oracle's after, and the unlearned model's own rise."""
    return {
        "level": numbers.ratio((u[:, -1] - o[:, -1]) * on, on, 0.0),
        "start_level": numbers.ratio((u[:, 0] - o[:, -1]) * on, on, 0.0),
        "rise": numbers.ratio((u[:, -1] - u[:, 0]) * on, on, 0.0),
    }


def _reading(record: Any, found: Finding, stem: str) -> None:
    """The word, from the recorded pooled levels and their row intervals."""
    pooled = {item["population"]: item["contrasts"] for item in record["pooled"]}

    def shown(population: str, name: str) -> bool:
        item = pooled[population][name]
        low = item["row"].get("low")
        return isinstance(item["value"], float) and item["value"] >= 0.01 and low is not None and low > 0

    level = pooled["unseen"]["level"]
    if level["rows"] < 10:
        found.need(isinstance(record["reading"], dict), f"{stem}: a reading of {level['rows']} unseen rows")
        return
    rose = shown("unseen", "rise")
    starts = pooled["unseen"]["g_abs"]["value"] - pooled["unseen"]["g_adj"]["value"]
    above = shown("unseen", "level") and max(level["value"], starts) >= 0.05
    if "label swap" in pooled and shown("label swap", "level"):
        above = above and pooled["label swap"]["level"]["value"] < level["value"]
    if not above:
        word = "learned anew" if rose else "no return"
    else:
        word = "return" if rose and not shown("unseen", "start_level") else "still there"
    found.need(record["reading"] == word, f"{stem}: the reading is '{word}', recorded '{record['reading']}'")


def _averaged(items: Sequence[Stat]) -> Stat:
    width = items[0].columns.shape[1]

    def finish(s: Array) -> Array:
        parts = [item.finish(s[:, i * width : (i + 1) * width]) for i, item in enumerate(items)]
        return np.asarray(sum(parts) / len(parts))

    return Stat(np.hstack([item.columns for item in items]), finish, max(item.scale for item in items))


def _wide(
    lines: Mapping[tuple[int, str], Line], t: Sequence[int], rows: Sequence[str]
) -> tuple[Array, Array, Array]:
    """p (n, T) and correct (n, T) of these rows, 0 where a row is not scored, and (n,) 1 where it is."""
    on = np.array([float((t[0], row) in lines) for row in rows])
    none = ("", 0.0, False)
    p = np.array([[lines.get((update, row), none)[1] for update in t] for row in rows])
    right = np.array([[lines.get((update, row), none)[2] for update in t] for row in rows], dtype=np.float64)
    return p, right, on


def _drawn_from(folder: Folder, record: Any, lines: Mapping[Key, Any], name: str) -> dict[str, str]:
    """Row -> unit that intervals of a population draw from: of the seen all deleted rows, else the scored."""
    if name == "seen":
        return dict(folder.requests[record["bundle"]]["unit_of"])
    return {row: line[0] for key, mine in lines.items() if key[0] == name for (_, row), line in mine.items()}


def _contrasts(
    folder: Folder,
    stem: str,
    record: Any,
    lines: Mapping[Key, Mapping[tuple[int, str], Line]],
    found: Finding,
) -> None:
    t, draws = record["updates"], record["draws"]
    pairs = [(k, seed) for k in record["plan"]["budgets"] for seed in record["plan"]["adapt_seeds"]]
    names = {
        "unseen": record["exposure"]["units"],
        "seen": record["exposure"]["units"],
        "label swap": [f"{item['source']} as {item['target']}" for item in record["exposure"]["pairs"]],
    }
    there = sorted({key[0] for key in lines})
    settings = {(item["population"], item["k"], item["adapt_seed"]): item for item in record["settings"]}
    wanted = {(name, *pair) for name in there for pair in pairs}
    planned = set(settings) == wanted and len(record["settings"]) == len(wanted)
    if not found.need(planned, f"{stem}: other settings than planned"):
        return
    pooled = {item["population"]: item for item in record["pooled"]}
    by_levels = record.get("reading") is not None
    if not by_levels:
        found.unchecked.append(f"{stem}: made before levels were read, by an earlier version")
    advantage: dict[str, dict[Any, tuple[Array, Array]]] = {}
    index: dict[str, list[str]] = {}
    for name in there:
        stats: dict[tuple[Any, str], Stat] = {}
        unit_of = _drawn_from(folder, record, lines, name)
        rows = sorted(unit_of)
        index[name] = [f"{names[name].index(unit_of[row]):04d}" for row in rows]
        for pair in pairs:
            wide = {role: _wide(lines[name, *pair, role], t, rows) for role in CHECKPOINTS}
            on = wide["full"][2]
            item = settings[name, *pair]
            counts = (int(on.sum()), len({unit for unit, one in zip(index[name], on, strict=True) if one}))
            found.need((item["rows"], item["units"]) == counts, f"{stem}: rows or units of {name}, {pair}")
            for role in CHECKPOINTS:
                p, right, mine = wide[role]
                kept = mine > 0
                found.need(bool((mine == on).all()), f"{stem}: {role} scores other rows of {name}, {pair}")
                _curve(
                    f"{stem}: {name}, {pair}, {role}", t, p[kept], right[kept], item["curves"][role], found
                )
            u, o = wide["unlearned"][0], wide["oracle"][0]
            made = contrasts(t, u, o, on) | (levels(u, o, on) if by_levels else {})
            stats |= {(pair, metric): stat for metric, stat in made.items()}
            start = float(u[on > 0, 0].mean() - o[on > 0, 0].mean())
            gap = abs(made["g_abs"].value - (start + made["g_adj"].value))
            found.need(
                abs(gap - item["identity_residual"]) <= TOLERANCE,
                f"{stem}: identity residual of {name}, {pair}",
            )
            gained = ((area(t, u) - u[:, 0]) - (area(t, o) - o[:, 0])) * on
            advantage.setdefault(name, {})[pair] = gained, on
        for metric in made:
            stats[None, metric] = _averaged([stats[pair, metric] for pair in pairs])
        row = numbers.resample(stats, draws, ROW_SEEDS[name])
        unit_draws = numbers.resample(stats, draws, UNIT_SEED, index[name])
        for (pair_or_all, metric), again in row.items():
            told = (pooled[name] if pair_or_all is None else settings[name, *pair_or_all])["contrasts"][
                metric
            ]
            place = f"{stem}: {metric} of {name}, {pair_or_all or 'pooled'}"
            _estimate(
                place, told, again, unit_draws[pair_or_all, metric], ROW_SEEDS[name], UNIT_SEED, draws, found
            )
    if by_levels:
        _reading(record, found, stem)
    _direct(stem, record, advantage, index, found)


def _curve(place: str, t: Sequence[int], p: Array, right: Array, told: Any, found: Finding) -> None:
    mean = p.mean(axis=0)
    whole, start = float(area(t, mean[None, :])[0]), float(mean[0])
    same = _close(mean, told["gold_probability"]) and _close(right.mean(axis=0), told["accuracy"])
    same = same and _close([start, whole, whole - start], [told["start"], told["area"], told["adjusted"]])
    head = told["headroom"]
    same = same and (
        isinstance(head, dict)
        if start >= 1
        else _close([(whole - start) / (1 - start)], [head], 1 / (1 - start))
    )
    found.need(same, f"{place}: curve or area")
    for item in told["reached"]:
        first = next(
            (update for update, value in zip(t, mean, strict=True) if value >= item["threshold"]), None
        )
        near = bool((np.abs(mean - item["threshold"]) <= TOLERANCE).any())
        again = (t[-1], True) if first is None else (first, False)
        found.need(
            near or again == (item["update"], item["censored"]), f"{place}: first t at {item['threshold']}"
        )


def _close(again: Any, told: Any, scale: float = 1.0) -> bool:
    gap = np.abs(np.asarray(again, dtype=np.float64) - np.asarray(told, dtype=np.float64))
    return bool((gap <= TOLERANCE * scale).all())


def _direct(
    stem: str, record: Any, advantage: Mapping[str, Any], index: Mapping[str, list[str]], found: Finding
) -> None:
    """specificity = R_unseen - R_swap, exposure = R_seen - R_unseen, at every setting, at every budget over
    its adaptation seeds, and over all settings."""
    sides = {"specificity": ("unseen", "label swap"), "exposure": ("seen", "unseen")}
    draws = record["draws"]
    seen: dict[str, set[Any]] = {}
    for item in record["controls"]:
        first, second = sides[item["name"]]
        place = f"{stem}: {item['name']}, k {item['k']}, seed {item['adapt_seed']}"
        if "undefined" in item["difference"]:
            found.need(not {first, second} <= set(advantage), f"{place} is defined")
            continue
        seen.setdefault(item["name"], set()).add((item["k"], item["adapt_seed"]))
        pairs = [
            pair
            for pair in advantage[first]
            if item["k"] in (None, pair[0]) and item["adapt_seed"] in (None, pair[1])
        ]
        values, drawn = [], []
        unit_sums = np.zeros((len(record["exposure"]["units"]), 4 * len(pairs)))
        for name, column in ((first, 0), (second, 2)):
            stats = {
                pair: numbers.ratio(gained, on, 0.0)
                for pair in pairs
                for gained, on in [advantage[name][pair]]
            }
            values.append(float(np.mean([stat.value for stat in stats.values()])))
            again = numbers.resample(stats, draws, ROW_SEEDS[name])
            drawn.append(np.mean([again[pair].draws for pair in pairs], axis=0))
            at = [int(number) for number in index[name]]
            for number, pair in enumerate(pairs):
                gained, on = advantage[name][pair]
                np.add.at(unit_sums[:, 4 * number + column], at, gained)
                np.add.at(unit_sums[:, 4 * number + column + 1], at, on)

        def both(s: Array, count: int = len(pairs)) -> Array:
            parts = s.reshape(len(s), count, 4)
            return np.asarray(
                (parts[:, :, 0] / parts[:, :, 1] - parts[:, :, 2] / parts[:, :, 3]).mean(axis=1)
            )

        _estimate(
            place,
            item["difference"],
            Resampled(
                values[0] - values[1], drawn[0] - drawn[1], len(index[first]) + len(index[second]), 1.0
            ),
            numbers.resample({"": Stat(unit_sums, both)}, draws, UNIT_SEED)[""],
            ROW_SEEDS[first],
            UNIT_SEED,
            draws,
            found,
        )
    for name, given in seen.items():
        pairs = list(advantage[sides[name][0]])
        wanted = {*pairs, *((k, None) for k, _ in pairs), (None, None)}
        found.need(given == wanted, f"{stem}: {name} is not at every setting, budget and pooled")


def _estimate(
    place: str,
    told: Any,
    row: Resampled,
    unit: Resampled,
    row_seed: int,
    unit_seed: int,
    draws: int,
    found: Finding,
) -> None:
    value = told["value"]
    same = math.isnan(row.value) if isinstance(value, dict) else _close([row.value], [value], row.scale)
    found.need(same, f"{place} is {row.value!r}, recorded {value!r}")
    found.need(told["rows"] == row.n and told["units"] == unit.n, f"{place}: other counts of rows or units")
    for kind, again, seed in (("row", row, row_seed), ("unit", unit, unit_seed)):
        interval = told[kind]
        if "undefined" in interval:
            found.need(math.isnan(again.value) or again.n < 2, f"{place}: its {kind} interval exists")
            continue
        found.need(
            (interval["seed"], interval["draws"], interval["level"]) == (seed, draws, 0.95)
            and interval["kind"].startswith(f"{kind} bootstrap"),
            f"{place}: another kind, seed, level or number of draws of the {kind} interval",
        )
        bounds = [again.quantile(0.025), again.quantile(0.975)]
        found.need(
            _close(bounds, [interval["low"], interval["high"]], again.scale),
            f"{place}: {kind} interval is {bounds}, recorded [{interval['low']}, {interval['high']}]",
        )


def _heads(folder: Folder, stem: str, record: Any, found: Finding) -> None:
    """Fresh heads: the same start on every checkpoint, retained rows alone, every value and interval."""
    role = {key: name for name, key in record["nodes"].items()}
    told = {(item["checkpoint"], item["initialisation"]): item for item in record["fresh_heads"]}
    count = record["plan"]["fresh_heads"]
    planned = set(told) == {(name, i) for name in CHECKPOINTS for i in range(count)}
    if not found.need(planned, f"{stem}: other fresh heads than planned"):
        return
    view = {row: (name, unit) for row, name, unit in folder.views[f"{record['bundle']}-evaluation"]}
    deleted = len(folder.requests[record["bundle"]]["unit_of"])
    full = next((node for node in folder.nodes.values() if node["kind"] == "full"), None)
    starts: dict[int, set[str]] = {}
    for name, node in parts(folder, record, "fresh-head"):
        checkpoint = role[node["identity"]["model"]]
        table = columns(folder.root / "nodes" / name / "heads.parquet")
        if full is not None:
            same = node["result"]["train_rows"] == full["result"]["train_rows"] - deleted
            found.need(same, f"{stem}: {name} was not trained on the retained rows")
        for number, head in enumerate(node["result"]["heads"]):
            starts.setdefault(number, set()).add(head["initial_sha256"])
            found.need(
                told[checkpoint, number]["initial_sha256"] == head["initial_sha256"],
                f"{stem}: initialisation {number} on {checkpoint} has another hash",
            )
        lines: dict[int, list[tuple[str, str, str, float, bool]]] = {}
        keys = ("initialisation", "row_id", "view", "unit", "p_gold", "correct")
        for number, *line in zip(*(table[key] for key in keys), strict=True):
            lines.setdefault(number, []).append((line[0], line[1], line[2], line[3], line[4]))
        for number, rows in lines.items():
            mine = {row: (name_of, unit) for row, name_of, unit, _, _ in rows}
            found.need(mine == view, f"{stem}: {name} scores other rows than the views'")
            _head(
                f"{stem}: fresh head {number} on {checkpoint}",
                record,
                sorted(rows),
                told[checkpoint, number],
                found,
            )
    for number, hashes in starts.items():
        found.need(len(hashes) == 1, f"{stem}: initialisation {number} differs between checkpoints")
    for (one, first), (other, second) in combinations(starts.items(), 2):
        found.need(not first & second, f"{stem}: initialisations {one} and {other} are the same")


def _head(
    place: str, record: Any, rows: Sequence[tuple[str, str, str, float, bool]], told: Any, found: Finding
) -> None:
    for view, seed in numbers.SEEDS.items():
        mine = [row for row in rows if row[1] == view]
        right = "accuracy" if view == "R" else "forgotten_accuracy"
        stats = {
            f"{right}.{view}": numbers.mean([float(row[4]) for row in mine]),
            f"gold_probability.{view}": numbers.mean([row[3] for row in mine]),
        }
        by_row = numbers.resample(stats, record["draws"], seed)
        by_unit = numbers.resample(
            stats, record["draws"], seed + numbers.UNIT_OFFSET, [row[2] for row in mine]
        )
        for name in stats:
            _estimate(
                f"{place}: {name}",
                told["metrics"][name],
                by_row[name],
                by_unit[name],
                seed,
                seed + numbers.UNIT_OFFSET,
                record["draws"],
                found,
            )
