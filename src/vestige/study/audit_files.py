"""Checks of the files themselves, and of the runs that the folder says made them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from vestige.seeds import digest
from vestige.study.audit_compare import Later, Said, compared, text, time
from vestige.study.audit_folder import Finding, Folder, parsed
from vestige.study.store import RECORDS

__all__ = ["files", "history"]

UNLISTED = ("manifest.json",)
IMPORTED = "imported"
"""Folder of published tables, which no run writes."""
_NODE = r"(full|oracle|unlearned|predictions|tuning|recovery|fresh-head|embeddings|random)-[0-9a-f]+"
_PART = re.compile(rf"nodes/\.part-{_NODE}/.+")
_MARK = re.compile(rf"nodes/\.(lock-{_NODE}|progress-{_NODE}\.json)")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def files(folder: Folder) -> Finding:
    """Every file against its recorded hash."""
    found = Finding(what="files")
    raw = (folder.root / "manifest.json").read_bytes()
    value = parsed(raw)
    body = {"files": value["files"], "format": value["format"]}
    whole = {**body, "seal": digest(_canonical(body))}
    again = json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    found.need(raw == again.encode(), "manifest.json was changed")
    listed: dict[str, str] = dict(value["files"])
    for name, sha in sorted(listed.items()):
        path = folder.root / name
        if found.need(path.is_file(), f"{name} is missing"):
            found.need(_sha256(path) == sha, f"{name} was changed")
        if name.startswith("nodes/") and path.is_file():
            inside = _inside(path, found)
            listed |= {
                f"{path.parent.relative_to(folder.root).as_posix()}/{key}": sha for key, sha in inside.items()
            }
    unfinished = set()
    for name, path in _everything(folder.root, found):
        if _PART.fullmatch(name):
            unfinished.add(name.split("/")[1])
        elif _MARK.fullmatch(name):
            found.need(".lock-" not in name or path.stat().st_size == 0, f"{name} is no lock")
        elif path.name.startswith(".vestige-"):
            found.noted.append(f"{name}: a file that a killed run was writing; the next run removes it")
        elif name == ".lock":
            found.need(path.stat().st_size == 0, ".lock was changed")
        elif name.split("/")[0] == IMPORTED:
            found.noted.append(f"{name}: published numbers that were put here; nothing of them is checked")
        elif name not in listed and name not in UNLISTED:
            found.failed.append(f"{name} is not in the manifest")
    found.noted += [f"unfinished work: nodes/{name}" for name in sorted(unfinished)]
    return found


def _inside(record: Path, found: Finding) -> dict[str, str]:
    """Files of a finished part with the hashes that its record has, checked."""
    try:
        told: dict[str, str] = parsed(record.read_bytes())["files"]
        names = dict(told.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found.failed.append(f"{record.parent.name}/record.json is no record of files")
        return {}
    for inner, sha in names.items():
        path = record.parent / inner
        if found.need(path.is_file(), f"{record.parent.name}/{inner} is missing"):
            found.need(_sha256(path) == sha, f"{record.parent.name}/{inner} was changed")
    return names


def _everything(root: Path, found: Finding) -> Iterator[tuple[str, Path]]:
    """(name, path) of every file, those behind links too; links are noted."""
    seen: set[str] = set()
    for place, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted([*names, *folders]):
            path = Path(place) / name
            inside = path.relative_to(root).as_posix()
            if path.is_symlink():
                found.noted.append(f"{inside} is a link: what it leads to can change outside this folder")
            if path.is_file():
                yield inside, path
            elif name in names:
                found.failed.append(f"{inside} is no file")


def history(folder: Folder) -> Finding:
    """What a reader should know: changed plans, reruns, mixed environments."""
    found = folder.finding("runs")
    value = folder.json("history.json")
    expected = {
        "time": time,
        "verb": Said("a verb", lambda verb: verb in ("run", "tune", "attack recover", "attack fresh-head")),
        "plan": text,
        "environment": Said("versions", lambda item: isinstance(item, dict) and bool(item)),
        "records": Later(RECORDS),
        "program": Later(text),
        "start": Later(Said("sentences", _are_texts)),
    }
    for number, entry in enumerate(value):
        ended = {"ended": time} if "ended" in entry else {}
        compared({**expected, **ended}, entry, found, f"history.json, run {number + 1}")
        if ended:
            found.need(
                entry["time"] <= entry["ended"], f"history.json, run {number + 1}: it ended before it began"
            )
    if folder.unfinished:
        found.noted.append("the last run did not come to its end: what is missing may still be made")
    plans = [item["plan"] for item in value]
    found.need(plans[-1] == digest(_canonical(folder.plan)), "plan.json is not the plan of the last run")
    times = [item["time"] for item in value]
    found.need(times == sorted(times), "history.json: runs are not in the order of their times")
    starts = {_canonical(item.get("start")) for item in value if "start" in item}
    found.need(len(starts) <= 1, "history.json: runs that started from other weights")
    _recorded(folder, value, found)
    changes = sum(one != other for one, other in pairwise(plans))
    if changes:
        found.noted.append(
            f"the plan changed {changes} time(s) in this folder: selections after the first are post hoc"
        )
    if folder.reworded:
        found.noted.append(
            "another version of vestige made this folder than audits it: its words are compared with those "
            "of today, and differences are noted, not failed"
        )
    environments = {_canonical(record["environment"]) for record in folder.nodes.values()}
    if len(environments) > 1:
        found.noted.append(
            f"nodes were made in {len(environments)} different environments (versions or threads)"
        )
    return found


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _recorded(folder: Folder, value: Any, found: Finding) -> None:
    """What was made here was made by a run that the history names."""
    plan = folder.planned
    own = [
        record
        for record in folder.nodes.values()
        if (record.get("made_for") or {}).get("study") == plan.name
        and (record.get("made_for") or {}).get("arm") == plan.arm
    ]
    before = sum(record["started"] < value[0]["time"] for record in own)
    if before:
        found.noted.append(
            f"{before} part(s) of this study were begun before the first run that history.json names: taken "
            "from elsewhere, or a run is missing there"
        )
    verbs = {item["verb"] for item in value}
    tuned = folder.has("tuning.json")
    found.need(not tuned or "tune" in verbs, "tuning.json, and no run that tuned in history.json")
    found.need(not folder.evaluations or "run" in verbs, "evaluations.json, and no run in history.json")
    if tuned:
        first = min(item["time"] for item in value if item["verb"] == "tune") if "tune" in verbs else ""
        found.need(first <= folder.json("tuning.json")["time"], "tuning.json is older than any tuning")
