"""Checks of tuning and frozen settings: every grid point listed, choices follow, nothing was frozen late."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.methods import METHODS
from vestige.seeds import digest
from vestige.study import audit_numbers as numbers
from vestige.study import plan_audit
from vestige.study.audit_compare import TOLERANCE, Later, Near, Said, compared, number, text, time
from vestige.study.audit_folder import Finding, Folder

__all__ = ["freeze", "labels", "tuning"]

LEAST_VALUES = 3
MATCHED_WITHIN = 0.1
DEVELOPMENT = "00"
SHARE = Said("a number from 0 to 1", lambda value: number.holds(value) and 0 <= value <= 1)
MARGINS = Said("margins", lambda value: value is None or isinstance(value, dict))
MEASURED = Said(
    "a number, or undefined",
    lambda value: number.holds(value) or (isinstance(value, dict) and "undefined" in value),
)
SIZE = Said(
    "a number of 0 or more, or undefined", lambda value: MEASURED.holds(value) and _not_negative(value)
)


def _not_negative(value: Any) -> bool:
    return isinstance(value, dict) or value >= 0


@dataclass(frozen=True)
class _Search:
    """A method as it was tuned. points: settings of each; names: folders of their parts; how: what their
    identities say beside settings; otherwise: fields whose grid is not what this version tries by default."""

    method: str
    title: str
    control: bool
    fitted: bool
    grid: dict[str, list[Any]]
    points: list[dict[str, Any]]
    names: list[str]
    otherwise: tuple[str, ...]


@dataclass(frozen=True)
class _Rows:
    """The development rows that tuning read. full, oracle: paths of the tables of the compared models."""

    bundle: str
    request: Any = field(repr=False)
    view: list[tuple[str, str, str]] = field(repr=False)
    sha256: str = ""
    full: str = ""
    oracle: str = ""


def _rows(folder: Folder) -> _Rows:
    return folder.once("development rows", lambda: _development(folder))


def _development(folder: Folder) -> _Rows:
    plan = folder.planned
    bundle = DEVELOPMENT if plan.deletion.bundled else "custom"
    request, view = folder.requests[bundle], folder.views[f"{bundle}-development"]
    sha256 = plan_audit.rows_hash(view)
    full = plan_audit.model_node(folder, "full", seed=plan.primary)
    oracle = plan_audit.model_node(
        folder, "oracle", seed=plan.primary, request=plan_audit.identity_of(request)
    )
    paths = [
        None if model is None else plan_audit.scored(folder, model, "development", sha256)
        for model in (full, oracle)
    ]
    if None in paths:
        raise ValueError("tuning.json without the development probabilities of full model and oracle")
    return _Rows(bundle, request, view, sha256, str(paths[0]), str(paths[1]))


def _searches(folder: Folder) -> list[_Search]:
    return folder.once("searches", lambda: list(_made(folder)))


def _made(folder: Folder) -> Any:
    plan, rows = folder.planned, _rows(folder)
    stored = {item["method"]: item for item in folder.json("tuning.json")["methods"]}
    mine = [entry.method for entry in plan.methods if entry.frozen_by is None]
    asked: dict[str, Any] = {name: plan.tuning.grid.get(name, {}) for name in (*mine, *plan.tuning.grid)}
    if _replanned(folder):
        asked = {name: item["grid"] for name, item in stored.items()}
    for name, own in asked.items():
        objective = METHODS.get(name)
        raw: dict[str, Any] = {**objective.grid, **own}
        otherwise = []
        for key, values in (stored.get(name) or {"grid": {}})["grid"].items():
            if key not in own and list(raw.get(key, [])) != values:
                raw[key] = values
                otherwise.append(key)
        fitted = objective.post_hoc is not None
        more = {} if fitted else {"epochs": _asked(folder)["epochs"]}
        order = sorted(raw)
        points = [
            plan_audit.defaults(name, {**dict(zip(order, values, strict=True)), **more})
            for values in itertools.product(*(raw[key] for key in order))
        ]
        grid = {key: list(dict.fromkeys(point[key] for point in points)) for key in order}
        tried: list[dict[str, Any]] = [{}] if fitted else points
        how: dict[str, Any] = (
            {"values": grid["temperature"]} if fitted else {"prune": _asked(folder)["prune"]}
        )
        names = [_name(folder, rows, name, point, how) for point in tried]
        control = objective.role == "control"
        yield _Search(name, objective.title, control, fitted, grid, tried, names, tuple(otherwise))


def _replanned(folder: Folder) -> bool:
    """Whether the plan changed after the last tuning: what was asked then is in a hash alone."""
    return not plan_audit.plan_stands_since(folder, folder.json("tuning.json")["time"])


def _asked(folder: Folder) -> dict[str, Any]:
    """Epochs and early stopping that tuning was asked for."""
    if _replanned(folder):
        stored = folder.json("tuning.json")
        return {"epochs": stored["epochs"], "prune": stored["prune"]}
    plan = folder.planned.tuning
    return {"epochs": plan.epochs, "prune": plan.prune}


def _name(folder: Folder, rows: _Rows, method: str, point: Mapping[str, Any], how: Mapping[str, Any]) -> str:
    seed = folder.planned.primary
    full = plan_audit.model_node(folder, "full", seed=seed)
    tables = {
        role: folder.nodes[path.split("/")[1]]["key"]
        for role, path in (("full", rows.full), ("oracle", rows.oracle))
    }
    identity = {
        **plan_audit.base_of(folder),
        "seed": seed,
        "start": full["key"],
        "request": plan_audit.identity_of(rows.request),
        "method": method,
        "settings": dict(point),
        **how,
        "table": rows.sha256,
        **tables,
    }
    return plan_audit.node_name("tuning", identity)


def labels(folder: Folder) -> dict[str, str]:
    """Folder name -> label of every part that tuning asks for."""
    if not folder.has("tuning.json"):
        return {}
    rows = _rows(folder)
    found = {}
    for item in _searches(folder):
        for point, name in zip(item.points, item.names, strict=True):
            told = ", ".join(
                f"{key} {point[key]:g}" for key in item.grid if isinstance(point.get(key), int | float)
            )
            found[name] = f"{item.title} ({told or 'search'}) on bundle {rows.bundle}"
    return found


def tuning(folder: Folder) -> Finding:
    """Every point of every grid with its part's epochs, and the choice that follows from them."""
    found = folder.finding("conditions")
    if not folder.has("tuning.json"):
        for name, record in folder.nodes.items():
            found.need(record["kind"] != "tuning", f"{name} was tuned, and there is no tuning.json")
        return found
    stored, plan, rows = folder.json("tuning.json"), folder.planned, _rows(folder)
    searches = _searches(folder)
    methods = [_method(folder, item, found) for item in searches]
    trained = {item["budget"] for item, search in zip(methods, searches, strict=True) if not search.fitted}
    expected = {
        "format": "vestige-tuning-1",
        "time": time,
        "bundle": rows.bundle,
        "seed": plan.primary,
        "request": plan_audit.identity_of(rows.request),
        "rows": {view: sum(row[1] == view for row in rows.view) for view in ("F", "G", "R")},
        "table_sha256": rows.sha256,
        "objective": "OD_F + OD_G over feasible candidates",
        "used_oracle": True,
        "held_out": plan.deletion.granularity == "custom",
        **_asked(folder),
        "equal_budgets": len(trained) <= 1 and not _asked(folder)["prune"],
        "methods": methods,
    }
    _listed_methods(expected, stored, found, "tuning.json", "")
    if _replanned(folder):
        found.noted.append(
            "the plan changed after tuning: which methods and values it asked for is not known"
        )
    for item in searches:
        if item.otherwise:
            found.noted.append(
                f"{item.title}: another default grid than this version's ({', '.join(item.otherwise)})"
            )
    for method in methods:
        if method["edges"]:
            found.noted.append(
                f"{method['title']}: chosen at the edge of the grid ({', '.join(method['edges'])})"
            )
    if not expected["equal_budgets"]:
        found.noted.append("tuning budgets differ between methods")
    _matched(folder, found)
    return found


def _listed_methods(expected: dict[str, Any], stored: Any, found: Finding, what: str, before: str) -> None:
    """Compare a record that lists methods; each is named in what is wrong with it."""
    whole = isinstance(stored.get("methods"), list) and len(stored["methods"]) == len(expected["methods"])
    if whole:
        for one, other in zip(expected["methods"], stored["methods"], strict=True):
            compared(one, other, found, f"{before}{one.get('title') or one['label']}")
        stored = {**stored, "methods": []}
        expected = {**expected, "methods": []}
    compared(expected, stored, found, what)


def _method(folder: Folder, item: _Search, found: Finding) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    candidates = []
    for index, (point, name) in enumerate(zip(item.points, item.names, strict=True)):
        if not found.need(name in folder.nodes, f"{item.title}, point {index}: no part of these settings"):
            points.append({"node": name})
            continue
        record = folder.nodes[name]
        epochs = folder.json(f"nodes/{name}/epochs.json")
        _epochs(folder, item, f"{item.title}, point {index}", epochs, record, found)
        points.append(
            {
                "node": record["key"],
                "settings": point,
                "epochs": epochs,
                "stopped": record["result"]["stopped"],
                "seconds": record["seconds"],
            }
        )
        candidates += [(epoch["objective"], epoch["epoch"], index, epoch) for epoch in epochs]
    feasible = [candidate for candidate in candidates if candidate[3]["feasible"]]
    pool = feasible or (candidates if item.control else [])
    notes = []
    chosen: Any = None
    settings: Any = None
    edge: list[str] = []
    fitted: Any = None
    if item.fitted and item.names[0] in folder.nodes:
        result = folder.nodes[item.names[0]]["result"]
        fitted = result["fitted"]
        if result["fitted_at_bound"]:
            notes.append("the likelihood's temperature lies at the bound of its search")
    if pool:
        _, _, index, chosen = min(pool, key=lambda candidate: candidate[:3])
        own = chosen["settings"] or {"epochs": chosen["epoch"]}
        settings = {**item.points[index], **own}
        edge = [
            name
            for name, values in _numeric(item.grid)
            if len(values) >= LEAST_VALUES and settings[name] in (min(values), max(values))
        ]
        if not item.fitted and chosen["epoch"] >= _asked(folder)["epochs"]:
            edge.append("epochs")
        if not chosen["feasible"]:
            notes.insert(0, "no feasible candidate: a control, so the one of the smallest objective stands")
    else:
        notes.insert(0, "no feasible candidate")
    budget = len(candidates) if item.fitted else len(item.points) * _asked(folder)["epochs"]
    narrow = [name for name, values in _numeric(item.grid) if len(values) < LEAST_VALUES] if pool else []
    return {
        "method": item.method,
        "title": item.title,
        "control": Later(item.control),
        "grid": item.grid,
        "points": points,
        "settings": settings,
        "chosen": chosen,
        "edges": edge,
        "unbracketed": Later(narrow),
        "candidates": len(candidates),
        "feasible_candidates": len(feasible),
        "budget": budget,
        "note": "; ".join(notes),
        "fitted": Later(fitted),
    }


def _numeric(grid: Mapping[str, Sequence[Any]]) -> list[tuple[str, set[float]]]:
    return [
        (name, set(values))
        for name, values in sorted(grid.items())
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    ]


def _epochs(
    folder: Folder, item: _Search, place: str, epochs: Any, record: Mapping[str, Any], found: Finding
) -> None:
    """The candidates of one point: whole, numbered, their sums, feasibility and changes consistent with each
    other and with the full model's development probabilities."""
    full = folder.once("development start", lambda: _start(folder))
    for place_in, epoch in enumerate(epochs, start=1):
        accuracy, ece = (
            epoch[name] if number.holds(epoch[name]) else math.nan for name in ("accuracy", "ece")
        )
        change = accuracy - full[0], ece - full[1]
        allowed = change[0] >= -0.02 - TOLERANCE and change[1] <= 0.02 + TOLERANCE
        expected = {
            "epoch": place_in,
            "od_f": SHARE,
            "od_g": SHARE,
            "objective": Near(epoch["od_f"] + epoch["od_g"]),
            "accuracy": SHARE,
            "ece": SHARE,
            "delta_accuracy": Near(change[0], 1e-9),
            "delta_ece": Near(change[1], 1e-9),
            "feasible": allowed,
            "s": MEASURED,
            "update_norm": 0.0 if item.fitted else SIZE,
            "settings": Later({"temperature": number} if item.fitted else {}),
        }
        compared(expected, epoch, found, f"{place}, epoch {place_in}")
    stopped = record["result"]["stopped"]
    whole = stopped == "all epochs" and not item.fitted
    planned = _asked(folder)["epochs"]
    found.need(not whole or len(epochs) == planned, f"{place}: {len(epochs)} epochs, planned {planned}")
    early = _asked(folder)["prune"] or stopped.startswith("diverged") or item.fitted
    found.need(early or stopped == "all epochs", f"{place}: it stopped early ({stopped})")
    if item.fitted:
        tried = {epoch["settings"]["temperature"] for epoch in epochs}
        found.need(set(item.grid["temperature"]) <= tried, f"{place}: temperatures of the grid are missing")


def _start(folder: Folder) -> tuple[float, float]:
    """Retained accuracy and calibration error of the full model on the development rows."""
    table = folder.table(_rows(folder).full)
    view = numbers.view_of("R", [table], {}, [], ("full", ""), [])
    return float(numbers.right(view.full, view.gold).mean()), numbers.ece(view.full, view.gold).value


def _matched(folder: Folder, found: Finding) -> None:
    """Records of matched suppression name feasible candidates of tuning.json, the nearest ones."""
    tuned = {item["method"]: item for item in folder.json("tuning.json")["methods"]}
    for path in sorted(folder.root.glob("matched-*.json")):
        record = folder.json(path.name)
        if record["tuning_sha256"] != _sha256(folder, "tuning.json"):
            found.noted.append(f"{path.name} was matched on an earlier tuning")
            continue
        found.need(
            path.name == f"matched-{record['match']:g}.json", f"{path.name}: matched to {record['match']:g}"
        )
        methods = []
        for item in record["methods"]:
            methods.append(_nearest(tuned[item["method"]], item, record["match"]))
        expected = _frozen(folder, methods, record)
        expected["family"] = _family(methods, folder, record)
        _listed_methods(expected, record, found, path.name, f"{path.name}, ")


def _family(methods: Sequence[Mapping[str, Any]], folder: Folder, record: Any) -> Any:
    """Candidates among the methods that have settings, in the order of the plan's family where it has one."""
    if not plan_audit.plan_stands_since(folder, record["time"]):
        return Said(
            "labels", lambda told: isinstance(told, list) and set(told) <= {item["label"] for item in methods}
        )
    able = {item["label"] for item in methods if not item["control"] and item["settings"] is not None}
    order = folder.planned.family or [item["label"] for item in methods]
    return [label for label in order if label in able]


def _nearest(tuned: Mapping[str, Any], item: Mapping[str, Any], target: float) -> dict[str, Any]:
    """The listing that a matched method has to have."""
    among = dict(item["among"])
    candidates = []
    there = False
    for index, point in enumerate(tuned["points"]):
        for place, epoch in enumerate(point["epochs"]):
            settings = {**point["settings"], **(epoch.get("settings") or {"epochs": epoch["epoch"]})}
            if not among.items() <= settings.items():
                continue
            there = True
            if epoch["feasible"] and isinstance(epoch.get("s"), float):
                size = epoch["update_norm"] if isinstance(epoch["update_norm"], float) else math.inf
                gap = abs(epoch["s"] - target)
                candidates.append((round(gap, 12), size, epoch["epoch"], index, place, gap, settings, epoch))
    common = {
        "method": item["method"],
        "label": item["label"],
        "control": tuned.get("control", False),
        "edges": [],
        "unbracketed": Later([]),
        "budget": tuned["budget"],
        "candidates": Later(tuned["candidates"]),
        "among": Later(among),
    }
    if not candidates:
        note = "no feasible candidate" if there else "no candidate with the listed settings"
        nothing = {"settings": None, "objective": None, "s": None, "gap": None, "unmatched": False}
        return {**common, **nothing, "note": note}
    *_, gap, settings, epoch = min(candidates, key=lambda candidate: candidate[:5])
    unmatched = gap > MATCHED_WITHIN
    return {
        **common,
        "settings": settings,
        "objective": epoch["objective"],
        "s": epoch["s"],
        "gap": gap,
        "unmatched": unmatched,
        "note": f"unmatched: {gap:.3f} from the target" if unmatched else "",
    }


def _sha256(folder: Folder, name: str) -> str:
    return hashlib.sha256(folder.bytes(name)).hexdigest()


def _frozen(folder: Folder, methods: Sequence[Mapping[str, Any]], record: Any) -> dict[str, Any]:
    """The record of frozen settings that tuning.json and the bundles give. record: the stored one, for its
    time, at which the plan may have been another, and its target."""
    same = plan_audit.plan_stands_since(folder, record["time"])
    plan, base, rows = folder.planned, plan_audit.base_of(folder), _rows(folder)
    if folder.has("bundles.json"):
        drawn = folder.json("bundles.json")
        bundles = {label: digest("units", *sorted(units)) for label, units in drawn["bundles"].items()}
        bundles |= drawn["reserved"]
    else:
        bundles = {rows.bundle: rows.request["units_sha256"]}
    return {
        "format": "vestige-frozen-1",
        "time": time,
        "study": plan.name,
        "stage": plan.stage if same else text,
        "data": base["data"],
        "model": base["model"],
        "training": base["training"],
        "seed": plan.primary,
        "development": plan_audit.identity_of(rows.request),
        "bundles": bundles,
        "family": [],
        "equal_budgets": folder.json("tuning.json")["equal_budgets"],
        "tuning_sha256": _sha256(folder, "tuning.json"),
        "methods": list(methods),
        "match": Later(record.get("match")),
        "margins": Later(plan.margins.model_dump(mode="json") if same else MARGINS),
    }


def _own_freeze(folder: Folder, found: Finding) -> None:
    """frozen.json against tuning.json, whole."""
    frozen = folder.json("frozen.json")
    if not found.need(folder.has("tuning.json"), "frozen.json without tuning.json"):
        return
    found.need(
        frozen["tuning_sha256"] == _sha256(folder, "tuning.json"), "tuning.json changed after freezing"
    )
    tuned = folder.json("tuning.json")
    found.need(tuned["time"] <= frozen["time"], "frozen before tuning ended")
    named = {entry.method: entry.label for entry in folder.planned.methods}
    methods = []
    for item in tuned["methods"]:
        chosen = item["chosen"]
        methods.append(
            {
                "method": item["method"],
                "label": named.get(item["method"]) or item["title"],
                "control": METHODS.get(item["method"]).role == "control",
                "settings": item["settings"],
                "objective": chosen["objective"] if chosen else None,
                "edges": item["edges"],
                "unbracketed": Later(item.get("unbracketed", [])),
                "budget": item["budget"],
                "candidates": Later(item["candidates"]),
                "note": item["note"],
                "s": Later(chosen["s"] if chosen else None),
                "gap": Later(None),
                "unmatched": Later(False),
                "among": Later({}),
            }
        )
    expected = _frozen(folder, methods, frozen)
    expected["family"] = _family(methods, folder, frozen)
    _listed_methods(expected, frozen, found, "frozen.json", "frozen.json, ")
    for name, record in folder.nodes.items():
        if record["kind"] == "tuning":
            found.need(record["finished"] <= frozen["time"], f"{name}: tuned after freezing")


def freeze(folder: Folder) -> Finding:
    """Tuning, then freezing, then evaluation; and the settings are those that were frozen."""
    found = folder.finding("conditions")
    known = plan_audit.frozen_records(folder)
    for name in known:
        copied = name.removeprefix("frozen-").removesuffix(".json")
        same = name == "frozen.json" or copied == _sha256(folder, name)[:16]
        found.need(same, f"{name}: its name is that of other bytes")
    for entry in folder.evaluations:
        confirmed = entry["stage"] != "confirmation" or entry["origin"] == "frozen"
        found.need(confirmed, "a confirmation with settings that are not frozen")
    if any(entry["origin"] == "frozen" for entry in folder.evaluations):
        found.need(bool(known), "frozen settings without frozen.json")
    if not known:
        return found
    margins = folder.planned.margins.model_dump(mode="json")
    for cell in plan_audit.cells(folder).values():
        for entry, item in zip(cell.registered, cell.configured, strict=True):
            if item.record is None:
                continue
            place = f"{item.label} on bundle {cell.bundle}, seed {cell.seed}"
            part = folder.nodes.get(f"unlearned-{entry['identity']['unlearned'][:16]}")
            if part is not None:
                late = item.record["time"] <= part["started"]
                found.need(late, f"{place}: begun {part['started']}, before it was frozen")
            if cell.stage == "confirmation":
                base = plan_audit.base_of(folder)
                same = all(item.record[key] == base[key] for key in ("data", "model", "training"))
                found.need(same, f"{place}: frozen on other data or another model")
                same = item.record.get("margins") in (None, margins)
                found.need(same, f"{place}: other margins than were frozen")
                units = folder.requests[cell.bundle]["units_sha256"]
                found.need(
                    item.record["bundles"].get(cell.bundle) == units,
                    f"{place}: another bundle than the one that was frozen",
                )
    _listed(folder, found)
    if folder.has("frozen.json"):
        _own_freeze(folder, found)
    return found


def _listed(folder: Folder, found: Finding) -> None:
    """Every evaluation that says that its settings were frozen has settings that are in a record, and a
    confirmation corrects over the frozen family."""
    known = plan_audit.frozen_records(folder).values()
    replaced: set[str] = set()
    for entry in folder.planned.methods:
        replaced |= set(entry.settings) | ({"epochs"} if entry.lengths else set())
    frozen_settings = [
        (item["method"], _without(item["settings"], replaced))
        for record in known
        for item in record["methods"]
    ]
    for entry in folder.evaluations:
        identity = entry["identity"]
        if entry["origin"] == "frozen":
            mine = (identity["method"], _without(identity["settings"], replaced))
            place = f"{entry['label']} on bundle {entry['bundle']}, seed {identity['seed']}"
            found.need(mine in frozen_settings, f"{place}: other settings than were frozen")
    for cell in plan_audit.cells(folder).values():
        stored = folder.assessments.get(cell.stem)
        if cell.stage != "confirmation" or stored is None:
            continue
        wanted = {
            label for item in cell.configured if item.record is not None for label in item.record["family"]
        }
        there = wanted & cell.unlearned.keys()
        found.need(
            set(stored["family"]) == there, f"{cell.stem}: Holm's family is not the one that was frozen"
        )
        missing = wanted - {item.label for item in cell.configured}
        found.need(
            not missing, f"{cell.stem}: {', '.join(sorted(missing))} of the frozen family is not evaluated"
        )


def _without(settings: Any, names: set[str]) -> str:
    kept = {name: value for name, value in (settings or {}).items() if name not in names}
    return plan_audit.canonical(kept)
