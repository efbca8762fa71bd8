"""Checks of candidate sets: what can be said of them without the sentence vectors of options."""

from __future__ import annotations

from typing import Any

from vestige.seeds import generator
from vestige.study.audit_folder import Finding, Folder

__all__ = ["candidates"]


def candidates(folder: Folder) -> Finding:
    """Members are options in order, with every forgotten one; own sets the plan's; S2 drawn from its seed."""
    found = folder.finding("conditions")
    options = folder.json("data.json")["options"]
    for path in sorted(folder.root.glob("candidates/*.json")):
        kept = folder.json(f"candidates/{path.name}")
        lost = _lost(folder.requests[path.stem])
        found.need(kept["forgotten"] == lost, f"{path.name}: other forgotten options than the request's")
        found.need(kept["seed"] == 0, f"{path.name}: another seed of S2")
        sets = {name: list(members) for name, members in kept["sets"].items()}
        for name, members in sets.items():
            chosen = set(members)
            same = members == [item for item in options if item in chosen]
            found.need(same, f"{path.name}: {name} is not options in their order, each once")
            found.need(set(lost) <= chosen, f"{path.name}: {name} lacks a forgotten option")
        found.need(sets.get("S0", options) == options, f"{path.name}: S0 is not all options")
        for name, own in folder.plan.get("own_sets", {}).items():
            found.need(set(sets.get(name, own)) == set(own), f"{path.name}: {name} is not the plan's")
        if "S1" in sets and "S2" in sets:
            near = set(sets["S1"]) - set(lost)
            pool = sorted(set(options) - set(lost) - near)
            drawn = generator("candidate set S2", 0, *lost).choice(pool, len(near), replace=False)
            same = set(sets["S2"]) == {*lost, *(str(item) for item in drawn)}
            found.need(same, f"{path.name}: S2 is not what its seed draws")
    return found


def _lost(request: Any) -> list[str]:
    """Forgotten options: the classes, or the parents of associations."""
    if request["granularity"] == "class":
        return sorted(request["units"])
    return sorted({unit.rsplit("#", 1)[0] for unit in request["units"]})
