"""What no audit of a run folder can check, and where in its files that stands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from vestige.study.audit_folder import Folder

__all__ = ["LIMITS", "Limit", "limits_of"]


@dataclass(frozen=True)
class Limit:
    """Something that follows from nothing else in a folder.

    places: patterns `file` or `file:place` of what an edit can change unnoticed. applies: to which folders.
    """

    told: str
    places: tuple[str, ...] = ()
    applies: Callable[[Folder], bool] = lambda folder: True


def _other_backend(folder: Folder) -> bool:
    return any(
        (node["identity"].get("backend") or {}).get("name", "torch") != "torch"
        for node in folder.nodes.values()
    )


LIMITS = (
    Limit(
        "that the weights give the stored probabilities: make a cell anew with vestige study verify",
        ("nodes/*/model/*", "nodes/*/record.json:result.weights_sha256"),
    ),
    Limit(
        "that clocks were right: order is taken from recorded times, of which only the order is checked, and "
        "seconds within one",
        (
            "history.json:#.time",
            "history.json:#.ended",
            "nodes/*/record.json:started",
            "nodes/*/record.json:finished",
            "nodes/*/record.json:seconds",
            "nodes/*/record.json:result.seconds",
            "tuning.json:time",
            "frozen*.json:time",
        ),
    ),
    Limit(
        "on what machine a part was made, and for which stage",
        ("nodes/*/record.json:environment*", "nodes/*/record.json:made_for*", "history.json:#.environment*"),
    ),
    Limit(
        "what a part of another backend than torch reports of its training: it has no step log",
        ("nodes/*/record.json:result*",),
        _other_backend,
    ),
    Limit("the words that say why a number is undefined: that it is undefined is checked", ("*:*undefined",)),
    Limit(
        "the hashes of what records were made from, which tell a run whether to make them again",
        ("assessments/*:provenance.inputs", "summaries/*:inputs", "recovery/*:inputs"),
    ),
    Limit(
        "the development distances of tuning: probabilities of every epoch are not kept",
        applies=lambda folder: folder.has("tuning.json"),
    ),
    Limit(
        "that neighbours in S1 are the nearest, and to which encoder: vectors of options are not kept",
        ("candidates/*:encoder",),
        lambda folder: any((folder.root / "candidates").glob("*.json")),
    ),
    Limit("what was looked at outside this folder, and runs whose every trace was removed"),
)


def limits_of(folder: Folder) -> list[str]:
    """Those that apply to a folder, then what a consistent rewriting can do, and the hash that shows it."""
    found = []
    for limit in LIMITS:
        try:
            if limit.applies(folder):
                found.append(limit.told)
        except Exception:
            found.append(limit.told)  # of a damaged folder, whose checks say so
    told = (
        "everything in a folder can be rewritten together, models and probabilities too: no hash has a key."
    )
    if folder.has("manifest.json"):
        seal = hashlib.sha256((folder.root / "manifest.json").read_bytes()).hexdigest()
        told += f" Deposit the hash of manifest.json elsewhere to show that nothing was: sha256 {seal}"
    return [*found, told]
