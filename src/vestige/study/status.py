"""What a run folder holds: done, at work, missing, with times. Reads records alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from vestige.contracts import Record
from vestige.locks import held
from vestige.methods import METHODS
from vestige.study.candidates import ALL_OPTIONS, suffix
from vestige.study.plan import Plan
from vestige.study.store import Store

__all__ = ["StudyStatus", "Work", "study_status"]

State = Literal["done", "at work", "interrupted", "failed", "missing"]


class Work(Record):
    """One piece of work. seconds: spent so far. share: done so far, of work that is not finished."""

    kind: str
    label: str
    state: State
    seconds: float | None = None
    finished: str | None = None
    share: float | None = None
    note: str = ""


class StudyStatus(Record):
    """The state of a run folder. running: whether a process holds it now."""

    name: str
    stage: str
    running: bool
    frozen: str | None
    tuned: str | None
    seconds: float
    work: tuple[Work, ...]

    def count(self, state: State) -> int:
        """How many pieces are in this state."""
        return sum(item.state == state for item in self.work)


def study_status(out: str | Path) -> StudyStatus:
    """Read a run folder. Raises InputError when it is not one, or a record is damaged."""
    store = Store.reading(out)
    plan = store.read("plan.json", Plan)
    running = held(store.root)
    records = store.nodes()
    failures = {item["label"]: item["reason"] for item in _list(store, "failures.json")}
    done = [
        Work(kind=item.kind, label=item.label, state="done", seconds=item.seconds, finished=item.finished)
        for item in records
    ]
    begun = list(_begun(store, running))
    seen = {item.label for item in [*done, *begun]}
    work = [*done, *begun]
    for kind, label in dict.fromkeys(_expected(plan, store)):
        if label in seen:
            continue
        state: State = "failed" if label in failures else "missing"
        work.append(Work(kind=kind, label=label, state=state, note=failures.get(label, "")))
    for cell in plan.planned:
        for name in plan.offered_sets:
            path = f"assessments/{cell.bundle}-s{cell.seed}{suffix(name)}.json"
            found: State = "done" if store.has(path) else "missing"
            under = "" if name == ALL_OPTIONS else f", {name}"
            label = f"bundle {cell.bundle}, seed {cell.seed}{under}"
            work.append(Work(kind="assessment", label=label, state=found))
    return StudyStatus(
        name=plan.name,
        stage=plan.stage,
        running=running,
        frozen=store.json("frozen.json")["time"] if store.has("frozen.json") else None,
        tuned=store.json("tuning.json")["time"] if store.has("tuning.json") else None,
        seconds=sum(item.seconds for item in records),
        work=tuple(work),
    )


def _list(store: Store, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.json(name) if store.has(name) else []
    return found


def _begun(store: Store, running: bool) -> Iterator[Work]:
    """Nodes with a working folder: at work, or left by a run that ended."""
    for path in sorted((store.root / "nodes").glob(".progress-*.json")):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        yield Work(
            kind=path.name.removeprefix(".progress-").split("-")[0],
            label=note["label"],
            state="at work" if running else "interrupted",
            seconds=note["seconds"],
            share=note["done"] / note["total"] if note["total"] else None,
            note=f"last sign {note['updated']}",
        )


def _expected(plan: Plan, store: Store) -> Iterator[tuple[str, str]]:
    """Kind and label of every model that the plan needs."""
    for seed in dict.fromkeys((plan.primary, *plan.full_seeds) if plan.deletion.gated else plan.full_seeds):
        yield "full", f"full model, seed {seed}"
    for bundle in plan.bundles:
        for seed in plan.oracle_seeds_of(bundle):
            yield "oracle", f"oracle of bundle {bundle}, seed {seed}"
    registered = _list(store, "evaluations.json")
    for item in registered:
        yield "unlearned", f"{item['label']} on bundle {item['bundle']}, seed {item['identity']['seed']}"
    absent = store.json("left_out.json") if store.has("left_out.json") else {"infeasible": {}, "same": {}}
    for cell in plan.planned:
        for entry in plan.methods:
            label = entry.label or METHODS.get(entry.method).title
            # What one entry stands for is known once it is registered.
            several = bool(registered) and (entry.matched is not None or entry.lengths is not None)
            gone = label in absent["infeasible"] or label in absent["same"]
            if entry.at(cell.bundle, cell.seed) and not several and not gone:
                yield "unlearned", f"{label} on bundle {cell.bundle}, seed {cell.seed}"
