"""What a study would do, how much of it is shared, and about how long it takes, without doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vestige.data.intents import IntentData
from vestige.deletion.requests import DeletionRequest, request_from_json
from vestige.errors import InputError
from vestige.seeds import digest
from vestige.study.candidates import suffix
from vestige.study.cells import (
    Configured,
    Node,
    Setting,
    configurations,
    full_node,
    oracle_node,
    prepare,
    unlearned_node,
    unlearning_cost,
)
from vestige.study.deletions import expected_rows, refuse_impossible
from vestige.study.frozen import Frozen, recorded
from vestige.study.plan import Plan, PlannedCells
from vestige.study.protocol import load_backend
from vestige.study.runner import Execution
from vestige.study.store import Store, canonical

__all__ = ["Outline", "Pace", "Summary", "outline", "outline_all", "summary"]

CHARACTERS_PER_TOKEN = 4.3
GPU_FLOPS = 1e14
"""Sustained operations a second that an estimate for a hub model assumes: one data-centre GPU."""
CPU_FLOPS = 7.5e10
"""The same for the encoders that come in wheels: one CPU core."""
WHEEL_PARAMETERS = {"minilm": 22.7e6, "smollm2": 134.5e6}
UNTRAINED = ("assessment", "refused")


@dataclass(frozen=True)
class Pace:
    """Seconds a training row takes. basis: where that comes from; None where nothing is known."""

    seconds: float | None
    basis: str


@dataclass(frozen=True)
class Outline:
    """One planned piece of work. state: "done", "to do", or "after the gate", which decides what is
    deleted of whole classes and associations. kind "refused": no work, but why a run would refuse now.

    cost: work in training rows. share: pieces of equal share are made once. hours: device hours, about; None
    where nothing is known of the model's size.
    """

    kind: str
    label: str
    state: str
    cost: float
    share: str = ""
    arm: str = ""
    hours: float | None = None


@dataclass(frozen=True)
class Summary:
    """What several outlines come to. trainings: planned; distinct: after sharing; hours: still to do.
    refusals: why a run would refuse now."""

    cells: int
    trainings: int
    distinct: int
    done: int
    rows: float
    hours: float | None
    basis: tuple[str, ...]
    refusals: tuple[str, ...] = ()


def outline(plan: Plan, out: str | Path, *, execution: Execution | None = None) -> list[Outline]:
    """What a run would do in `out`, without doing it. Raises InputError."""
    return _outline(plan, Path(out), execution or Execution(), None)[0]


def outline_all(
    plans: Mapping[str, Plan], folders: Mapping[str, Path], *, execution: Execution | None = None
) -> tuple[list[Outline], Summary]:
    """What a run of every arm would do, and what it comes to."""
    found: list[Outline] = []
    paces: list[Pace] = []
    loaded: dict[str, IntentData] = {}
    for arm, plan in plans.items():
        spec = plan.dataset.to_json()
        items, pace, loaded[spec] = _outline(plan, folders[arm], execution or Execution(), loaded.get(spec))
        found += items
        paces.append(pace)
    return found, summary(found, paces)


def summary(found: Sequence[Outline], paces: Sequence[Pace] = ()) -> Summary:
    """Totals; a piece that several arms share counts once, done where any of them has it."""
    once: dict[str, Outline] = {}
    for item in found:
        if item.kind not in UNTRAINED and (item.share not in once or item.state == "done"):
            once[item.share] = item
    left = [item for item in once.values() if item.state != "done"]
    known = [item.hours for item in left if item.hours is not None]
    return Summary(
        cells=sum(item.kind == "assessment" for item in found),
        trainings=sum(item.kind not in UNTRAINED for item in found),
        distinct=len(once),
        done=len(once) - len(left),
        rows=sum(item.cost for item in left),
        hours=sum(known) if len(known) == len(left) else None,
        basis=tuple(dict.fromkeys(pace.basis for pace in paces)),
        refusals=tuple(dict.fromkeys(item.label for item in found if item.kind == "refused")),
    )


def _outline(
    plan: Plan, out: Path, execution: Execution, data: IntentData | None
) -> tuple[list[Outline], Pace, IntentData]:
    setting = prepare(plan, load_backend(execution.backend), data)
    refuse_impossible(setting)
    store = Store(out)
    pace = _pace(setting, store)
    base = canonical([setting.data.sha256, plan.rendering, plan.map_seed, *_dumped(setting)])
    drawn = plan.deletion.model_dump(mode="json", exclude={"bundles", "reserved", "reserved_by"})
    rows = expected_rows(setting)
    one = len(setting.train_ids) * float(getattr(setting.task, "epochs", 1))
    configured, unfrozen = _configured(setting, store)
    found: list[Outline] = [Outline("refused", sentence, "to do", 0.0, arm=plan.arm) for sentence in unfrozen]

    def add(kind: str, label: str, work: float, share: tuple[Any, ...], node: Node | None) -> None:
        done = node is not None and store.node(node.kind, node.key).record() is not None
        unknown = node is None and kind != "full"
        found.append(
            Outline(
                kind=kind,
                label=label,
                state="done" if done else "after the gate" if unknown and plan.deletion.gated else "to do",
                cost=work,
                share=digest(kind, base, *(canonical(part) for part in share)),
                arm=plan.arm,
                hours=None if pace.seconds is None else work * pace.seconds / 3600,
            )
        )

    known = bool(store.nodes()) and _reachable(setting)
    gating = (plan.primary,) if plan.deletion.gated else ()
    for seed in dict.fromkeys((*gating, *plan.full_seeds)):
        add("full", f"full model, seed {seed}", one, (seed,), full_node(setting, seed) if known else None)
    for bundle in plan.bundles:
        request = _request(store, bundle) if known else None
        mine = (drawn, bundle)
        for seed in plan.oracle_seeds_of(bundle):
            node = oracle_node(setting, request, seed) if request else None
            add("oracle", f"oracle of bundle {bundle}, seed {seed}", one, (*mine, seed), node)
        for seed in plan.seeds_of(bundle):
            for used in configured.at(bundle, seed):
                dump = used.settings.model_dump(mode="json")
                work = unlearning_cost(used.settings, rows)
                made = unlearned_node(setting, request, seed, used) if request else None
                what = (*mine, seed, used.objective.name, dump)
                add("unlearned", f"{used.label} on bundle {bundle}, seed {seed}", work, what, made)
            for name in plan.offered_sets:
                label = f"bundle {bundle}, seed {seed}, {name}"
                there = store.has(f"assessments/{bundle}-s{seed}{suffix(name)}.json")
                found.append(Outline("assessment", label, "done" if there else "to do", 0.0, arm=plan.arm))
    return found, pace, setting.data


def _dumped(setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
    return setting.model.model_dump(mode="json"), setting.task.model_dump(mode="json")


def _reachable(setting: Setting) -> bool:
    """Whether the backbone's bytes can be named here: a hub model cannot offline."""
    try:
        return bool(setting.base)
    except (InputError, OSError):
        return False


def _request(store: Store, bundle: str) -> DeletionRequest | None:
    name = f"requests/{bundle}.json"
    return request_from_json(store.path(name).read_text(encoding="utf-8"), name) if store.has(name) else None


def _configured(setting: Setting, store: Store) -> tuple[Configured, list[str]]:
    """Every method as a run would find it, and why a run would refuse those without frozen settings yet.

    Defaults stand in for settings that are not frozen. Raises InputError for what a run would refuse too.
    """
    entries = []
    missing = []
    frozen: dict[int, Frozen | None] = {}
    for index, entry in enumerate(setting.plan.methods):
        record = recorded(store, entry) if entry.takes_frozen else None
        if entry.takes_frozen and record is None:
            by = f" by the study '{entry.frozen_by}'" if entry.frozen_by else ""
            missing.append(f"{entry.method}: its settings are not frozen{by}; its defaults are counted")
            entry = entry.model_copy(
                update={"frozen": False, "frozen_by": None, "matched": None, "settings": {}}
            )
        entries.append(entry)
        frozen[index] = record
    if not missing:
        return configurations(setting, frozen), []
    stand_in = setting.plan.model_copy(update={"methods": tuple(entries), "stage": "pilot", "cells": None})
    whole = replace(setting, plan=stand_in.model_copy(update={"cells": _as_pilot(setting.plan)}))
    return configurations(whole, frozen), missing


def _as_pilot(plan: Plan) -> tuple[PlannedCells, ...] | None:
    """The cells without stages: a confirmation's rules hold for frozen settings alone."""
    return tuple(part.model_copy(update={"stage": None}) for part in plan.cells) if plan.cells else None


def _pace(setting: Setting, store: Store) -> Pace:
    """From finished full models and oracles of the same settings, else from sizes."""
    model, task = _dumped(setting)
    epochs = float(getattr(setting.task, "epochs", 1))
    records = [
        record
        for record in store.nodes()
        if record.kind in ("full", "oracle")
        and record.identity.get("model") == model
        and record.identity.get("training") == task
        and record.rows
    ]
    if records:
        seconds = sum(item.seconds for item in records) / sum(item.rows * epochs for item in records)
        return Pace(
            seconds, f"{seconds * 1000:.1f} ms a training row, measured on {len(records)} finished model(s)"
        )
    backbone = model.get("backbone")
    size = _parameters(str(backbone)) if backbone else None
    if size is None:
        return Pace(None, f"no hours: the size of {backbone or 'the model'} is not known")
    parameters, flops = size
    texts = setting.data.rows("train")["text"]
    per_row = float(texts.str.len().mean()) / CHARACTERS_PER_TOKEN + 2
    options = sum(len(text) / CHARACTERS_PER_TOKEN + 2 for text in setting.schema.texts())
    tokens = per_row + options / float(getattr(setting.task, "batch_size", 32))
    seconds = 6 * parameters * tokens / flops
    return Pace(
        seconds,
        f"{backbone}: {parameters / 1e6:,.0f} M parameters, about {tokens:.0f} tokens a row with options, 6 "
        f"operations a parameter and token, {flops:.3g} operations a second (assumed, not measured)",
    )


def _parameters(backbone: str) -> tuple[float, float] | None:
    """(parameters, assumed operations a second) of a backbone that is known by name."""
    from vestige.models.panel import panel

    if backbone in WHEEL_PARAMETERS:
        return WHEEL_PARAMETERS[backbone], CPU_FLOPS
    sizes = {item.hub_id: item.parameters * 1e9 for item in panel()}
    return (sizes[backbone], GPU_FLOPS) if backbone in sizes else None
