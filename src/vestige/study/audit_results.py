"""Checks of probabilities, gates, values, intervals, tests and decisions, recomputed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from vestige.seeds import digest
from vestige.study import audit_numbers as numbers
from vestige.study import audit_verdicts
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import SEEDS, UNIT_OFFSET, Resampled, Table, View
from vestige.study.audit_units import too_small, unit_rows

__all__ = ["TOLERANCE", "decisions", "gates", "intervals", "probabilities", "values", "verdicts"]

TOLERANCE = 1e-12
"""Largest difference of a recomputed value or bound: sums are added in another order here. It is scaled up
for a ratio by its denominator's mean, and for a square root by the root."""
_Z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
UTILITY = ("delta_accuracy", "delta_ece")
Key = tuple[str, str, str]
Asked = dict[str, tuple[audit_verdicts.Request, audit_verdicts.Models]]
"""F and G of all models asked in another way, and the tables of the model under test."""


@dataclass
class Recomputed:
    """One assessment recomputed. row, unit: by (label, metric, view); noise floors have the label ""."""

    stored: Any
    views: dict[str, View]
    row: dict[Key, Resampled]
    unit: dict[Key, Resampled]


def recomputed(folder: Folder) -> dict[str, Recomputed]:
    """Every assessment, worked out once."""
    if "recomputed" not in folder.memo:
        folder.memo["recomputed"] = {
            name: _recompute(folder, value) for name, value in folder.assessments.items()
        }
    found: dict[str, Recomputed] = folder.memo["recomputed"]
    return found


def _sources(folder: Folder, stored: Any, role: str) -> dict[str, Table]:
    return {item["label"]: folder.table(item["path"]) for item in stored["sources"] if item["role"] == role}


def _recompute(folder: Folder, stored: Any) -> Recomputed:
    fulls, oracles = _sources(folder, stored, "full"), _sources(folder, stored, "oracle")
    unlearned = _sources(folder, stored, "unlearned")
    labels = (next(iter(fulls)), next(iter(oracles), ""))
    made = Recomputed(stored, {}, {}, {})
    draws = stored["draws"]
    for name, seed in SEEDS.items():
        view = made.views[name] = numbers.view_of(
            name, list(fulls.values()), unlearned, list(oracles.values()), labels, stored["forgotten"]
        )
        stats = {
            (label, metric, name): stat
            for label, role, p in view.models
            for metric, stat in numbers.statistics_of(view, role, p).items()
            if metric != "excess_distance" or _before_verdicts(made.stored)
        }
        for role in ("full", "oracle"):
            floor = view.floor(role)
            if floor is not None:
                stats["", f"noise_{role}", name] = floor
        if view.oracle is not None and name != "R":
            tested = [(label, p) for label, role, p in view.models if role == "unlearned"]
            for (one, p), (other, q) in combinations(tested, 2):
                gap = numbers.js(p, view.oracle) - numbers.js(q, view.oracle)
                stats[one, f"against {other}", name] = numbers.mean(gap)
        made.row |= numbers.resample(stats, draws, seed)
        if name != "R":
            made.unit |= numbers.resample(stats, draws, seed + UNIT_OFFSET, view.units)
    f, g = made.views["F"], made.views["G"]
    if f.oracle is not None:
        for (label, role, p_f), (_, _, p_g) in zip(f.models, g.models, strict=True):
            if role != "unlearned":
                continue
            second = numbers.over_both(g, p_g)
            for name, first in numbers.over_both(f, p_f).items():
                key = (label, name, "FG")
                made.row[key], made.unit[key] = numbers.both_views(f, g, first, second[name], draws)
    return made


def probabilities(folder: Folder) -> Finding:
    """Tables whole, sums 1, the same rows in each, those of the view table; hashes as assessed."""
    found = Finding(what="conditions")
    for name, record in folder.nodes.items():
        if record["kind"] != "predictions":
            continue
        table = folder.table(f"nodes/{name}/predictions.parquet")
        off = float(np.abs(table.p.sum(axis=1) - 1).max())
        found.need(off <= 1e-9 and bool((table.p >= 0).all()), f"{name}: rows that are no distribution")
        rows = digest(*table.row_ids, *table.view, *table.unit)
        found.need(rows == record["identity"]["rows"], f"{name}: other rows than it was made for")
        found.need(len(set(table.row_ids)) == len(table.row_ids), f"{name}: a row twice")
    for stem, stored in folder.assessments.items():
        bundle = stem.split("-s", 1)[0]
        offered = _offered(folder, stored, bundle, found, stem)
        view = {row[0]: row[1:] for row in folder.views[f"{bundle}-evaluation"]}
        for source in stored["sources"]:
            table = folder.table(source["path"])
            place = f"{stem}, {source['label']}"
            mine = dict(zip(table.row_ids, zip(table.view, table.unit, strict=True), strict=True))
            record = folder.nodes[Path(source["path"]).parent.name]
            if offered is None:
                same = mine == view and record["identity"]["candidates"] == "S0"
            else:
                same = mine.items() <= view.items() and set(table.gold) <= set(table.options)
                same = same and all(row in mine for row, (name, _) in view.items() if name != "R")
                same = same and list(table.options) == sorted(offered)  # a table's columns are sorted
                same = same and record["identity"]["candidates"] == {
                    "set": stored["candidates"],
                    "options": offered,
                }
            found.need(same, f"{place}: its rows are not those of views/{bundle}-evaluation.csv")
            found.need(
                record["result"]["sha256"] == source["sha256"], f"{place}: another table than was assessed"
            )
            _right_model(folder, stored, source, record, found, place)
    return found


def _offered(folder: Folder, stored: Any, bundle: str, found: Finding, stem: str) -> list[str] | None:
    """Options that an assessment's candidate set offers; None: all of them."""
    name = stored.get("candidates", "S0")
    if name == "S0":
        return None
    offered: list[str] = folder.json(f"candidates/{bundle}.json")["sets"][name]
    lost = set(stored["forgotten"])
    found.need(lost <= set(offered), f"{stem}: {name} lacks a forgotten option")
    if name in ("S1", "S2"):
        same = len(offered) == 3 * len(lost) or not lost
        found.need(same, f"{stem}: {name} offers {len(offered)} options")
    return offered


def _right_model(folder: Folder, stored: Any, source: Any, record: Any, found: Finding, place: str) -> None:
    """A source's table is its role's, its request's and, for what was compared, its seed's."""
    made = folder.by_key(source["role"], record["identity"]["model"])["identity"]
    request = stored["provenance"]["request"]
    if source["role"] != "full":
        found.need(
            made["request"]["rows"] == request["rows_sha256"], f"{place}: a model of another deletion request"
        )
    seed = stored["provenance"]["seed"]
    if "(seed " in source["label"]:
        seed = int(source["label"].rsplit("(seed ", 1)[1].rstrip(")"))
    found.need(made["seed"] == seed, f"{place}: a model of another seed")


def gates(folder: Folder) -> Finding:
    """The acquisition gate from development probabilities, its exceptions, and the intervention gate."""
    found = Finding(what="conditions")
    if folder.has("gates.json"):
        stored = folder.json("gates.json")
        found.need(
            stored["primary_seed"] == folder.primary_seed,
            "eligibility is of another seed than the primary one",
        )
        for seed, gate in stored["acquisition"].items():
            _acquisition(folder, int(seed), gate, found)
        for bundle, listed in stored["exceptions"].items():
            units = folder.requests[bundle]["units"]
            others = folder.has("drawing-gate.json")
            wanted = {
                (int(seed), item["option"])
                for seed, gate in stored["acquisition"].items()
                if (others or int(seed) != folder.primary_seed) and folder.evaluates(bundle, int(seed))
                for item in gate["classes"]
                if item["option"] in units and not item["passed"]
            }
            same = {(item["seed"], item["unit"]) for item in listed} == wanted
            found.need(same, f"bundle {bundle}: exceptions are not the failures of its units")
            found.noted += [
                f"bundle {bundle}: '{unit}' failed the acquisition gate at seed {seed}"
                for seed, unit in sorted(wanted)
            ]
    for stem, made in recomputed(folder).items():
        gate = _intervention(made)
        found.need(gate == made.stored["intervention_gate"], f"{stem}: the intervention gate is '{gate}'")
        if gate != "passed":
            found.noted.append(f"{stem}: {gate}")
    return found


def _acquisition(folder: Folder, seed: int, gate: Any, found: Finding) -> None:
    tables = [
        folder.table(f"nodes/{name}/predictions.parquet")
        for name, record in folder.nodes.items()
        if record["kind"] == "predictions"
        and record["identity"]["what"] == "development"
        and set(folder.table(f"nodes/{name}/predictions.parquet").view) == {"R"}
        and _is_full(folder, record["identity"]["model"], seed)
    ]
    if not found.need(bool(tables), f"no development probabilities of the full model of seed {seed}"):
        return
    table = tables[0]
    scope = folder.json("data.json")["out_of_scope"]
    association = folder.plan.get("deletion", {}).get("granularity") == "association"
    least = (0.65, None) if association else (0.7, 0.5)
    given = (gate["least_accuracy"], gate["least_gold_probability"])
    found.need(given == least, f"seed {seed}: other thresholds")
    of = (
        unit_rows(folder, "development") if association else dict(zip(table.row_ids, table.gold, strict=True))
    )
    best = [[table.options[column] for column in columns] for columns in numbers.best(table.p)]
    for item in gate["classes"]:
        rows = [row for row, name in enumerate(table.row_ids) if of.get(name) == item["option"]]
        if not rows:
            found.need(not item["passed"], f"seed {seed}: '{item['option']}' passed without development rows")
            continue
        option = item["option"].rsplit("#", 1)[0] if association else item["option"]
        accuracy = sum(best[row] == [option] for row in rows) / len(rows)
        column = table.options.index(option)
        mean = float(table.p[rows, column].mean())
        same = abs(accuracy - item["accuracy"]) <= TOLERANCE and (
            abs(mean - item["mean_gold_probability"]) <= TOLERANCE
        )
        found.need(same, f"seed {seed}: acquisition of '{item['option']}' is {accuracy:.3f}, {mean:.3f}")
        passed = accuracy >= least[0] and (least[1] is None or mean >= least[1])
        passed = passed and not (
            too_small(folder, item["option"]) if association else item["option"] == scope
        )
        found.need(passed == item["passed"], f"seed {seed}: the gate of '{item['option']}' is wrong")


def _is_full(folder: Folder, key: str, seed: int) -> bool:
    record = folder.nodes.get(f"full-{key[:16]}")
    return record is not None and record["identity"]["seed"] == seed


def _intervention(made: Recomputed) -> str:
    label = next(iter(made.views["F"].models))[0]
    states = []
    for view in ("F", "G"):
        start = made.row.get((label, "displacement", view))
        noise = made.row.get(("", "noise_full", view))
        if start is None or noise is None:
            return "gate not run"
        states.append(start.value > 2 * noise.value)
    return "passed" if all(states) else "displacement within noise"


def values(folder: Folder) -> Finding:
    """Every value of every model, noise floor and comparison."""
    found = Finding(what="values")
    unknown: set[str] = set()
    for stem, made in recomputed(folder).items():
        for key, estimate in _estimates(made.stored):
            if key[1] in ("identity_error", "zero_displacement_rows", "minimum_detectable_gain"):
                _extra(made, key, estimate, found, stem)
                continue
            again = made.row.get(key)
            if again is None:
                if isinstance(estimate["value"], float | int):
                    unknown.add(key[1])
                continue
            found.need(
                _same(again.value, estimate["value"], again.scale),
                f"{stem}: {_named(key)} is {again.value!r}, recorded {estimate['value']!r}",
            )
            if key[0] and key[2] != "FG" and "against" not in key[1]:
                found.need(
                    estimate["rows"] == again.n,
                    f"{stem}: {_named(key)} over {again.n} rows, not {estimate['rows']}",
                )
        _over_seeds(made, found, stem)
        _tables(made, found, stem)
    found.unchecked += [f"'{name}' is a metric that the audit does not know" for name in sorted(unknown)]
    return found


def _over_seeds(made: Recomputed, found: Finding, stem: str) -> None:
    """Intervals of the noise floors over training seeds; older records hold none."""
    for key, stored in made.stored.get("noise_over_seeds", {}).items():
        name, _, view = key.partition(".")
        ends = made.views[view].floor_over_seeds(name.removeprefix("noise_"))
        given = None if "undefined" in stored else (stored["low"], stored["high"])
        same = ends == given or (
            ends is not None
            and given is not None
            and all(abs(one - other) <= TOLERANCE for one, other in zip(ends, given, strict=True))
        )
        found.need(same, f"{stem}: {key} over training seeds is {ends}, recorded {given}")


def _estimates(stored: Any) -> list[tuple[Key, Any]]:
    found: list[tuple[Key, Any]] = []
    for model in stored["models"]:
        for name, estimate in model["metrics"].items():
            metric, view = name.rsplit(".", 1)
            found.append(((model["label"], metric, view), estimate))
    for name, estimate in stored["noise"].items():
        metric, view = name.rsplit(".", 1)
        found.append((("", metric, view), estimate))
    for item in stored["comparisons"]:
        found.append(((item["first"], f"against {item['second']}", item["view"]), item["difference"]))
    return found


def _named(key: Key) -> str:
    return " ".join(part for part in (key[0] and f"'{key[0]}'", key[1], "on", key[2]) if part)


def _same(again: float, stored: Any, scale: float) -> bool:
    if isinstance(stored, dict):
        return math.isnan(again)
    return bool(abs(again - stored) <= TOLERANCE * scale)


def _extra(made: Recomputed, key: Key, estimate: Any, found: Finding, stem: str) -> None:
    label, metric, name = key
    view = made.views[name]
    p = next(p for other, _, p in view.models if other == label)
    assert view.oracle is not None
    if metric == "minimum_detectable_gain":
        draws = made.row[label, "gain", name].draws
        again = _Z * float(draws.std(ddof=1)) if made.row[label, "gain", name].n > 1 else math.nan
    else:
        error, still = numbers.identity_error(view.full, view.oracle, p)
        again = error if metric == "identity_error" else float(still)
    found.need(
        _same(again, estimate["value"], 1.0),
        f"{stem}: {_named(key)} is {again!r}, recorded {estimate['value']!r}",
    )


def _tables(made: Recomputed, found: Finding, stem: str) -> None:
    """Reliability bins and where forgotten probability went."""
    r = made.views["R"]
    for model in made.stored["models"]:
        p = next(p for label, _, p in r.models if label == model["label"])
        top, hit = p.max(axis=1), numbers.right(p, r.gold)
        place = np.array([numbers.bin_of(float(value)) for value in top])
        for index, item in enumerate(model["reliability"]):
            inside = place == index
            again = (
                (float(top[inside].mean()), float(hit[inside].mean())) if inside.any() else (math.nan,) * 2
            )
            same = item["rows"] == int(inside.sum()) and all(
                _same(value, item[name], 1.0)
                for value, name in zip(again, ("confidence", "accuracy"), strict=True)
            )
            found.need(same, f"{stem}: reliability bin {index} of '{model['label']}'")
        for item in model["destinations"]:
            _destination(made, model["label"], item, found, stem)


def _destination(made: Recomputed, label: str, item: Any, found: Finding, stem: str) -> None:
    options = made.stored["options"]
    change, rows = np.zeros(options), 0
    own = -1
    for name in ("F", "G"):
        view = made.views[name]
        p = next(p for other, _, p in view.models if other == label)
        names = made.views["F"].options
        own = names.index(item["forgotten"])
        mine = view.gold == own
        change += (p[mine] - view.full[mine]).sum(axis=0)
        rows += int(mine.sum())
    change /= max(rows, 1)
    names = made.views["F"].options
    given = {name: float(change[names.index(name)]) for name, _ in item["to"]}
    same = rows == item["rows"] and _same(-float(change[own]), item["moved"], 1.0)
    same = same and all(_same(given[name], value, 1.0) for name, value in item["to"])
    same = same and _same(-float(change[own]) - sum(given.values()), item["elsewhere"], 10.0)
    found.need(same, f"{stem}: where '{label}' moved the probability of '{item['forgotten']}'")


def intervals(folder: Folder) -> Finding:
    """Every interval from its own draws and seed."""
    found = Finding(what="intervals")
    for stem, made in recomputed(folder).items():
        condition = made.stored["condition"]
        for key, estimate in _estimates(made.stored):
            for kind in ("row", "unit"):
                interval = estimate[kind]
                again = (made.row if kind == "row" else made.unit).get(key)
                if interval is None or again is None:
                    continue
                place = f"{stem}: {kind} interval of {_named(key)}"
                if "undefined" in interval:
                    found.need(math.isnan(again.value) or again.n < 2, f"{place} exists")
                    continue
                seed = SEEDS.get(key[2], SEEDS["F"]) + (UNIT_OFFSET if kind == "unit" else 0)
                told = interval["seed"] == seed and interval["draws"] == made.stored["draws"]
                found.need(
                    told and interval["level"] == 0.95, f"{place}: another seed, level or number of draws"
                )
                found.need(
                    interval["kind"].startswith(f"{kind} bootstrap"), f"{place} is called {interval['kind']}"
                )
                found.need(interval["condition"] == condition, f"{place} is conditional on something else")
                low, high = again.quantile(0.025), again.quantile(0.975)
                same = _same(low, interval["low"], again.scale) and _same(high, interval["high"], again.scale)
                found.need(
                    same,
                    f"{place} is [{low!r}, {high!r}], recorded [{interval['low']!r}, {interval['high']!r}]",
                )
    return found


def decisions(folder: Folder) -> Finding:
    """p-values, Holm's correction, equivalence and the decision of every model under test."""
    found = Finding(what="conditions")
    for stem, made in recomputed(folder).items():
        gate = _intervention(made)
        narrow = made.stored.get("candidates", "S0") != "S0"
        start = recomputed(folder)[stem.removesuffix(f"-{made.stored['candidates']}")] if narrow else None
        corrected: dict[str, float] = {}
        for model in made.stored["models"]:
            if model["role"] == "unlearned":
                _judge(made, model, gate, found, stem, start)
                if model["label"] in made.stored["family"]:
                    corrected[model["label"]] = model["p_value"].get("both")
        again = _holm({label: p for label, p in corrected.items() if isinstance(p, float)})
        for model in made.stored["models"]:
            wanted, given = again.get(model["label"]), model["p_value"].get("holm")
            same = wanted == given if wanted is None or given is None else abs(wanted - given) <= TOLERANCE
            found.need(same, f"{stem}: Holm's p of '{model['label']}' is {wanted}, recorded {given}")
        controls = {model["label"] for model in made.stored["models"] if model["control"]}
        found.need(not controls & set(made.stored["family"]), f"{stem}: a control in the family")
    return found


def _judge(
    made: Recomputed, model: Any, gate: str, found: Finding, stem: str, start: Recomputed | None
) -> None:
    label = model["label"]
    gains = {view: made.row.get((label, "gain", view)) for view in ("F", "G")}
    f, g = gains["F"], gains["G"]
    place = f"{stem}: '{label}'"
    if f is None or g is None:
        found.need("undefined" in model["decision"], f"{place} has a decision without an oracle")
        return
    for view, gain in (("F", f), ("G", g)):
        least, most = (
            (1 + int((gain.draws - gain.value >= gain.value + margin).sum())) / (len(gain.draws) + 1)
            for margin in (TOLERANCE, -TOLERANCE)
        )
        given = model["p_value"][view]
        if gain.n < 2:
            found.need(isinstance(given, dict), f"{place}: a p on {view} from a single row")
            continue
        fits = isinstance(given, float) and least <= given <= most
        found.need(fits, f"{place}: p on {view} is {least}, recorded {given}")
    ps = [model["p_value"][view] for view in ("F", "G")]
    missing = [p for p in ps if isinstance(p, dict)]
    both = missing[0] if missing else max(ps)
    found.need(model["p_value"]["both"] == both, f"{place}: the p of both views is {both}")
    change = [made.row[label, name, "R"].value for name in UTILITY]
    if start is not None:
        change = [start.row[label, name, "R"].value for name in UTILITY]
        given = [model["utility"][name] for name in UTILITY]
        same = all(abs(one - other) <= TOLERANCE for one, other in zip(change, given, strict=True))
        found.need(same, f"{place}: feasibility was not judged on all options")
    before = _before_verdicts(made.stored)
    decision = _decision(gate, (f, g), change[0], change[1], hides_harm=before)
    found.need(decision == model["decision"], f"{place} is {decision}, recorded {model['decision']}")
    if before:
        _equivalence(made, model, found, place)


def verdicts(folder: Folder) -> Finding:
    """Evidence, word, corrected p and sentence of every verdict, from probabilities."""
    found = Finding(what="verdicts")
    for stem, made in recomputed(folder).items():
        if _before_verdicts(made.stored):
            if made.stored["has_oracle"]:
                found.noted.append(
                    f"{stem}: made before verdicts existed, judged by the published rule alone"
                )
            continue
        tested = [model for model in made.stored["models"] if model["role"] == "unlearned"]
        expected = {}
        for model in tested:
            evidence, label = model["evidence"], model["label"]
            margins = evidence["margins"]
            place = f"{stem}: '{label}'"
            found.need(
                margins == tested[0]["evidence"]["margins"], f"{place} is judged by margins of its own"
            )
            for name, value in folder.plan.get("margins", {}).items():
                found.need(margins[name] == value, f"{place}: the margin of {name} is not the plan's")
            views = {
                name: audit_verdicts.Request(
                    name, view.fulls, view.oracles, view.gold, view.units, made.stored["draws"]
                )
                for name, view in made.views.items()
            }
            seeds = {
                name: [p for other, role, p in view.models if role == "unlearned" and other == label]
                for name, view in made.views.items()
            }
            expected[label] = audit_verdicts.expected_evidence(
                views,
                seeds,
                margins,
                set(made.stored["forgotten"]),
                _asked(folder, made, label, views, seeds),
            )
            for line in audit_verdicts.differences(expected[label], evidence):
                found.need(False, f"{place}: {line}")
        words = audit_verdicts.expected_words(
            {
                label: {**item, "margins": tested[0]["evidence"]["margins"]}
                for label, item in expected.items()
            },
            made.stored["family"],
        )
        for model in tested:
            word, p = words[model["label"]]
            place = f"{stem}: '{model['label']}'"
            found.need(model["verdict"] == word, f"{place} is {word}, recorded {model['verdict']}")
            found.need(audit_verdicts.same(p, model["verdict_p"]), f"{place}: p of its verdict is {p}")
    return found


def _asked(
    folder: Folder,
    made: Recomputed,
    label: str,
    views: Mapping[str, audit_verdicts.Request],
    seeds: Mapping[str, audit_verdicts.Models],
) -> dict[str, Asked]:
    """By probe, in the order of the record: all models asked in that way."""
    found: dict[str, Asked] = {}
    for name, sources in made.stored["provenance"].get("probes", {}).items():
        tables = {role: [folder.table(path) for path in sources[role]] for role in ("full", "oracle")}
        model = folder.table(sources["unlearned"][label])
        asked: Asked = {}
        for view in ("F", "G"):
            rows = [row for row, own in enumerate(model.view) if own == view]
            asked[view] = (
                dataclasses.replace(
                    views[view],
                    fulls=[table.p[rows] for table in tables["full"]],
                    oracles=[table.p[rows] for table in tables["oracle"]],
                    divergences={},
                ),
                [model.p[rows]],
            )
        found[name] = asked
    if "temperature" in folder.plan.get("probes", ()) and made.stored.get("candidates", "S0") == "S0":
        for temperature in (0.5, 2.0, 5.0):
            found[f"temperature {temperature:g}"] = {
                view: audit_verdicts.at_temperature(views[view], seeds[view], temperature)
                for view in ("F", "G")
            }
    return found


def _before_verdicts(stored: Any) -> bool:
    """Whether a record was made by the rule that knew no verdict: equivalence from the first oracle alone,
    and a displacement within noise in place of any other decision."""
    return not any(model.get("verdict") for model in stored["models"])


def _decision(
    gate: str, gains: tuple[Resampled, Resampled], accuracy: float, ece: float, *, hides_harm: bool
) -> str:
    within = gate == "displacement within noise"
    if within and hides_harm:
        return gate
    if accuracy < -0.02 - TOLERANCE or ece > 0.02 + TOLERANCE:
        return "infeasible"
    if min(gain.value for gain in gains) <= 0:
        return "no benefit"
    if within:
        return gate
    sure = all(gain.n > 1 and gain.quantile(0.025) > 0 for gain in gains)
    return "accepted" if sure else "positive, unconfirmed"


def _equivalence(made: Recomputed, model: Any, found: Finding, place: str) -> None:
    oracles = len(made.views["F"].oracles)
    if oracles < 3:
        found.need(isinstance(model["equivalent"], dict), f"{place}: equivalence with {oracles} oracle(s)")
        return
    bounds = [made.row[model["label"], "excess_distance", view].quantile(0.95) for view in ("F", "G")]
    found.need(
        model["equivalent"] == (max(bounds) <= 0.02), f"{place}: equivalence does not follow from {bounds}"
    )
    stored = model["equivalence"]["row"]["high"]
    found.need(
        abs(stored - max(bounds)) <= TOLERANCE, f"{place}: the bound is {max(bounds)!r}, recorded {stored!r}"
    )


def _holm(p_values: dict[str, float]) -> dict[str, float]:
    found, largest = {}, 0.0
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for place, (label, p) in enumerate(ordered):
        largest = max(largest, min(1.0, p * (len(ordered) - place)))
        found[label] = largest
    return found
