"""Checks of files, keys, coverage, freezing, tuning and history."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from vestige.seeds import digest
from vestige.study.audit_folder import Finding, Folder

__all__ = [
    "coverage",
    "files",
    "freeze",
    "history",
    "keys",
    "tuning",
]

UNLISTED = ("manifest.json",)
IMPORTED = "imported"
"""Folder of published tables, which no run writes."""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def files(folder: Folder) -> Finding:
    """Every file against its recorded hash."""
    found = Finding(what="files")
    raw = (folder.root / "manifest.json").read_bytes()
    value = json.loads(raw)
    body = {"files": value["files"], "format": value["format"]}
    whole = {**body, "seal": digest(_canonical(body))}
    text = json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    found.need(raw == text.encode(), "manifest.json was changed")
    listed: dict[str, str] = dict(value["files"])
    for name, sha in sorted(listed.items()):
        path = folder.root / name
        if found.need(path.is_file(), f"{name} is missing"):
            found.need(_sha256(path) == sha, f"{name} was changed")
        if name.startswith("nodes/") and path.is_file():
            record = json.loads(path.read_bytes())
            for inner, inner_sha in record["files"].items():
                listed[f"{path.parent.relative_to(folder.root).as_posix()}/{inner}"] = inner_sha
                if found.need((path.parent / inner).is_file(), f"{path.parent.name}/{inner} is missing"):
                    found.need(
                        _sha256(path.parent / inner) == inner_sha, f"{path.parent.name}/{inner} was changed"
                    )
    unfinished = set()
    for path in sorted(folder.root.rglob("*")):
        name = path.relative_to(folder.root).as_posix()
        hidden = next((part for part in Path(name).parts if part.startswith(".")), "")
        if hidden.startswith((".part-", ".progress-", ".lock-")):
            unfinished.add(hidden)
        elif path.is_file() and path.name.startswith(".vestige-"):
            found.noted.append(f"{name}: a file that a killed run was writing; the next run removes it")
        elif name == ".lock":
            found.need(path.stat().st_size == 0, ".lock was changed")
        elif path.is_file() and Path(name).parts[0] == IMPORTED:
            found.noted.append(f"{name}: published numbers that were put here; nothing of them is checked")
        elif path.is_file() and name not in listed and name not in UNLISTED:
            found.failed.append(f"{name} is not in the manifest")
    found.noted += [
        f"unfinished work: nodes/{name}" for name in sorted(unfinished) if name.startswith(".part-")
    ]
    return found


def keys(folder: Folder) -> Finding:
    """Node keys and registry keys recomputed; nothing twice."""
    found = Finding(what="keys")
    for name, record in folder.nodes.items():
        key = digest(record["format"], record["kind"], _canonical(record["identity"]))
        found.need(key == record["key"], f"{name}: its key does not follow from its identity")
        found.need(name == f"{record['kind']}-{key[:16]}", f"{name}: its folder has another key")
        for need in record["needs"]:
            known = any(other["key"] == need for other in folder.nodes.values())
            found.need(known, f"{name}: what it was made from ({need[:16]}) is missing")
    entries = folder.evaluations
    for entry in entries:
        key = digest("vestige-evaluation-2", _canonical(entry["identity"]))
        place = f"{entry['label']} on bundle {entry['bundle']}, seed {entry['identity']['seed']}"
        found.need(key == entry["key"], f"{place}: its key does not follow from its identity")
        if folder.has(entry["predictions"]):
            record = folder.nodes[Path(entry["predictions"]).parent.name]
            found.need(
                record["identity"]["model"] == entry["identity"]["unlearned"],
                f"{place}: its probabilities are another model's",
            )
            made = folder.by_key("unlearned", entry["identity"]["unlearned"])
            for field in ("method", "settings", "seed", "data", "model", "training"):
                found.need(
                    made["identity"][field] == entry["identity"][field],
                    f"{place}: {field} differs from its model's",
                )
    for one, other in combinations(entries, 2):
        found.need(one["key"] != other["key"], f"registry key {one['key'][:16]} occurs twice")
        same = ("label", "bundle")
        twins = all(one[name] == other[name] for name in same) and all(
            one["identity"][name] == other["identity"][name] for name in ("seed", "granularity", "candidates")
        )
        found.need(not twins, f"label '{one['label']}' stands for two configurations")
    return found


def coverage(folder: Folder) -> Finding:
    """Planned against done; what failed is named with its reason."""
    from vestige.study.plan import Plan

    plan = Plan.model_validate(folder.plan)
    found = Finding(what="planned results")
    failures = {
        item["key"]: item for item in (folder.json("failures.json") if folder.has("failures.json") else [])
    }
    for item in failures.values():
        found.noted.append(f"excluded: {item['label']} ({item['reason']})")
    planned_seeds = {("full", seed) for seed in plan.full_seeds}
    if plan.deletion.gated:
        planned_seeds.add(("full", plan.primary))
    done = {(record["kind"], record["identity"].get("seed")) for record in folder.nodes.values()}
    for kind, seed in sorted(planned_seeds):
        found.need((kind, seed) in done, f"no {kind} model of seed {seed}")
    if not folder.assessments and not folder.evaluations:
        found.unchecked.append("no evaluation was made yet: a tuned or interrupted study")
        return found
    left_out = folder.json("left_out.json") if folder.has("left_out.json") else {"infeasible": {}, "same": {}}
    for label, other in left_out["same"].items():
        found.noted.append(f"{label} has the settings of {other} and is evaluated once")
    for label, item in left_out["infeasible"].items():
        tried = {
            tuned["method"]
            for record in _frozen(folder)
            for tuned in record["methods"]
            if tuned["settings"] is None
        }
        found.need(item["method"] in tried, f"'{label}' was left out, though no frozen record says why")
        found.noted.append(f"left out: {label} ({item['why']})")
    wanted = {
        f"{cell.bundle}-s{cell.seed}" + (f"-{candidates}" if candidates != "S0" else ""): cell
        for cell in plan.planned
        for candidates in plan.offered_sets
    }
    for name, cell in wanted.items():
        if not found.need(name in folder.assessments, f"no assessment {name}"):
            continue
        stored = folder.assessments[name]
        found.need(stored["stage"] == cell.stage, f"{name}: of stage {stored['stage']}, planned {cell.stage}")
        labels = {model["label"] for model in stored["models"] if model["role"] == "unlearned"}
        mine = [item for item in folder.evaluations if item["assessment"] == f"assessments/{name}.json"]
        same = all(
            (item["bundle"], item["identity"]["seed"], item["stage"]) == (cell.bundle, cell.seed, cell.stage)
            for item in mine
        )
        entries = [entry for entry in plan.methods if entry.at(cell.bundle, cell.seed)]
        wrong = _unplanned(folder, entries, mine, left_out)
        found.need(same and not wrong, f"{name}: evaluations are not those planned ({', '.join(wrong)})")
        for item in mine:
            excused = item["identity"]["unlearned"] in failures
            found.need(
                item["label"] in labels or excused, f"{name}: '{item['label']}' was planned and is missing"
            )
        listed = {item["label"] for item in mine}
        found.need(labels <= listed, f"{name}: a model that was not planned")
    extra = set(folder.assessments) - set(wanted)
    found.noted += [f"assessments/{name}.json is not in the present plan" for name in sorted(extra)]
    return found


def _frozen(folder: Folder) -> list[Any]:
    """Every record of frozen settings in the folder."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.root.glob("frozen*.json"))]


def _unplanned(folder: Folder, entries: Sequence[Any], listed: Sequence[Any], left_out: Any) -> list[str]:
    """What is listed and not planned, or planned and not listed, by label or, without one, by method."""
    labels = {entry.label for entry in entries if entry.label is not None}

    def key(label: str, method: str) -> str:
        stem = label.rpartition(", ")[0] if label not in labels else label
        return stem if stem in labels else f"a {method} without a label"

    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for entry in entries:
        count = 1
        if entry.matched is not None and entry.label is None:
            count = sum(
                item["method"] == entry.method
                for record in _frozen(folder)
                if (record["study"], record["match"]) == (entry.frozen_by, entry.matched)
                for item in record["methods"]
            )
        name = entry.label or f"a {entry.method} without a label"
        # Several lengths of one configuration can round to the same number of epochs.
        least[name] = least.get(name, 0) + count
        most[name] = most.get(name, 0) + count * (entry.lengths or 1)
    method_of = {item["label"]: item["identity"]["method"] for item in listed}
    absent = [key(label, item["method"]) for label, item in left_out["infeasible"].items()]
    # A configuration that has another's settings stands under that one's label where both are planned.
    absent += [
        key(label, method_of[other])
        for label, other in left_out["same"].items()
        if other in method_of and label not in method_of
    ]
    for name in absent:
        least[name] = least.get(name, 0) - 1
        most[name] = most.get(name, 0) - 1
    counts = Counter(key(item["label"], item["identity"]["method"]) for item in listed)
    return sorted(
        name
        for name in {*least, *counts}
        if not max(0, least.get(name, 0)) <= counts[name] <= max(0, most.get(name, 0))
    )


def freeze(folder: Folder) -> Finding:
    """Tuning, then freezing, then evaluation; and the settings are those that were frozen."""
    found = Finding(what="conditions")
    origins = {entry["origin"] for entry in folder.evaluations}
    known = _frozen(folder)
    for entry in folder.evaluations:
        confirmed = entry["stage"] != "confirmation" or entry["origin"] == "frozen"
        found.need(confirmed, "a confirmation with settings that are not frozen")
    if "frozen" in origins:
        found.need(bool(known), "frozen settings without frozen.json")
    if not known:
        return found
    replaced = _replaced(folder)
    for entry in folder.evaluations:
        if entry["origin"] != "frozen":
            continue
        place = f"{entry['label']} on bundle {entry['bundle']}, seed {entry['identity']['seed']}"
        matching = [
            frozen
            for frozen in known
            for item in frozen["methods"]
            if item["method"] == entry["identity"]["method"]
            and _without(item["settings"], replaced) == _without(entry["identity"]["settings"], replaced)
        ]
        if not found.need(bool(matching), f"{place}: other settings than were frozen"):
            continue
        name = f"unlearned-{entry['identity']['unlearned'][:16]}"
        if name in folder.nodes:
            began = folder.nodes[name]["started"]
            found.need(
                any(frozen["time"] <= began for frozen in matching),
                f"{place}: begun {began}, before it was frozen",
            )
        if entry["stage"] == "confirmation":
            found.need(
                any(
                    frozen["data"] == entry["identity"]["data"]
                    and frozen["model"] == entry["identity"]["model"]
                    for frozen in matching
                ),
                f"{place}: frozen on other data or another model",
            )
            used = _margins(folder, entry)
            found.need(
                used is None or any(frozen.get("margins") in (None, used) for frozen in matching),
                f"{place}: other margins than were frozen",
            )
            hashes = [frozen["bundles"].get(entry["bundle"]) for frozen in matching]
            found.need(
                entry["identity"]["units"] in hashes, f"{place}: another bundle than the one that was frozen"
            )
    failures = folder.json("failures.json") if folder.has("failures.json") else []
    failed = {item["key"] for item in failures}
    for name, assessment in folder.assessments.items():
        if assessment["stage"] != "confirmation":
            continue
        mine = [item for item in folder.evaluations if item["assessment"] == f"assessments/{name}.json"]
        excused = {item["label"] for item in mine if item["identity"]["unlearned"] in failed}
        taken = {(item["identity"]["method"], _canonical(item["identity"]["settings"])) for item in mine}
        wanted = {
            label
            for frozen in known
            if any((item["method"], _canonical(item["settings"])) in taken for item in frozen["methods"])
            for label in frozen["family"]
        }
        found.need(
            set(assessment["family"]) == wanted - excused,
            f"{name}: Holm's family is not the one that was frozen",
        )
    if folder.has("frozen.json"):
        _own_freeze(folder, found)
    return found


def _margins(folder: Folder, entry: Any) -> Any:
    """The margins that the verdict on an evaluation used; None where it has none yet."""
    record = folder.assessments.get(Path(entry["assessment"]).stem, {"models": []})
    judged = [model.get("evidence") for model in record["models"] if model["label"] == entry["label"]]
    return judged[0]["margins"] if judged and judged[0] else None


def _replaced(folder: Folder) -> set[str]:
    """Settings that an exploratory plan puts in the place of frozen ones."""
    names: set[str] = set()
    for entry in folder.plan.get("methods", []):
        if isinstance(entry, dict):
            names |= set(entry.get("settings") or {})
            names |= {"epochs"} if entry.get("lengths") else set()
    return names


def _without(settings: Any, names: set[str]) -> Any:
    return {name: value for name, value in (settings or {}).items() if name not in names}


def _own_freeze(folder: Folder, found: Finding) -> None:
    frozen = folder.json("frozen.json")
    if not found.need(folder.has("tuning.json"), "frozen.json without tuning.json"):
        return
    found.need(
        frozen["tuning_sha256"] == _sha256(folder.root / "tuning.json"), "tuning.json changed after freezing"
    )
    found.need(folder.json("tuning.json")["time"] <= frozen["time"], "frozen before tuning ended")
    chosen = {item["method"]: item["settings"] for item in folder.json("tuning.json")["methods"]}
    for item in frozen["methods"]:
        found.need(
            chosen.get(item["method"]) == item["settings"],
            f"{item['method']}: frozen is not what tuning chose",
        )
    for name, record in folder.nodes.items():
        if record["kind"] == "tuning":
            found.need(record["finished"] <= frozen["time"], f"{name}: tuned after freezing")


def tuning(folder: Folder) -> Finding:
    """The chosen candidates follow from the recorded ones, these from the nodes."""
    found = Finding(what="conditions")
    if not folder.has("tuning.json"):
        return found
    value = folder.json("tuning.json")
    for method in value["methods"]:
        name = method["title"]
        candidates: list[tuple[float, int, int]] = []
        everything: list[tuple[float, int, int]] = []
        extra: dict[tuple[int, int], Any] = {}
        for index, point in enumerate(method["points"]):
            record = folder.by_key("tuning", point["node"])
            epochs = folder.json(f"nodes/tuning-{point['node'][:16]}/epochs.json")
            found.need(epochs == point["epochs"], f"{name}, point {index}: other epochs than its node's")
            found.need(
                record["identity"]["settings"] == point["settings"], f"{name}, point {index}: other settings"
            )
            for epoch in epochs:
                same = abs(epoch["od_f"] + epoch["od_g"] - epoch["objective"]) <= 1e-12
                found.need(
                    same, f"{name}, point {index}, epoch {epoch['epoch']}: objective is not OD_F + OD_G"
                )
                allowed = epoch["delta_accuracy"] >= -0.02 - 1e-12 and epoch["delta_ece"] <= 0.02 + 1e-12
                found.need(
                    allowed == epoch["feasible"],
                    f"{name}, point {index}, epoch {epoch['epoch']}: feasibility is wrong",
                )
                everything.append((epoch["objective"], epoch["epoch"], index))
                if allowed:
                    candidates.append((epoch["objective"], epoch["epoch"], index))
            extra |= {(index, epoch["epoch"]): epoch["settings"] for epoch in epochs if epoch.get("settings")}
        count = sum(len(point["epochs"]) for point in method["points"])
        found.need(
            count == method["candidates"], f"{name}: {count} candidates, {method['candidates']} recorded"
        )
        found.need(
            len(candidates) == method["feasible_candidates"], f"{name}: another count of feasible candidates"
        )
        # A post-hoc method trains nothing: each candidate has settings of its own.
        budget = count if extra else len(method["points"]) * value["epochs"]
        found.need(method["budget"] == budget, f"{name}: another budget than its grid's")
        if not candidates and method["control"]:
            # A control is shown whatever it costs: the candidate of smallest objective stands, and says so.
            candidates = everything
            found.need("no feasible candidate" in method["note"], f"{name}: an infeasible choice unsaid")
        if not candidates:
            found.need(method["settings"] is None, f"{name}: chosen without a feasible candidate")
            continue
        _, epoch_number, index = min(candidates)
        own = extra.get((index, epoch_number), {"epochs": epoch_number})
        best = {**method["points"][index]["settings"], **own}
        found.need(
            method["settings"] == best, f"{name}: the chosen setting is not the best feasible candidate"
        )
        if method["edges"]:
            found.noted.append(f"{name}: chosen at the edge of the grid ({', '.join(method['edges'])})")
    equal = len({method["budget"] for method in value["methods"] if not method.get("fitted")}) <= 1
    found.need(value["equal_budgets"] == equal, "budgets are not as equal as recorded")
    if not equal:
        found.noted.append("tuning budgets differ between methods")
    _matched(folder, found)
    return found


def _matched(folder: Folder, found: Finding) -> None:
    """Records of matched suppression name feasible candidates of tuning.json, the nearest ones."""
    tuned = {item["method"]: item for item in folder.json("tuning.json")["methods"]}
    for path in sorted(folder.root.glob("matched-*.json")):
        record = json.loads(path.read_bytes())
        if record["tuning_sha256"] != _sha256(folder.root / "tuning.json"):
            found.noted.append(f"{path.name} was matched on an earlier tuning")
            continue
        for item in record["methods"]:
            among = item["among"].items()
            gaps = [
                (abs(epoch["s"] - record["match"]), {**point["settings"], **own})
                for point in tuned[item["method"]]["points"]
                for epoch in point["epochs"]
                for own in [epoch.get("settings") or {"epochs": epoch["epoch"]}]
                if epoch["feasible"]
                and isinstance(epoch.get("s"), float)
                and among <= {**point["settings"], **own}.items()
            ]
            place = f"{path.name}, {item['label']}"
            if item["settings"] is None:
                found.need(not gaps, f"{place}: a feasible candidate was left out")
                continue
            own_gaps = [gap for gap, settings in gaps if settings == item["settings"]]
            found.need(item["gap"] in own_gaps, f"{place}: no such feasible candidate")
            found.need(item["unmatched"] == (item["gap"] > 0.1), f"{place}: matched or not is wrong")
            nearest = min((gap for gap, _ in gaps), default=item["gap"])
            found.need(item["gap"] <= nearest + 1e-12, f"{place}: another candidate is nearer")


def history(folder: Folder) -> Finding:
    """What a reader should know: changed plans, reruns, mixed environments."""
    found = Finding(what="runs")
    value = folder.json("history.json")
    found.count = len(value)
    plans = [item["plan"] for item in value]
    found.need(plans[-1] == digest(_canonical(folder.plan)), "plan.json is not the plan of the last run")
    found.count = len(value)
    changes = sum(one != other for one, other in pairwise(plans))
    if changes:
        found.noted.append(
            f"the plan changed {changes} time(s) in this folder: selections after the first are post hoc"
        )
    environments = {_canonical(record["environment"]) for record in folder.nodes.values()}
    if len(environments) > 1:
        found.noted.append(
            f"nodes were made in {len(environments)} different environments (versions or threads)"
        )
    return found
