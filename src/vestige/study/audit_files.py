"""Checks of files, keys, requests, coverage, freezing and tuning."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.seeds import digest
from vestige.study.audit_folder import Finding, Folder

__all__ = [
    "coverage",
    "data",
    "exposure",
    "files",
    "freeze",
    "history",
    "keys",
    "requests",
    "reserved",
    "tuning",
]

UNLISTED = ("manifest.json",)


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
        elif name == ".lock":
            found.need(path.stat().st_size == 0, ".lock was changed")
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
        key = digest("vestige-evaluation-1", _canonical(entry["identity"]))
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


def requests(folder: Folder) -> Finding:
    """Hashes, disjointness and hash order of the requests."""
    found = Finding(what="conditions")
    for label, request in folder.requests.items():
        units, rows = digest("units", *sorted(request["units"])), digest(*sorted(request["unit_of"]))
        found.need(request["bundle"] == label, f"requests/{label}.json names bundle {request['bundle']}")
        found.need(units == request["units_sha256"], f"bundle {label}: another hash of units")
        found.need(rows == request["rows_sha256"], f"bundle {label}: another hash of rows")
        found.need(
            digest("request-1", request["granularity"], units, rows) == request["sha256"],
            f"bundle {label}: another hash of the request",
        )
        found.need(
            set(request["unit_of"].values()) == set(request["units"]), f"bundle {label}: units without rows"
        )
    for (label, one), (other_label, other) in combinations(folder.requests.items(), 2):
        shared = set(one["unit_of"]) & set(other["unit_of"])
        found.need(not shared, f"bundles {label} and {other_label} share {len(shared)} rows")
    if folder.has("bundles.json"):
        _hash_order(folder, found)
    return found


def _hash_order(folder: Folder, found: Finding) -> None:
    plan, gates = folder.json("bundles.json"), folder.json("gates.json")
    gate = gates["acquisition"][str(folder.primary_seed)]
    eligible = [item["option"] for item in gate["classes"] if item["passed"]]
    ordered = sorted(eligible, key=lambda unit: hashlib.sha256(f"{plan['salt']}:{unit}".encode()).hexdigest())
    size = plan["size"]
    asked = folder.plan.get("deletion", {})
    found.need(plan["salt"] == asked.get("salt", plan["salt"]), "bundles use another salt than the plan")
    for label in (*plan["bundles"], *plan["reserved"]):
        units = ordered[int(label) * size : (int(label) + 1) * size]
        if label in plan["reserved"]:
            found.need(
                digest("units", *sorted(units)) == plan["reserved"][label],
                f"reserved bundle {label}: another hash",
            )
            continue
        found.need(
            plan["bundles"][label] == units, f"bundle {label} is not in hash order of the eligible units"
        )
        if label in folder.requests:
            found.need(
                sorted(folder.requests[label]["units"]) == sorted(units), f"request {label} is not its bundle"
            )


def reserved(folder: Folder) -> Finding:
    """No trace of a reserved bundle beyond its hash."""
    found = Finding(what="conditions")
    asked = folder.plan.get("deletion", {}).get("reserved", [])
    held = folder.json("bundles.json")["reserved"] if folder.has("bundles.json") else {}
    labels = sorted({*held, *(f"{item:02d}" if isinstance(item, int) else item for item in asked)})
    for label in labels:
        found.need(not folder.has(f"requests/{label}.json"), f"a request of reserved bundle {label}")
        for kind in ("views", "assessments"):
            traces = list((folder.root / kind).glob(f"{label}-*"))
            found.need(not traces, f"{kind} of reserved bundle {label}")
        found.need(
            all(entry["bundle"] != label for entry in folder.evaluations),
            f"an evaluation of reserved bundle {label}",
        )
    hashes = set(held.values())
    for name, record in folder.nodes.items():
        units = record["identity"].get("request", {}).get("units")
        found.need(units not in hashes, f"{name} was made for a reserved bundle")
    for label, request in folder.requests.items():
        found.need(request["units_sha256"] not in hashes, f"request {label} is a reserved bundle")
    return found


def exposure(folder: Folder) -> Finding:
    """F, G and R apart; F the deleted rows; tuning rows apart from evaluation rows; oracles short of D_F."""
    found = Finding(what="conditions")
    evaluated: set[str] = set()
    for name, rows in folder.views.items():
        label, split = name.rsplit("-", 1)
        ids = [row[0] for row in rows]
        found.need(len(set(ids)) == len(ids), f"views/{name}: a row in two views")
        deleted = set(folder.requests[label]["unit_of"])
        f = {row[0] for row in rows if row[1] == "F"}
        others = set(ids) - f
        custom = folder.requests[label]["granularity"] == "custom"
        found.need(f <= deleted if custom else f == deleted, f"views/{name}: F is not the deleted rows")
        found.need(not others & deleted, f"views/{name}: a deleted row in G or R")
        if split == "evaluation":
            evaluated |= others
    for name, rows in folder.views.items():
        if name.endswith("-development"):
            read = {row[0] for row in rows if row[1] != "F"}
            found.need(
                not read & evaluated, f"views/{name}: tuning reads {len(read & evaluated)} evaluation rows"
            )
            custom_f = {row[0] for row in rows if row[1] == "F"}
            again = {row[0] for row in folder.views.get(name.replace("development", "evaluation"), [])}
            found.need(
                not custom_f & again, f"views/{name}: rows of F that tuning reads are reported as well"
            )
    fulls = [record for record in folder.nodes.values() if record["kind"] == "full"]
    for name, record in folder.nodes.items():
        if record["kind"] == "oracle":
            gone = record["result"]["deleted_rows"]
            request = _request(folder, record["identity"]["request"]["rows"])
            if request is None:
                found.noted.append(f"{name}: the oracle of a request that is no longer here")
                continue
            found.need(gone == len(request["unit_of"]), f"{name}: left out {gone} rows, not the request's")
            for full in fulls:
                found.need(
                    record["result"]["train_rows"] + gone == full["result"]["train_rows"],
                    f"{name}: trained on another number of rows than the full model less the request",
                )
    return found


def _request(folder: Folder, rows_sha256: str) -> Any:
    return next((item for item in folder.requests.values() if item["rows_sha256"] == rows_sha256), None)


def data(folder: Folder) -> Finding:
    """Requests, views and trained rows against the data set, where it can be loaded."""
    from vestige.data.intents import load_intents
    from vestige.study.plan import Plan

    found = Finding(what="conditions")
    stored = folder.json("data.json")
    for name, record in folder.nodes.items():
        found.need(
            record["identity"]["data"] == stored["sha256"], f"{name}: made from other data than data.json"
        )
    for label, request in folder.requests.items():
        found.need(
            request["data_sha256"] == stored["sha256"], f"request {label}: made on other data than data.json"
        )
    plan = Plan.model_validate(folder.plan)
    try:
        loaded = load_intents(plan.dataset)
    except InputError as error:
        found.unchecked.append(f"the data set could not be loaded: {error}")
        return found
    if loaded.sha256 != stored["sha256"]:
        found.unchecked.append(
            f"the data set here has another hash ({loaded.sha256[:16]}) than the one that was used "
            f"({stored['sha256'][:16]}): another version of it"
        )
        return found
    train = dict(zip(loaded.rows("train")["row_id"], loaded.rows("train")["gold"], strict=True))
    for label, request in folder.requests.items():
        rows = set(request["unit_of"])
        found.need(rows <= set(train), f"request {label} deletes rows that are no training rows")
        if request["granularity"] == "class":
            wanted = {row for row, gold in train.items() if gold in set(request["units"])}
            found.need(rows == wanted, f"request {label} is not all training rows of its classes")
    for name, rows_of in folder.views.items():
        label, split = name.rsplit("-", 1)
        there = loaded.rows("evaluation" if split == "evaluation" else "development")
        gold = dict(zip(there["row_id"], there["gold"], strict=True))
        kept = {row[0]: row[1] for row in rows_of if row[1] != "F"}
        found.need(set(kept) <= set(gold), f"views/{name}: rows of another split")
        if split == "evaluation":
            found.need(set(kept) == set(gold), f"views/{name}: evaluation rows are missing")
        if folder.requests[label]["granularity"] == "class":
            units = set(folder.requests[label]["units"])
            wrong = sum((view == "G") != (gold.get(row) in units) for row, view in kept.items())
            found.need(not wrong, f"views/{name}: {wrong} rows in the wrong one of G and R")
    for name, record in folder.nodes.items():
        if record["kind"] not in ("full", "oracle"):
            continue
        request = _request(folder, record["identity"].get("request", {}).get("rows", ""))
        if record["kind"] == "oracle" and request is None:
            continue
        gone = set(request["unit_of"]) if request else set()
        rows_trained = digest(*sorted(set(train) - gone))
        found.need(record["identity"]["rows"] == rows_trained, f"{name}: trained on other rows")
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
    done = {(record["kind"], record["identity"].get("seed")) for record in folder.nodes.values()}
    for kind, seed in sorted(planned_seeds):
        found.need((kind, seed) in done, f"no {kind} model of seed {seed}")
    if not folder.assessments and not folder.evaluations:
        found.unchecked.append("no evaluation was made yet: a tuned or interrupted study")
        return found
    wanted = {
        f"{bundle}-s{seed}" + (f"-{candidates}" if candidates != "S0" else ""): (bundle, seed)
        for bundle in plan.bundles
        for seed in plan.seeds
        for candidates in plan.candidates
    }
    for name, (bundle, seed) in wanted.items():
        if not found.need(name in folder.assessments, f"no assessment {name}"):
            continue
        labels = {
            model["label"] for model in folder.assessments[name]["models"] if model["role"] == "unlearned"
        }
        mine = [item for item in folder.evaluations if item["assessment"] == f"assessments/{name}.json"]
        same = all((item["bundle"], item["identity"]["seed"]) == (bundle, seed) for item in mine)
        found.need(
            same and len(mine) == len(plan.methods),
            f"{name}: {len(mine)} of {len(plan.methods)} evaluations listed",
        )
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


def freeze(folder: Folder) -> Finding:
    """Tuning, then freezing, then evaluation; and the settings are those that were frozen."""
    found = Finding(what="conditions")
    stage = folder.plan.get("stage", "pilot")
    origins = {entry["origin"] for entry in folder.evaluations}
    records = sorted(folder.root.glob("frozen*.json"))
    if stage == "confirmation" and folder.evaluations:
        found.need(origins == {"frozen"}, "a confirmation with settings that are not frozen")
    if "frozen" in origins:
        found.need(bool(records), "frozen settings without frozen.json")
    if not records:
        return found
    known = [json.loads(path.read_bytes()) for path in records]
    for entry in folder.evaluations:
        if entry["origin"] != "frozen":
            continue
        place = f"{entry['label']} on bundle {entry['bundle']}, seed {entry['identity']['seed']}"
        matching = [
            frozen
            for frozen in known
            for item in frozen["methods"]
            if item["method"] == entry["identity"]["method"]
            and item["settings"] == entry["identity"]["settings"]
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
        if stage == "confirmation":
            found.need(
                any(
                    frozen["data"] == entry["identity"]["data"]
                    and frozen["model"] == entry["identity"]["model"]
                    for frozen in matching
                ),
                f"{place}: frozen on other data or another model",
            )
            hashes = [frozen["bundles"].get(entry["bundle"]) for frozen in matching]
            found.need(
                entry["identity"]["units"] in hashes, f"{place}: another bundle than the one that was frozen"
            )
    if stage == "confirmation":
        failures = folder.json("failures.json") if folder.has("failures.json") else []
        excused = {
            entry["label"]
            for entry in folder.evaluations
            if entry["identity"]["unlearned"] in {f["key"] for f in failures}
        }
        wanted = {label for frozen in known for label in frozen["family"]} - excused
        for name, assessment in folder.assessments.items():
            found.need(
                set(assessment["family"]) == wanted, f"{name}: Holm's family is not the one that was frozen"
            )
    if folder.has("frozen.json"):
        _own_freeze(folder, found)
    return found


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
        candidates = []
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
                if allowed:
                    candidates.append((epoch["objective"], epoch["epoch"], index))
        count = sum(len(point["epochs"]) for point in method["points"])
        found.need(
            count == method["candidates"], f"{name}: {count} candidates, {method['candidates']} recorded"
        )
        found.need(
            len(candidates) == method["feasible_candidates"], f"{name}: another count of feasible candidates"
        )
        found.need(
            method["budget"] == len(method["points"]) * value["epochs"],
            f"{name}: another budget than its grid's",
        )
        if not candidates:
            found.need(method["settings"] is None, f"{name}: chosen without a feasible candidate")
            continue
        _, epoch_number, index = min(candidates)
        best = {**method["points"][index]["settings"], "epochs": epoch_number}
        found.need(
            method["settings"] == best, f"{name}: the chosen setting is not the best feasible candidate"
        )
        if method["edges"]:
            found.noted.append(f"{name}: chosen at the edge of the grid ({', '.join(method['edges'])})")
    equal = len({method["budget"] for method in value["methods"]}) == 1
    found.need(value["equal_budgets"] == equal, "budgets are not as equal as recorded")
    if not equal:
        found.noted.append("tuning budgets differ between methods")
    return found


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
