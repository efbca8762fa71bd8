"""What an assessment has to say of where it came from, in sentences and in hashes."""

from __future__ import annotations

from typing import Any

from vestige.study import plan_audit, words_audit
from vestige.study.audit_compare import TOLERANCE, Near, Said, Words
from vestige.study.audit_folder import Folder
from vestige.study.audit_numbers import Table
from vestige.study.audit_subjects import Recomputed, Subject

__all__ = ["caveats_of", "probed_of", "provenance_of"]


def caveats_of(folder: Folder, subject: Subject, stored: Any) -> Any:
    """The caveats that the record's own numbers and circumstances ask for."""
    if subject.before or subject.cell is None:
        return Said(
            "sentences", lambda told: isinstance(told, list) and all(isinstance(one, str) for one in told)
        )
    tables: dict[str, Table] = {label: folder.table(path) for label, path in subject.fulls}
    tables |= {label: folder.table(path) for label, path in subject.unlearned.items()}
    tables |= {label: folder.table(path) for label, path in subject.oracles}
    try:
        told = words_audit.caveats_of(stored, tables, words_audit.notices(_circumstances(folder, subject)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Said("sentences that a record of this form asks for", lambda _: False)
    return Words(list(told))


def _circumstances(folder: Folder, subject: Subject) -> words_audit.Circumstances:
    plan, asked = folder.planned, plan_audit.asked(folder)
    request = folder.requests[subject.bundle]
    gates = folder.optional("gates.json", {"exceptions": {}})["exceptions"]
    base = plan_audit.base_of(folder)
    full = plan_audit.model_node(folder, "full", seed=subject.seed)
    reserved = folder.views.get(f"{subject.bundle}-evaluation", [])
    held_out = 0
    if request["granularity"] == "custom":
        held_out = len(request["unit_of"]) - sum(row[1] == "F" for row in reserved)
    return words_audit.Circumstances(
        seed=subject.seed,
        left_out={label: item["why"] for label, item in asked.left_out.items()},
        same=asked.same,
        start=folder.runs[-1].get("start", []) if folder.runs else [],
        failed=tuple(
            (item["unit"], item["reason"])
            for item in gates.get(subject.bundle, [])
            if item["seed"] == subject.seed
        ),
        drawn_by_another=plan.deletion.drawn_by is not None,
        primary=plan.primary,
        held_out=held_out,
        renamed=_renamed(folder, subject.bundle),
        notes=request["notes"],
        scale=plan.scale,
        train_rows=full["result"]["train_rows"],
        backbone=str(base["model"].get("backbone", "a small model")),
    )


def _renamed(folder: Folder, bundle: str) -> tuple[str, ...]:
    """What has to be said of a bundle label that stood for other units where settings were frozen."""
    request = folder.requests[bundle]
    for entry in folder.planned.methods:
        record = plan_audit.record_for(folder, entry) if entry.takes_frozen else None
        if record is None or record["data"] != request["data_sha256"]:
            continue
        if record["development"].get("granularity") != request["granularity"]:
            continue
        there = record["bundles"].get(bundle)
        if there not in (None, request["units_sha256"]):
            return (
                f"Bundle {bundle} holds other units here ({request['units_sha256'][:8]}) than in the "
                f"study '{record['study']}' that settings were frozen in ({str(there)[:8]}): eligibility "
                "depends on the model. Compare results by the hash, not by the label.",
            )
    return ()


def provenance_of(folder: Folder, subject: Subject, made: Recomputed, stored: Any) -> Any:
    """Where everything came from: hashes, counts, settings, seconds."""
    cell = subject.cell
    if cell is None:
        return Said("a record of where it came from", lambda told: isinstance(told, dict))
    plan, data, base = folder.planned, folder.json("data.json"), plan_audit.base_of(folder)
    request, report = folder.requests[cell.bundle], data["report"]
    sources = [*cell.fulls, *cell.oracles, *cell.unlearned.values()]
    full = plan_audit.model_node(folder, "full", seed=cell.seed)
    frozen = {
        item.label: _origin(item, subject, made)
        for item in cell.configured
        if item.record is not None and item.label in cell.unlearned
    }
    probes = {"probes": probed_of(folder, subject)} if plan.probes else {}
    return {
        "data": {
            "name": data["name"],
            "sha256": data["sha256"],
            "splits": {item["split"]: item["rows"] for item in report["splits"]},
            "left_out": {item["reason"]: item["rows"] for item in report["dropped"]},
            "conflicting_label_texts": report["conflicting"]["texts"],
        },
        "request": {
            "bundle": cell.bundle,
            "purpose": request["purpose"],
            **plan_audit.identity_of(request),
            "units_sha256": request["units_sha256"],
            "rows_sha256": request["rows_sha256"],
            "deleted_rows": len(request["unit_of"]),
            "deleted_units": len(request["units"]),
            "salt": request["salt"],
        },
        "model": base["model"],
        "training": base["training"],
        "backend": base["backend"],
        "arm": plan.arm,
        "scale": plan.scale,
        "rendering": plan.rendering,
        "map_seed": plan.map_seed,
        "candidates": cell.candidates,
        "seed": cell.seed,
        "primary_seed": plan.primary,
        "training_rows": full["result"]["train_rows"],
        "seconds": round(sum(item.model["seconds"] for item in sources), 1),
        "models_trained": len(sources),
        "evaluations": {
            entry["label"]: entry["key"] for entry in cell.registered if entry["label"] in cell.unlearned
        },
        "frozen": frozen,
        "inputs": Said("a hash", lambda told: isinstance(told, str) and len(told) == 64),
        **probes,
    }


def probed_of(folder: Folder, subject: Subject) -> dict[str, Any]:
    """By probe the tables of all models of an assessment asked in that way; of an earlier plan those that its
    record names."""
    if subject.cell is not None:
        return plan_audit.probed(folder, subject.cell)
    told: dict[str, Any] = folder.assessments[subject.stem]["provenance"].get("probes", {})
    return told


def _origin(item: plan_audit.Configured, subject: Subject, made: Recomputed) -> dict[str, Any]:
    """Where frozen settings came from, with the held-out suppression beside the development one."""
    record, listed = item.record, item.item
    found: dict[str, Any] = {
        key: record[key]
        for key in ("study", "stage", "time", "data", "model", "seed", "development", "tuning_sha256")
    }
    found |= {"edges": listed["edges"], "family": record["family"]}
    if isinstance(listed.get("s"), float):
        found["development_s"] = listed["s"]
        measured = made.row.get((item.label, "suppression", "FG"))
        if measured is not None:
            found["held_out_s"] = Near(measured.value, TOLERANCE * measured.scale)
    if record.get("match") is not None:
        found |= {"target_s": record["match"], "gap": listed["gap"], "unmatched": listed["unmatched"]}
    return found
