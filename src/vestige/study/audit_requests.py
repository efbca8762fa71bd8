"""Checks of deletion requests, reserved bundles, exposure, and of all of them against the data set."""

from __future__ import annotations

import csv
import hashlib
import io
from itertools import combinations
from typing import Any

from vestige.seeds import digest
from vestige.study import plan_audit
from vestige.study.audit_compare import Later, compared
from vestige.study.audit_folder import VIEW_COLUMNS, Finding, Folder

__all__ = ["data", "exposure", "requests", "reserved"]

SIZES = {"class": 4, "association": 10}
SHARE = 0.05


def _ordered(units: Any, salt: str) -> list[str]:
    """Units by sha256 of salt, colon, unit."""
    return sorted(units, key=lambda unit: hashlib.sha256(f"{salt}:{unit}".encode()).hexdigest())


def requests(folder: Folder) -> Finding:
    """Hashes, disjointness and hash order of the requests."""
    found = folder.finding("conditions")
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
    elif folder.requests:
        found.need(not folder.planned.deletion.bundled, "no bundles.json, though units are drawn in bundles")
    for label, request in folder.requests.items():
        compared(plan_audit.requested(folder, label), request, found, f"requests/{label}.json")
    return found


def _hash_order(folder: Folder, found: Finding) -> None:
    plan, asked = folder.json("bundles.json"), folder.plan.get("deletion", {})
    found.need(plan["salt"] == asked.get("salt", plan["salt"]), "bundles use another salt than the plan")
    kind = asked.get("granularity", "class")
    for label, request in folder.requests.items():
        drawn = plan["bundles"].get(label, [])
        found.need(sorted(request["units"]) == sorted(drawn), f"request {label} is not its bundle")
        found.need(request["granularity"] == kind, f"request {label} is no {kind} deletion")
    if kind == "example":  # Which rows there are to draw from is in the data set: see `data`.
        return
    if folder.has("drawing-gate.json"):
        gate = folder.json("drawing-gate.json")["gate"]
        found.need(asked.get("drawn_by") is not None, "a drawing gate that the plan does not name")
        found.noted.append("the bundles were drawn by the acquisition gate of another model")
    else:
        gate = folder.json("gates.json")["acquisition"][str(folder.primary_seed)]
        found.need(asked.get("drawn_by") is None, "no drawing gate, though the plan names one")
    ordered = _eligible(gate, kind, plan["salt"])
    held: list[str] | None = None
    if folder.has("reserving-gate.json"):
        found.need(asked.get("reserved_by") is not None, "a reserving gate that the plan does not name")
        held = _eligible(folder.json("reserving-gate.json")["gate"], kind, plan["salt"])
    else:
        found.need(asked.get("reserved_by") is None, "no reserving gate, though the plan names one")
    _bundles(folder, plan, ordered, found, held)


def _eligible(gate: Any, kind: str, salt: str) -> list[str]:
    """Units that passed a gate in hash order; of associations the first of each parent."""
    ordered = _ordered([item["option"] for item in gate["classes"] if item["passed"]], salt)
    if kind != "association":
        return ordered
    first: dict[str, str] = {}
    for unit in ordered:
        first.setdefault(unit.rsplit("#", 1)[0], unit)
    return list(first.values())


def _bundles(
    folder: Folder, plan: Any, ordered: list[str], found: Finding, held: list[str] | None = None
) -> None:
    """Every bundle is the next units of `ordered`; held: the order that reserved bundles are taken from."""
    deletion = folder.planned.deletion
    size = deletion.units_per_bundle or SIZES.get(deletion.granularity) or plan["size"]
    labels = [
        f"{place:02d}" for place in range(max(map(int, ("00", *deletion.bundles, *deletion.reserved))) + 1)
    ]
    secret = {
        label: (ordered if held is None else held)[int(label) * size : (int(label) + 1) * size]
        for label in deletion.reserved
    }
    drawn = labels
    if held is not None:
        kept_away = {unit for units in secret.values() for unit in units}
        ordered = [unit for unit in ordered if unit not in kept_away]
        drawn = [label for label in labels if label not in secret]
    bundles = {label: ordered[place * size : (place + 1) * size] for place, label in enumerate(drawn)}
    expected = {
        "salt": deletion.salt,
        "size": size,
        "eligible": len(ordered),
        "eligible_sha256": digest("units", *sorted(ordered)),
        "bundles": {label: units for label, units in bundles.items() if label not in secret},
        "reserved": {label: digest("units", *sorted(units)) for label, units in secret.items()},
        "left": max(0, len(ordered) - size * len(drawn)),
    }
    compared(expected, plan, found, "bundles.json, in hash order of the eligible units")


def reserved(folder: Folder) -> Finding:
    """No trace of a reserved bundle beyond its hash."""
    found = folder.finding("conditions")
    asked = folder.plan.get("deletion", {}).get("reserved", [])
    held = folder.json("bundles.json")["reserved"] if folder.has("bundles.json") else {}
    labels = sorted({*held, *(f"{item:02d}" if isinstance(item, int) else item for item in asked)})
    for label in labels:
        found.need(not folder.has(f"requests/{label}.json"), f"a request of reserved bundle {label}")
        for kind in ("views", "assessments", "recovery"):
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
    """F, G and R apart; F the deleted rows; tuning rows apart from evaluation rows; oracles short of D_F.

    View tables have the bytes that a run writes.
    """
    found = folder.finding("conditions")
    evaluated: set[str] = set()
    for name, rows in folder.views.items():
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([VIEW_COLUMNS, *sorted(rows)])
        same = out.getvalue().encode() == folder.bytes(f"views/{name}.csv")
        found.need(same, f"views/{name}.csv is not sorted by row, or not as a run writes it")
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
    found = folder.finding("conditions")
    stored = folder.json("data.json")
    for name, record in folder.nodes.items():
        found.need(
            record["identity"]["data"] == stored["sha256"], f"{name}: made from other data than data.json"
        )
    for label, request in folder.requests.items():
        found.need(
            request["data_sha256"] == stored["sha256"], f"request {label}: made on other data than data.json"
        )
    plan = folder.planned
    loaded = folder.data_set()
    if isinstance(loaded, str):
        found.unchecked.append(loaded)
        return found
    report = loaded.report.model_dump(mode="json")
    expected = {
        "name": loaded.name,
        "sha256": loaded.sha256,
        "options": [option.id for option in loaded.options],
        "out_of_scope": loaded.out_of_scope,
        "report": {key: Later(value) for key, value in report.items()},
    }
    compared(expected, stored, found, "data.json")
    train = dict(zip(loaded.rows("train")["row_id"], loaded.rows("train")["gold"], strict=True))
    for label, request in folder.requests.items():
        rows = set(request["unit_of"])
        found.need(rows <= set(train), f"request {label} deletes rows that are no training rows")
        if request["granularity"] == "class":
            wanted = {row for row, gold in train.items() if gold in set(request["units"])}
            found.need(rows == wanted, f"request {label} is not all training rows of its classes")
    if plan.deletion.granularity == "example" and folder.has("bundles.json"):
        bundles, share = folder.json("bundles.json"), plan.deletion.share or SHARE
        drawn = [row for row, gold in train.items() if gold != loaded.out_of_scope]
        size = max(1, int(share * len(drawn) + 0.5))
        found.need(bundles["size"] == size, f"bundles of {bundles['size']} rows, planned {size}")
        _bundles(folder, bundles, _ordered(drawn, bundles["salt"]), found)
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
