"""Checks of recovery curves, contrasts, thresholds, fresh heads and all their intervals, recomputed.

Written from the specification; it shares no metric and no statistics code with what made the records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from vestige.study import audit_numbers as numbers
from vestige.study import plan_audit, words_audit
from vestige.study.audit_compare import TOLERANCE, UNDEFINED, Later, Near, Said, Words, compared, count, text
from vestige.study.audit_estimates import estimate
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Resampled, Stat
from vestige.study.audit_recovery import CHECKPOINTS, exposure_of, parts, records

__all__ = ["recovery_values"]

THRESHOLDS = (0.5, 0.8)
ADAPTED = ("evaluations", "learning_rate", "batch", "weight_decay", "max_grad_norm")
ROW_SEEDS = {"unseen": 2, "seen": 1, "label swap": 3}
UNIT_SEED = 102
Key = tuple[str, int, int, str]
Line = tuple[str, float, bool]


def recovery_values(folder: Folder) -> Finding:
    """Every recovery record, whole: curves from the adaptations' tables, contrasts, thresholds, intervals."""
    found = folder.finding("values")
    for stem in records(folder):
        found.add(folder.once(("recovery of", stem), partial(_record, folder, stem)))
    return found


def _record(folder: Folder, stem: str) -> Finding:
    found = folder.finding("")
    record = folder.json(f"recovery/{stem}.json")
    plan = _plan(folder, record)
    expected = _frame(folder, stem, record, plan)
    if record["curves"]:
        lines = _lines(folder, record)
        found.need(lines == _stored(folder, record), f"{stem}: curves are not those of its adaptations")
        expected |= _contrasts(folder, stem, record, lines, plan, found)
    expected["fresh_heads"] = _heads(folder, stem, record, plan, found)
    before = folder.earlier and record.get("reading") is None
    if before:
        found.unchecked.append(f"{stem}: made before levels were read, by an earlier version")
    compared(expected, record, found, stem)
    return found


def _plan(folder: Folder, record: Any) -> dict[str, Any]:
    """What was asked for, from the identities of the parts: settings of the adaptations, fresh heads."""
    adapted = [node["identity"] for _, node in parts(folder, record, "recovery")]
    heads = [node["identity"] for _, node in parts(folder, record, "fresh-head")]
    told = record["plan"]
    if adapted:
        how = adapted[0]["settings"]
        seeds = {identity["adapt_seed"] for identity in adapted}
        order = [seed for seed in told["adapt_seeds"] if seed in seeds]
        budgets = sorted({identity["k"] for identity in adapted})
    else:
        # Fresh heads alone: how nothing was adapted follows from nothing.
        how = {name: told[name] for name in ADAPTED}
        order, budgets, seeds = told["adapt_seeds"], [], set(told["adapt_seeds"])
    made = {
        "budgets": budgets,
        "adapt_seeds": order if len(order) == len(seeds) else sorted(seeds),
        **{name: how[name] for name in ADAPTED},
        "controls": any(identity["population_set"] == "label-swap" for identity in adapted)
        if adapted
        else told["controls"],
        "fresh_heads": heads[0]["initialisations"] if heads else 0,
    }
    asked = folder.planned.recovery
    if asked is not None and not any("attack" in item["verb"] for item in folder.runs):
        # A run makes what its plan asks for; `vestige attack` may ask otherwise, later.
        given = asked.model_dump(mode="json", exclude={"methods", "bundles", "seeds"})
        made |= {name: value for name, value in given.items() if len(_plans(folder)) == 1}
    return made


def _plans(folder: Folder) -> set[str]:
    return {item["plan"] for item in folder.runs}


def _frame(folder: Folder, stem: str, record: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says beside its numbers."""
    study, base = folder.planned, plan_audit.base_of(folder)
    bundle, seed = record["bundle"], record["seed"]
    request = folder.requests[bundle]
    entry = next(
        entry
        for entry in folder.evaluations
        if (entry["bundle"], entry["identity"]["seed"], entry["label"], entry["identity"]["candidates"])
        == (bundle, seed, record["label"], "S0")
    )
    once = len(_plans(folder)) == 1
    nodes = {role: entry["identity"][role] for role in ("full", "unlearned", "oracle")}
    updates = plan["evaluations"]
    steps = np.diff(np.array(updates, dtype=np.float64))
    weights = (np.concatenate([steps, [0.0]]) + np.concatenate([[0.0], steps])) / 2 / updates[-1]
    curves = f"recovery/{stem}.parquet" if plan["budgets"] else ""
    return {
        "format": "vestige-recovery-1",
        "name": f"{study.name}, bundle {bundle}, seed {seed}, {record['label']}",
        "study": study.name,
        "stage": study.stage if once else text,
        "bundle": stem.split("-s", 1)[0],
        "seed": int(stem.split("-s", 1)[1].split("-", 1)[0]),
        "label": entry["label"],
        "method": entry["identity"]["method"],
        "control": entry["control"],
        "condition": f"training seed {seed}",
        "request": {
            **{name: request[name] for name in ("granularity", "units_sha256", "rows_sha256")},
            "deleted_rows": len(request["unit_of"]),
        },
        "model": base["model"],
        "dataset": folder.json("data.json")["name"],
        "rendering": base["rendering"],
        "map_seed": base["map_seed"],
        "plan": plan,
        "updates": updates,
        "weights": [Near(float(weight)) for weight in weights],
        "draws": study.draws if once else count,
        "seeds": {**ROW_SEEDS, "units": UNIT_SEED},
        "exposure": exposure_of(folder, stem, record),
        "settings": [],
        "pooled": [],
        "controls": [],
        "reading": Later(None),
        "nodes": nodes,
        "parts": _parts(folder, record, nodes, plan),
        "inputs": Said("a hash", lambda told: isinstance(told, str) and len(told) == 64),
        "curves": curves,
        "curves_sha256": hashlib.sha256(folder.bytes(curves)).hexdigest() if curves else "",
        "caveats": Words(list(words_audit.RECOVERY)),
    }


def _parts(folder: Folder, record: Any, nodes: Mapping[str, str], plan: Mapping[str, Any]) -> list[Any]:
    """Keys of the parts in the order of a run: adaptations of each checkpoint, then fresh heads."""
    made = {}
    for kind in ("recovery", "fresh-head"):
        for _, node in parts(folder, record, kind):
            own = node["identity"]
            made[own["model"], own.get("population_set"), own.get("k"), own.get("adapt_seed")] = node["key"]
    pairs = [(k, seed) for k in plan["budgets"] for seed in plan["adapt_seeds"]]
    kinds = [what for what in ("forgotten", "label-swap") if any(key[1] == what for key in made)]
    wanted: list[Any] = [(model, what, *pair) for model in nodes.values() for what in kinds for pair in pairs]
    wanted += [(model, None, None, None) for model in nodes.values()] if plan["fresh_heads"] else []
    return [made.get(key, "a part that is missing") for key in wanted]


def _lines(folder: Folder, record: Any) -> dict[Key, dict[tuple[int, str], Line]]:
    """(population, k, seed, checkpoint) -> (t, row) -> (unit, p, correct), from the nodes."""
    role = {key: name for name, key in record["nodes"].items()}
    found: dict[Key, dict[tuple[int, str], Line]] = {}
    for name, node in parts(folder, record, "recovery"):
        identity = node["identity"]
        table = folder.columns(f"nodes/{name}/curves.parquet")
        scored = list(zip(table["population"], table["t"], table["row_id"], strict=True))
        if len(set(scored)) < len(scored):
            raise ValueError(f"nodes/{name}/curves.parquet: a row twice")
        for population, t, row, *line in zip(
            *(table[key] for key in ("population", "t", "row_id", "unit", "p_gold", "correct")), strict=True
        ):
            key = (population, identity["k"], identity["adapt_seed"], role[identity["model"]])
            found.setdefault(key, {})[t, row] = (line[0], line[1], line[2])
    return found


def _stored(folder: Folder, record: Any) -> dict[Key, dict[tuple[int, str], Line]]:
    table = folder.columns(record["curves"])
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


def _reading(record: Any) -> Any:
    """The word, from the recorded pooled levels and their row intervals, which are compared themselves."""
    pooled = {item["population"]: item["contrasts"] for item in record["pooled"]}

    def shown(population: str, name: str) -> bool:
        item = pooled[population][name]
        low = item["row"].get("low")
        return isinstance(item["value"], float) and item["value"] >= 0.01 and low is not None and low > 0

    level = pooled["unseen"]["level"]
    if level["rows"] < 10:
        return UNDEFINED
    rose = shown("unseen", "rise")
    starts = pooled["unseen"]["g_abs"]["value"] - pooled["unseen"]["g_adj"]["value"]
    above = shown("unseen", "level") and max(level["value"], starts) >= 0.05
    if "label swap" in pooled and shown("label swap", "level"):
        above = above and pooled["label swap"]["level"]["value"] < level["value"]
    if not above:
        return "learned anew" if rose else "no return"
    return "return" if rose and not shown("unseen", "start_level") else "still there"


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
    plan: Mapping[str, Any],
    found: Finding,
) -> dict[str, Any]:
    """Settings, pooled contrasts, contrasts between populations and the reading."""
    t, draws = plan["evaluations"], record["draws"]
    pairs = [(k, seed) for k in plan["budgets"] for seed in plan["adapt_seeds"]]
    names = {
        "unseen": record["exposure"]["units"],
        "seen": record["exposure"]["units"],
        "label swap": [f"{item['source']} as {item['target']}" for item in record["exposure"]["pairs"]],
    }
    exposed = _exposed(folder, record)
    by_levels = not (folder.earlier and record.get("reading") is None)
    advantage: dict[str, dict[Any, tuple[Array, Array]]] = {}
    index: dict[str, list[str]] = {}
    settings: list[dict[str, Any]] = []
    pooled: list[dict[str, Any]] = []
    for name in (name for name in names if any(key[0] == name for key in lines)):
        stats: dict[tuple[Any, str], Stat] = {}
        unit_of = _drawn_from(folder, record, lines, name)
        rows = sorted(unit_of)
        index[name] = [f"{names[name].index(unit_of[row]):04d}" for row in rows]
        mine: list[dict[str, Any]] = []
        for pair in pairs:
            wide = {role: _wide(lines[name, *pair, role], t, rows) for role in CHECKPOINTS}
            on = wide["full"][2]
            for role in CHECKPOINTS:
                same = bool((wide[role][2] == on).all())
                found.need(same, f"{stem}: {role} scores other rows of {name}, {pair}")
            u, o = wide["unlearned"][0], wide["oracle"][0]
            made = contrasts(t, u, o, on) | (levels(u, o, on) if by_levels else {})
            stats |= {(pair, metric): stat for metric, stat in made.items()}
            start = float(u[on > 0, 0].mean() - o[on > 0, 0].mean())
            gained = ((area(t, u) - u[:, 0]) - (area(t, o) - o[:, 0])) * on
            advantage.setdefault(name, {})[pair] = gained, on
            mine.append(
                {
                    "population": name,
                    "k": pair[0],
                    "adapt_seed": pair[1],
                    "exposed": exposed["label-swap" if name == "label swap" else "forgotten", *pair],
                    "rows": int(on.sum()),
                    "units": len({unit for unit, one in zip(index[name], on, strict=True) if one}),
                    "curves": {role: _curve(t, *(side[on > 0] for side in wide[role][:2])) for role in wide},
                    "identity_residual": Near(abs(made["g_abs"].value - (start + made["g_adj"].value))),
                }
            )
        for metric in made:
            stats[None, metric] = _averaged([stats[pair, metric] for pair in pairs])
        row = numbers.resample(stats, draws, ROW_SEEDS[name])
        unit_draws = numbers.resample(stats, draws, UNIT_SEED, index[name])
        mine.append({"population": name, "settings": len(pairs), "caveat": Words(words_audit.SETTINGS)})
        for item, group in zip(mine, [*pairs, None], strict=True):
            item["contrasts"] = {
                metric: estimate(
                    row[group, metric],
                    unit_draws[group, metric],
                    seeds=(ROW_SEEDS[name], UNIT_SEED),
                    draws=draws,
                    condition=_condition(record["seed"], *(group or (None, None))),
                    note="mean of row ratios" if metric == "g_row_headroom" else "",
                )
                for metric in made
            }
        settings += mine[:-1]
        pooled.append(mine[-1])
    return {
        "settings": settings,
        "pooled": pooled,
        "controls": _direct(record, advantage, index, pairs),
        "reading": Later(_reading(record) if by_levels else None),
    }


def _exposed(folder: Folder, record: Any) -> dict[tuple[str, int, int], int]:
    """By what was adapted on, budget and seed: how many rows each adaptation saw."""
    nodes = [node["identity"] for _, node in parts(folder, record, "recovery")]
    return {(own["population_set"], own["k"], own["adapt_seed"]): len(own["exposed"]) for own in nodes}


def _condition(seed: int, k: int | None, adapt_seed: int | None) -> str:
    told = f"training seed {seed}, these checkpoints"
    if k is None:
        return f"{told}, the settings adapted"
    if adapt_seed is None:
        return f"{told}, k {k}, the adaptation seeds used"
    return f"{told}, k {k}, adaptation seed {adapt_seed}"


def _curve(t: Sequence[int], p: Array, right: Array) -> dict[str, Any]:
    mean = p.mean(axis=0)
    whole, start = float(area(t, mean[None, :])[0]), float(mean[0])
    headroom: Any = UNDEFINED
    if start < 1:
        headroom = Near((whole - start) / (1 - start), TOLERANCE * max(1.0, 1 / (1 - start)))
    return {
        "gold_probability": [Near(float(value)) for value in mean],
        "accuracy": [Near(float(value)) for value in right.mean(axis=0)],
        "start": Near(start),
        "area": Near(whole),
        "adjusted": Near(whole - start),
        "headroom": headroom,
        "reached": [_reached(t, mean, threshold) for threshold in THRESHOLDS],
    }


def _reached(t: Sequence[int], mean: Array, threshold: float) -> Any:
    """The first update at a threshold; of a mean on the very edge either side may be recorded."""
    if bool((np.abs(mean - threshold) <= TOLERANCE).any()):
        return {"threshold": threshold, "update": count, "censored": Said("a truth", _is_truth)}
    first = next((update for update, value in zip(t, mean, strict=True) if value >= threshold), None)
    return {
        "threshold": threshold,
        "update": t[-1] if first is None else first,
        "censored": first is None,
    }


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _direct(
    record: Any,
    advantage: Mapping[str, Any],
    index: Mapping[str, list[str]],
    pairs: Sequence[tuple[int, int]],
) -> list[dict[str, Any]]:
    """specificity = R_unseen - R_swap, exposure = R_seen - R_unseen, at every setting, at every budget over
    its adaptation seeds, and over all settings."""
    groups: list[tuple[int | None, int | None]] = list(pairs)
    groups += [(k, None) for k in dict.fromkeys(k for k, _ in pairs)]
    found: list[dict[str, Any]] = []
    for name, first, second in (("specificity", "unseen", "label swap"), ("exposure", "seen", "unseen")):
        if not {first, second} <= set(advantage):
            nothing = {"k": None, "adapt_seed": None, "caveat": ""}
            found.append({"name": name, **nothing, "difference": UNDEFINED})
            continue
        for k, seed in [*groups, (None, None)]:
            mine = [pair for pair in pairs if k in (None, pair[0]) and seed in (None, pair[1])]
            found.append(
                {
                    "name": name,
                    "k": k,
                    "adapt_seed": seed,
                    "difference": estimate(
                        *_difference(record, advantage, index, (first, second), mine),
                        seeds=(ROW_SEEDS[first], UNIT_SEED),
                        draws=record["draws"],
                        condition=_condition(record["seed"], k, seed),
                        apart=(ROW_SEEDS[first], ROW_SEEDS[second]),
                    ),
                    "caveat": "" if seed is not None else Words(words_audit.SETTINGS),
                }
            )
    return found


def _difference(
    record: Any,
    advantage: Mapping[str, Any],
    index: Mapping[str, list[str]],
    sides: tuple[str, str],
    pairs: Sequence[tuple[int, int]],
) -> tuple[Resampled, Resampled]:
    """Over rows and over units: the mean over settings of one population's advantage less another's."""
    values, drawn = [], []
    unit_sums = np.zeros((len(record["exposure"]["units"]), 4 * len(pairs)))
    for name, column in zip(sides, (0, 2), strict=True):
        stats = {
            pair: numbers.ratio(gained, on, 0.0) for pair in pairs for gained, on in [advantage[name][pair]]
        }
        values.append(float(np.mean([stat.value for stat in stats.values()])))
        again = numbers.resample(stats, record["draws"], ROW_SEEDS[name])
        drawn.append(np.mean([again[pair].draws for pair in pairs], axis=0))
        at = [int(number) for number in index[name]]
        for number, pair in enumerate(pairs):
            gained, on = advantage[name][pair]
            np.add.at(unit_sums[:, 4 * number + column], at, gained)
            np.add.at(unit_sums[:, 4 * number + column + 1], at, on)

    def both(s: Array) -> Array:
        parts_of = s.reshape(len(s), len(pairs), 4)
        gaps = parts_of[:, :, 0] / parts_of[:, :, 1] - parts_of[:, :, 2] / parts_of[:, :, 3]
        return np.asarray(gaps.mean(axis=1))

    rows = len(index[sides[0]]) + len(index[sides[1]])
    return (
        Resampled(values[0] - values[1], drawn[0] - drawn[1], rows, 1.0),
        numbers.resample({"": Stat(unit_sums, both)}, record["draws"], UNIT_SEED)[""],
    )


def _heads(
    folder: Folder, stem: str, record: Any, plan: Mapping[str, Any], found: Finding
) -> list[dict[str, Any]]:
    """Fresh heads: the same start on every checkpoint, retained rows alone, every value and interval."""
    role = {key: name for name, key in record["nodes"].items()}
    view = {row: (name, unit) for row, name, unit in folder.views[f"{record['bundle']}-evaluation"]}
    deleted = len(folder.requests[record["bundle"]]["unit_of"])
    full = next((node for node in folder.nodes.values() if node["kind"] == "full"), None)
    starts: dict[int, set[str]] = {}
    made: dict[tuple[str, int], dict[str, Any]] = {}
    for name, node in parts(folder, record, "fresh-head"):
        checkpoint = role[node["identity"]["model"]]
        table = folder.columns(f"nodes/{name}/heads.parquet")
        if full is not None:
            same = node["result"]["train_rows"] == full["result"]["train_rows"] - deleted
            found.need(same, f"{stem}: {name} was not trained on the retained rows")
        lines: dict[int, list[tuple[str, str, str, float, bool]]] = {}
        keys = ("initialisation", "row_id", "view", "unit", "p_gold", "correct")
        for number, *line in zip(*(table[key] for key in keys), strict=True):
            lines.setdefault(number, []).append((line[0], line[1], line[2], line[3], line[4]))
        for number, head in enumerate(node["result"]["heads"]):
            starts.setdefault(number, set()).add(head["initial_sha256"])
            rows = lines[number]
            mine = {row: (name_of, unit) for row, name_of, unit, _, _ in rows}
            found.need(mine == view, f"{stem}: {name} scores other rows than the views'")
            made[checkpoint, number] = {
                "checkpoint": checkpoint,
                "initialisation": number,
                "initial_sha256": head["initial_sha256"],
                "trained_rows": node["result"]["train_rows"],
                "metrics": _head(record, number, sorted(rows)),
            }
    for number, hashes in starts.items():
        found.need(len(hashes) == 1, f"{stem}: initialisation {number} differs between checkpoints")
    for (one, first), (other, second) in combinations(starts.items(), 2):
        found.need(not first & second, f"{stem}: initialisations {one} and {other} are the same")
    order = [
        (name, number) for name in ("full", "unlearned", "oracle") for number in range(plan["fresh_heads"])
    ]
    return [made.get(key, {"checkpoint": key[0]}) for key in order]


def _head(
    record: Any, number: int, rows: Sequence[tuple[str, str, str, float, bool]]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for view, seed in numbers.SEEDS.items():
        mine = [row for row in rows if row[1] == view]
        right = "accuracy" if view == "R" else "forgotten_accuracy"
        stats = {
            f"{right}.{view}": numbers.mean([float(row[4]) for row in mine]),
            f"gold_probability.{view}": numbers.mean([row[3] for row in mine]),
        }
        units = [row[2] for row in mine]
        by_row = numbers.resample(stats, record["draws"], seed)
        by_unit = numbers.resample(stats, record["draws"], seed + numbers.UNIT_OFFSET, units)
        for name in stats:
            found[name] = estimate(
                by_row[name],
                by_unit[name],
                seeds=(seed, seed + numbers.UNIT_OFFSET),
                draws=record["draws"],
                condition=f"training seed {record['seed']}, this checkpoint, initialisation {number}",
            )
    return found
