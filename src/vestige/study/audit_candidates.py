"""Checks of candidate sets: what can be said of them without the sentence vectors of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vestige.seeds import digest, generator
from vestige.study.audit_compare import Said, compared, text
from vestige.study.audit_folder import Finding, Folder

__all__ = ["candidates"]


def candidates(folder: Folder) -> Finding:
    """Every file of candidate sets, whole: S0 all options, own sets the plan's, S2 drawn from its seed; S1
    options in their order, with every forgotten one."""
    found = folder.finding("conditions")
    wanted = folder.planned.offered_sets
    there = {path.stem for path in folder.root.glob("candidates/*.json")}
    asked = set(folder.requests) & set(folder.planned.bundles) if set(wanted) != {"S0"} else set()
    for bundle in sorted(asked - there):
        found.there(False, f"no candidates/{bundle}.json, though sets were asked for")
    data = folder.data_set()
    schema: Any = text if isinstance(data, str) else digest(*(option.text for option in data.options))
    for bundle in sorted(there):
        lost = _lost(folder.requests[bundle])
        kept = folder.json(f"candidates/{bundle}.json")
        expected = {
            "encoder": Said("a name", lambda told: isinstance(told, str) and 0 < len(told) < 200),
            "seed": 0,
            "schema": schema,
            "forgotten": lost,
            "sets": _sets(folder, lost, wanted, kept["sets"]),
        }
        compared(expected, kept, found, f"candidates/{bundle}.json")
    return found


def _sets(folder: Folder, lost: Sequence[str], wanted: Sequence[str], kept: Any) -> dict[str, Any]:
    options: list[str] = folder.json("data.json")["options"]
    found: dict[str, Any] = {}
    for name in wanted:
        own = folder.planned.own_sets.get(name)
        if name == "S0":
            found[name] = options
        elif own is not None:
            found[name] = [item for item in options if item in set(own)]
        elif name == "S2" and "S1" in kept:
            near = set(kept["S1"]) - set(lost)
            pool = sorted(set(options) - set(lost) - near)
            drawn = generator("candidate set S2", 0, *lost).choice(pool, len(near), replace=False)
            chosen = {*lost, *(str(item) for item in drawn)}
            found[name] = [item for item in options if item in chosen]
        else:
            found[name] = Said(
                "the forgotten options and two others of each, in the order of the options",
                lambda told: _is_set(told, options, lost),
            )
    return found


def _is_set(told: Any, options: Sequence[str], lost: Sequence[str]) -> bool:
    in_order = isinstance(told, list) and told == [item for item in options if item in told]
    return in_order and set(lost) <= set(told) and len(told) == min(3 * len(lost), len(options))


def _lost(request: Any) -> list[str]:
    """Forgotten options: the classes, or the parents of associations."""
    if request["granularity"] == "class":
        return sorted(request["units"])
    return sorted({unit.rsplit("#", 1)[0] for unit in request["units"]})
