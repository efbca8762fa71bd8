"""What the audit of a sweep checks across its arms; each arm has an audit of its own."""

from __future__ import annotations

import json
from pathlib import Path

from vestige.study.audit import AuditReport, Check
from vestige.study.audit_folder import Finding
from vestige.study.store import ARMS, SWEEP, now

__all__ = ["audit_sweep"]


def audit_sweep(root: Path) -> AuditReport:
    """Every listed arm is there and no other; no evaluation has two keys or one key twice; a model that
    several arms hold has the same files in each."""
    checks = (
        _check("arms", "the arms that sweep.json lists are there, and no others", _arms(root)),
        _check("keys", "no registry key stands for two evaluations of different arms", _keys(root)),
        _check("shared", "a model or table that several arms hold is the same in each", _shared(root)),
    )
    return AuditReport(time=now(), tolerance=0.0, checks=checks)


def _check(name: str, detail: str, found: Finding) -> Check:
    status = "failed" if found.failed else "noted" if found.noted else "passed"
    return Check(
        name=name,
        status=status,
        detail=f"{detail} ({found.count} {found.what})",
        findings=(*found.failed, *found.noted),
    )


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / ARMS).iterdir() if path.is_dir())


def _arms(root: Path) -> Finding:
    found = Finding(what="arms")
    listed = json.loads((root / SWEEP).read_bytes())["arms"]
    there = {path.name for path in _folders(root)}
    for name in listed:
        if not found.need(
            (root / ARMS / name / "plan.json").is_file() or name not in there, f"{name}: no plan"
        ):
            continue
        if name not in there:
            found.noted.append(f"{name} has not been run")
    found.failed += [f"{name} is not in {SWEEP}" for name in sorted(there - set(listed))]
    return found


def _keys(root: Path) -> Finding:
    found = Finding(what="evaluations")
    seen: dict[str, str] = {}
    for folder in _folders(root):
        path = folder / "evaluations.json"
        for entry in json.loads(path.read_bytes()) if path.is_file() else []:
            other = seen.setdefault(entry["key"], folder.name)
            found.need(
                other == folder.name,
                f"key {entry['key'][:16]} ('{entry['label']}', bundle {entry['bundle']}) "
                f"in {other} and {folder.name}",
            )
    return found


def _shared(root: Path) -> Finding:
    found = Finding(what="parts held by several arms")
    seen: dict[str, tuple[str, dict[str, str]]] = {}
    for folder in _folders(root):
        for path in sorted(folder.glob("nodes/*/record.json")):
            files = json.loads(path.read_bytes())["files"]
            name = path.parent.name
            if name not in seen:
                seen[name] = (folder.name, files)
                continue
            arm, others = seen[name]
            found.need(others == files, f"{name} differs between {arm} and {folder.name}")
    return found
