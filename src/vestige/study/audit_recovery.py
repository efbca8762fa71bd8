"""Checks of who a recovery exposed and who it scored: disjoint, nested, equal for all checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vestige.study.audit_compare import count, text
from vestige.study.audit_folder import Finding, Folder

__all__ = ["CHECKPOINTS", "exposure_of", "parts", "records", "recovery_rows"]

CHECKPOINTS = ("full", "oracle", "unlearned")
Exposed = dict[tuple[str, int, int], tuple[tuple[str, str], ...]]
"""(What is adapted on, k, adaptation seed) -> (row, label)."""
Scored = dict[str, dict[tuple[int, int], dict[str, str]]]
"""Population -> (k, adaptation seed) -> row -> unit."""


def records(folder: Folder) -> dict[str, Any]:
    """`01-s17-simnpo` -> record, read once."""
    return folder.once(
        "recovery", lambda: {path.stem: folder.json(f"recovery/{path.name}") for path in _files(folder)}
    )


def _files(folder: Folder) -> list[Path]:
    return sorted((folder.root / "recovery").glob("*.json"))


def parts(folder: Folder, record: Any, kind: str) -> list[tuple[str, Any]]:
    """(folder name, record) of the nodes of a kind that a recovery was made from. Raises KeyError."""
    named = {f"{kind}-{key[:16]}" for key in record["parts"]}
    return sorted((name, node) for name, node in folder.nodes.items() if name in named)


def recovery_rows(folder: Folder) -> Finding:
    """Exposed rows nested and apart from scored ones; pairs distinct; all that was planned there."""
    found = folder.finding("conditions")
    made = records(folder)
    _coverage(folder, made, found)
    for stem, record in made.items():
        request = folder.requests[record["bundle"]]
        view = {row: (name, unit) for row, name, unit in folder.views[f"{record['bundle']}-evaluation"]}
        found.need(
            record["request"]["rows_sha256"] == request["rows_sha256"], f"{stem}: of another deletion request"
        )
        _right_models(folder, stem, record, found)
        exposed: Exposed = {}
        scored: Scored = {}
        for name, node in parts(folder, record, "recovery"):
            identity = node["identity"]
            setting = (identity["k"], identity["adapt_seed"])
            rows = tuple((row, label) for row, label in identity["exposed"])
            key = (identity["population_set"], *setting)
            found.need(exposed.setdefault(key, rows) == rows, f"{stem}: {name} saw other rows than its peers")
            table = folder.columns(f"nodes/{name}/curves.parquet")
            mine: dict[str, dict[str, str]] = {}
            for population, row, unit in zip(
                table["population"], table["row_id"], table["unit"], strict=True
            ):
                mine.setdefault(population, {})[row] = unit
            for population, found_rows in mine.items():
                same = scored.setdefault(population, {}).setdefault(setting, found_rows) == found_rows
                found.need(same, f"{stem}: {name} scores other rows than its peers")
        _disjoint(stem, exposed, scored, found)
        _forgotten(stem, record, request, exposed, scored, view, found)
        _swapped(folder, stem, record, exposed, scored, view, found)
        _nested(stem, exposed, found)
    return found


def _coverage(folder: Folder, made: Mapping[str, Any], found: Finding) -> None:
    """Tables belong to records; what the plan asks for is there or has failed."""
    tables = {path.stem for path in (folder.root / "recovery").glob("*.parquet")}
    mine = {stem for stem, record in made.items() if record["curves"]}
    found.need(tables == mine, f"recovery/ holds tables of no record, or lacks some: {sorted(tables ^ mine)}")
    plan = folder.plan.get("recovery")
    if plan is None:
        return
    failed = {item["key"] for item in (folder.json("failures.json") if folder.has("failures.json") else [])}
    there = {(record["bundle"], record["seed"], record["label"]) for record in made.values()}
    for entry in folder.evaluations:
        if entry["identity"]["candidates"] != "S0":
            continue
        asked = (entry["bundle"], entry["identity"]["seed"], entry["label"])
        wanted = all(
            plan.get(name) is None or value in plan[name]
            for name, value in zip(("bundles", "seeds", "methods"), asked, strict=True)
        )
        if not wanted or entry["identity"]["unlearned"] in failed:
            continue
        place = f"{asked[2]} on bundle {asked[0]}, seed {asked[1]}"
        if asked not in there and failed:
            found.noted.append(f"no recovery of {place}; parts of the study failed")
            continue
        found.need(asked in there, f"no recovery of {place}, which was planned")


def _right_models(folder: Folder, stem: str, record: Any, found: Finding) -> None:
    """The checkpoints are those that were evaluated under this label."""
    mine = [
        entry
        for entry in folder.evaluations
        if (entry["bundle"], entry["identity"]["seed"], entry["label"])
        == (record["bundle"], record["seed"], record["label"])
    ]
    for role in CHECKPOINTS:
        same = any(entry["identity"][role] == record["nodes"][role] for entry in mine)
        found.need(same, f"{stem}: its {role} model is not the one that was evaluated")
    have = {node["key"] for kind in ("recovery", "fresh-head") for _, node in parts(folder, record, kind)}
    found.need(have == set(record["parts"]), f"{stem}: {len(set(record['parts']) - have)} parts are missing")
    models = set(record["nodes"].values())
    for kind in ("recovery", "fresh-head"):
        for name, node in parts(folder, record, kind):
            found.need(node["identity"]["model"] in models, f"{stem}: {name} is of another model")


def _disjoint(stem: str, exposed: Exposed, scored: Scored, found: Finding) -> None:
    """No scored row was exposed: unseen and label-swap rows under any setting, seen rows under their own."""
    ever = {
        what: {row for key, rows in exposed.items() if key[0] == what for row, _ in rows}
        for what in ("forgotten", "label-swap")
    }
    for population, what in (("unseen", "forgotten"), ("label swap", "label-swap")):
        both = ever[what] & _all(scored, population)
        found.need(not both, f"{stem}: {len(both)} exposed rows are scored as '{population}'")
    for setting, rows in scored.get("seen", {}).items():
        both = {row for row, _ in exposed["forgotten", *setting]} & set(rows)
        found.need(not both, f"{stem}: {len(both)} rows exposed at {setting} are scored as 'seen'")


def exposure_of(folder: Folder, stem: str, record: Any) -> dict[str, Any]:
    """What a record has to say of the rows of its parts. Checks of their own hold the rows apart."""
    ever: dict[str, set[str]] = {"forgotten": set(), "label-swap": set()}
    scored: dict[str, set[str]] = {}
    for name, node in parts(folder, record, "recovery"):
        ever[node["identity"]["population_set"]] |= {row for row, _ in node["identity"]["exposed"]}
        table = folder.columns(f"nodes/{name}/curves.parquet")
        for population, row in zip(table["population"], table["row_id"], strict=True):
            scored.setdefault(population, set()).add(row)
    request = folder.requests[record["bundle"]]
    view = folder.views[f"{record['bundle']}-evaluation"]
    told, swaps, seen = record["exposure"], "label swap" in scored, "seen" in scored
    if not scored:  # fresh heads alone: nothing was adapted, and pairs are named for nothing
        swaps, seen = bool(told["pairs"]), told["seen"] is not None
    return {
        "deleted": len(request["unit_of"]),
        "exposed": len(ever["forgotten"]),
        "unseen": sum(name == "G" for _, name, _ in view),
        "seen": len(scored.get("seen", request["unit_of"])) if seen else None,
        "swap_exposed": len(ever["label-swap"]) if swaps else None,
        "swap_evaluated": len(scored["label swap"]) if "label swap" in scored else count if swaps else None,
        "exposed_in_unseen": 0,
        "exposed_in_seen": 0 if seen else None,
        "swap_exposed_in_evaluated": 0 if swaps else None,
        "nested": True,
        "units": sorted(request["units"]),
        "pairs": [{"source": pair["source"], "target": pair["target"]} for pair in told["pairs"]],
        "note": "" if seen else text,
    }


def _all(scored: Scored, population: str) -> set[str]:
    """Rows of a population at any setting."""
    return {row for rows in scored.get(population, {}).values() for row in rows}


def _forgotten(
    stem: str,
    record: Any,
    request: Any,
    exposed: Exposed,
    scored: Scored,
    view: Mapping[str, tuple[str, str]],
    found: Finding,
) -> None:
    """Exposed rows are deleted rows under their own class, k each; unseen rows are G, seen are deleted."""
    units = sorted(request["units"])
    found.need(record["exposure"]["units"] == units, f"{stem}: other units than the request's, or unsorted")
    for (what, k, seed), rows in exposed.items():
        if what != "forgotten":
            continue
        own = [request["unit_of"].get(row) == label for row, label in rows]
        found.need(
            all(own), f"{stem}: k {k}, seed {seed} exposes rows that were not deleted, or relabels them"
        )
        each = {unit: sum(label == unit for _, label in rows) for unit in units}
        found.need(
            set(each.values()) == {k} and len(set(rows)) == len(rows),
            f"{stem}: k {k}, seed {seed} does not expose {k} rows of each class",
        )
    g = {row: unit for row, (name, unit) in view.items() if name == "G"}
    for given in scored.get("unseen", {}).values():
        found.need(given == g, f"{stem}: unseen rows are not the rows of G")
    for setting, given in scored.get("seen", {}).items():
        gone = {row for row, _ in exposed["forgotten", *setting]}
        rest = {row: unit for row, unit in request["unit_of"].items() if row not in gone}
        found.need(
            given == rest, f"{stem}: seen rows at {setting} are not the deleted rows it did not expose"
        )


def _swapped(
    folder: Folder,
    stem: str,
    record: Any,
    exposed: Exposed,
    scored: Scored,
    view: Mapping[str, tuple[str, str]],
    found: Finding,
) -> None:
    """Pairs of retained classes, distinct, in hash order; rows of X under label Y, scored on rows of X."""
    pairs = [(item["source"], item["target"]) for item in record["exposure"]["pairs"]]
    if not pairs:
        found.need("label swap" not in scored, f"{stem}: label-swap rows without pairs")
        return
    units = record["exposure"]["units"]
    flat = [name for pair in pairs for name in pair]
    found.need(len(set(flat)) == len(flat), f"{stem}: a class in two label-swap pairs")
    found.need(len(pairs) == len(units), f"{stem}: {len(pairs)} label-swap pairs for {len(units)} classes")
    found.need(not set(flat) & set(units), f"{stem}: a forgotten class in a label-swap pair")
    order = [hashlib.sha256(f"label-swap:{name}".encode()).hexdigest() for name in flat]
    found.need(order == sorted(order), f"{stem}: label-swap pairs are not in hash order")
    target = dict(pairs)
    gold = _training_gold(folder)
    for (what, k, seed), rows in exposed.items():
        if what != "label-swap":
            continue
        place = f"{stem}: label swap, k {k}, seed {seed}"
        each = {label: sum(other == label for _, other in rows) for label in target.values()}
        found.need(
            set(each.values()) == {k} and len(rows) == k * len(pairs), f"{place} has not {k} rows a pair"
        )
        if gold is not None:
            right = all(target.get(gold.get(row, "")) == label for row, label in rows)
            found.need(right, f"{place} trains rows of another class than its pair's, or another label")
    if gold is None and "the data set" not in " ".join(found.unchecked):
        found.unchecked.append("the data set could not be loaded: classes of label-swap rows are unknown")
    wanted = {
        row: f"{unit} as {target[unit]}"
        for row, (name, unit) in view.items()
        if name == "R" and unit in target
    }
    same = all(given == wanted for given in scored.get("label swap", {}).values()) and "label swap" in scored
    found.need(same, f"{stem}: label-swap rows are not the rows of the sources")


def _training_gold(folder: Folder) -> dict[str, str] | None:
    """Training row -> gold, where the data set is at hand with the recorded hash."""
    loaded = folder.data_set()
    if isinstance(loaded, str):
        return None
    rows = loaded.rows("train")
    return dict(zip(rows["row_id"], rows["gold"], strict=True))


def _nested(stem: str, exposed: Exposed, found: Finding) -> None:
    for (what, k, seed), rows in exposed.items():
        for (other, more, same), larger in exposed.items():
            if (other, same) == (what, seed) and more > k:
                found.need(
                    set(rows) <= set(larger), f"{stem}: {what} rows of k {k} are not among those of k {more}"
                )
