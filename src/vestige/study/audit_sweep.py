"""What the audit of a sweep checks across its arms; each arm has an audit of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vestige.study.audit import AuditReport, CheckEntry, run_check
from vestige.study.audit_folder import Finding, Folder
from vestige.study.store import ARMS, SWEEP, now

__all__ = ["audit_sweep"]

FORMAT = "vestige-sweep-1"


def audit_sweep(root: Path, more: Sequence[CheckEntry] = ()) -> AuditReport:
    """Every listed arm is there and no other; no evaluation has two keys or one key twice; a model that
    several arms hold has the same files in each. more: further checks."""
    folder = Folder(root)
    checks = tuple(run_check(folder, name, detail, check) for name, detail, check in (*CHECKS, *more))
    return AuditReport(time=now(), tolerance=0.0, checks=checks)


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / ARMS).iterdir() if path.is_dir())


def _arms(folder: Folder) -> Finding:
    found = Finding(what="arms")
    root, sweep = folder.root, folder.json(SWEEP)
    listed = sweep["arms"]
    there = {path.name for path in _folders(root)}
    for name in listed:
        if not found.need(
            (root / ARMS / name / "plan.json").is_file() or name not in there, f"{name}: no plan"
        ):
            continue
        if name not in there:
            found.noted.append(f"{name} has not been run")
    found.failed += [f"{name} is not in {SWEEP}" for name in sorted(there - set(listed))]
    found.need(len(set(listed)) == len(listed), f"{SWEEP} lists an arm twice")
    found.need(sweep["format"] == FORMAT, f"{SWEEP}: another format than {FORMAT}")
    for name, other in sweep["merged"].items():
        same = name not in listed and other in listed
        found.need(same, f"{SWEEP}: '{name}' counts as the same as '{other}'")
    texts = set()
    for path in _folders(root):
        if not (path / "plan.json").is_file():
            continue
        plan = json.loads((path / "plan.json").read_bytes())
        found.need(plan["arm"] == path.name, f"{path.name}: its plan is of arm '{plan['arm']}'")
        same = plan.get("scale", "") == sweep["scale"]
        found.need(same, f"{path.name}: its scale is not that of {SWEEP}")
        if path.name == listed[0]:
            found.need(plan["name"] == sweep["name"], f"{SWEEP}: another name than its first arm's study")
        texts.add((path / "study.yaml").read_bytes() if (path / "study.yaml").is_file() else None)
    kept = (root / "study.yaml").read_bytes()
    found.need(not texts or kept in texts, "study.yaml is not the file that any arm was run from")
    return found


def _drawn(folder: Folder) -> Finding:
    """The gate that an arm's bundles were drawn by is the one of the arm that its plan names."""
    found = Finding(what="arms")
    for path in _folders(folder.root):
        if not (path / "drawing-gate.json").is_file():
            continue
        kept = json.loads((path / "drawing-gate.json").read_bytes())
        named = Path(json.loads((path / "plan.json").read_bytes())["deletion"]["drawn_by"]).name
        source = folder.root / ARMS / named / "gates.json"
        if not source.is_file():
            found.noted.append(f"{path.name}: its bundles were drawn by a gate outside this folder")
            continue
        gates = json.loads(source.read_bytes())
        same = gates["acquisition"][str(kept["seed"])] == kept["gate"]
        same = same and gates["primary_seed"] == kept["seed"]
        found.need(same, f"{path.name}: drawn by another gate than that of arm {named}")
    return found


def _keys(root: Folder) -> Finding:
    """An evaluation that several arms list is one: the same model and the same probabilities in each."""
    found = Finding(what="evaluations")
    seen: dict[str, tuple[str, str, str]] = {}
    for folder in _folders(root.root):
        path = folder / "evaluations.json"
        for entry in json.loads(path.read_bytes()) if path.is_file() else []:
            mine = (json.dumps(entry["identity"], sort_keys=True), entry["predictions"])
            arm, *other = seen.setdefault(entry["key"], (folder.name, *mine))
            found.need(
                tuple(other) == mine,
                f"key {entry['key'][:16]} ('{entry['label']}', bundle {entry['bundle']}) stands for other "
                f"things in {arm} and {folder.name}",
            )
    return found


def _shared(root: Folder) -> Finding:
    found = Finding(what="parts held by several arms")
    seen: dict[str, tuple[str, dict[str, str]]] = {}
    for folder in _folders(root.root):
        for path in sorted(folder.glob("nodes/*/record.json")):
            files = json.loads(path.read_bytes())["files"]
            name = path.parent.name
            if name not in seen:
                seen[name] = (folder.name, files)
                continue
            arm, others = seen[name]
            found.need(others == files, f"{name} differs between {arm} and {folder.name}")
    return found


CHECKS: tuple[CheckEntry, ...] = (
    ("arms", "the arms that sweep.json lists are there as it says, and no others", _arms),
    ("drawn", "bundles drawn by another arm were drawn by its gate", _drawn),
    ("keys", "no registry key stands for two evaluations of different arms", _keys),
    ("shared", "a model or table that several arms hold is the same in each", _shared),
)
