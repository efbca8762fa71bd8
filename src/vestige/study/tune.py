"""Tuning on the development bundle: every epoch of every grid point counts; evaluation rows are not read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.contracts import Objective, Record
from vestige.errors import CheckFailed, InputError, Interrupted, did_you_mean
from vestige.study.cells import (
    Node,
    Setting,
    full_node,
    oracle_node,
    predictions_node,
    prepare,
    request_identity,
    table_hash,
    unlearning_cost,
)
from vestige.study.deletions import (
    expected_rows,
    first_nodes,
    refuse_impossible,
    settle,
    tuning_bundle,
    view_table,
)
from vestige.study.grids import tried_settings
from vestige.study.pool import Reporter, Silent, Team
from vestige.study.runner import (
    Execution,
    close_folder,
    cost,
    open_folder,
    pending,
    read_gates,
    stopped,
    team,
)
from vestige.study.store import Store, now
from vestige.study.tuning_rules import (
    EpochResult,
    Point,
    choose,
    chosen_settings,
    edges,
    unbracketed,
)
from vestige.study.tuning_work import TemperatureWork, TuneWork
from vestige.study.work import EPOCHS

if TYPE_CHECKING:
    import pandas as pd

    from vestige.deletion.requests import DeletionRequest
    from vestige.study.plan import Plan

__all__ = ["MethodTuning", "Tuning", "tune_study"]

TUNING = "tuning.json"


class MethodTuning(Record):
    """Every candidate of one method and the chosen one. settings: None when no candidate was feasible; of a
    control then those of the smallest objective, which `note` says.

    settings["epochs"] is the chosen epoch. edges: fields chosen at the edge of their grid; unbracketed: those
    with too few values to have one. candidates: epochs of all points, as measured; budget: the most epochs
    that could have been trained. fitted: for a temperature, the one of
    least negative log-likelihood on the development rows that the full model was not trained on; beside it.
    """

    method: str
    title: str
    control: bool = False
    grid: dict[str, tuple[Any, ...]]
    points: tuple[Point, ...]
    settings: dict[str, Any] | None
    chosen: EpochResult | None
    edges: tuple[str, ...]
    unbracketed: tuple[str, ...] = ()
    candidates: int
    feasible_candidates: int
    budget: int
    note: str = ""
    fitted: EpochResult | None = None


class Tuning(Record):
    """What tuning did. It used the oracle of its bundle, and development rows only.

    equal_budgets: of the methods that train anything; never where points may stop early.
    """

    format: str = "vestige-tuning-1"
    time: str
    bundle: str
    seed: int
    request: dict[str, Any]
    rows: dict[str, int]
    table_sha256: str
    objective: str = "OD_F + OD_G over feasible candidates"
    used_oracle: bool = True
    held_out: bool = False
    prune: bool
    epochs: int
    equal_budgets: bool
    methods: tuple[MethodTuning, ...]

    def method(self, name: str) -> MethodTuning:
        """The tuning of one method. Raises KeyError."""
        for item in self.methods:
            if item.method == name:
                return item
        raise KeyError(name)


@dataclass(frozen=True)
class _Search:
    """What is tried of a method. settings: of each point; a post-hoc method has one."""

    objective: Objective
    grid: dict[str, tuple[Any, ...]]
    settings: tuple[dict[str, Any], ...]


def tune_study(
    plan: Plan,
    out: str | Path,
    *,
    text: str = "",
    execution: Execution | None = None,
    report: Reporter | None = None,
) -> Tuning:
    """Tune every method of the plan on bundle 00 (or a part of a custom request) and write tuning.json.

    Grid points that are done are not done again. Raises InputError, also when settings are frozen already.
    """
    execution = execution or Execution()
    report = report or Silent()
    backend = execution.opened()
    setting = prepare(plan, backend)
    refuse_impossible(setting)
    searches = _searches(setting)
    with Store.writing(out, execution.reuse) as store:
        if store.has("frozen.json"):
            raise InputError(
                str(store.path("frozen.json")),
                "frozen settings",
                "none while tuning",
                "tune in another --out: frozen settings do not change",
            )
        open_folder(store, setting, text, "tune")
        try:
            with team(store, setting, execution, report) as workers:
                tuning = _tune(setting, store, searches, workers, report)
            close_folder(store)
            return tuning
        except (KeyboardInterrupt, Interrupted):
            raise stopped(store) from None


def _searches(setting: Setting) -> list[_Search]:
    plan = setting.plan
    mine = [entry.method for entry in plan.methods if entry.frozen_by is None]
    names = dict.fromkeys([*mine, *plan.tuning.grid])
    labels = {entry.label or setting.backend.objective(entry.method).title for entry in plan.methods}
    for label in plan.family or ():
        if label not in labels:
            raise InputError(
                f"{plan.source}: family", f"'{label}'", "labels of methods", did_you_mean(label, labels)
            )
    if not names:
        raise InputError(f"{plan.source}: methods", "none", "at least one to tune", "add methods")
    found = []
    for name in names:
        objective = setting.backend.objective(name)
        grid, points = tried_settings(plan, objective)
        found.append(_Search(objective, grid, ({},) if objective.post_hoc else points))
    return found


def _tune(
    setting: Setting, store: Store, searches: Sequence[_Search], workers: Team, report: Reporter
) -> Tuning:
    seed = setting.plan.primary
    full = full_node(setting, seed)
    before = first_nodes(setting, [seed], [seed], "development")
    first, gated = before.nodes, before.gated
    missing = pending(first, store)
    rows = expected_rows(setting)
    budget = [unlearning_cost(_typed(item, point), rows) for item in searches for point in item.settings]
    report.total = cost(missing) + full.cost + sum(budget)
    if failures := workers.work_through(first):
        raise CheckFailed(f"{failures[0].label}: {failures[0].reason}")
    bundle = tuning_bundle(setting)
    deletions = settle(setting, store, read_gates(setting, store, gated), [bundle])
    request = deletions.requests[bundle]
    table = view_table(setting, store, request, "development")
    oracle = oracle_node(setting, request, seed)
    scored = [predictions_node(setting, model, table, "development", bundle) for model in (full, oracle)]
    points = {
        (item.objective.name, index): _point_node(setting, request, item, point, scored, table)
        for item in searches
        for index, point in enumerate(item.settings)
    }
    nodes = [oracle, *scored, *points.values()]
    report.total = cost(missing) + cost(pending(nodes, store))
    if failures := workers.work_through(nodes):
        raise CheckFailed(f"{failures[0].label}: {failures[0].reason}")
    methods = tuple(_method(setting, store, item, points) for item in searches)
    trained = {item.budget for item in methods if item.fitted is None}
    tuning = Tuning(
        time=now(),
        bundle=bundle,
        seed=seed,
        request=request_identity(request),
        rows={view: int((table["view"] == view).sum()) for view in ("F", "G", "R")},
        table_sha256=table_hash(table),
        held_out=request.granularity == "custom",
        prune=setting.plan.tuning.prune,
        epochs=setting.plan.tuning.epochs,
        equal_budgets=len(trained) <= 1 and not setting.plan.tuning.prune,
        methods=methods,
    )
    store.write_json(TUNING, tuning.model_dump(mode="json"))
    return tuning


def _typed(item: _Search, point: Mapping[str, Any]) -> Any:
    return item.objective.settings.model_validate(point)


def _point_node(
    setting: Setting,
    request: DeletionRequest,
    item: _Search,
    point: dict[str, Any],
    scored: Sequence[Node],
    table: pd.DataFrame,
) -> Node:
    plan = setting.plan
    start = full_node(setting, plan.primary)
    forgotten = tuple(request.forgotten) if request.granularity == "class" else ()
    work: TuneWork | TemperatureWork
    if item.objective.post_hoc:
        work = TemperatureWork(
            start=start.key,
            full=scored[0].key,
            oracle=scored[1].key,
            values=item.grid["temperature"],
            forgotten=forgotten,
        )
        how: dict[str, Any] = {"values": list(item.grid["temperature"])}
        amount = 0.3 * len(table)
    else:
        work = TuneWork(
            seed=plan.primary,
            start=start.key,
            method=item.objective.name,
            settings=point,
            deleted=tuple(request.row_ids),
            full=scored[0].key,
            oracle=scored[1].key,
            prune=plan.tuning.prune,
            forgotten=forgotten,
        )
        how = {"prune": plan.tuning.prune}
        amount = unlearning_cost(_typed(item, point), len(request.row_ids))
        amount += 0.3 * len(table) * plan.tuning.epochs
    shown = ", ".join(
        f"{name} {point[name]:g}" for name in item.grid if isinstance(point.get(name), int | float)
    )
    return Node(
        kind="tuning",
        label=f"{item.objective.title} ({shown or 'search'}) on bundle {request.bundle}",
        identity={
            **setting.base,
            "seed": plan.primary,
            "start": start.key,
            "request": request_identity(request),
            "method": item.objective.name,
            "settings": point,
            **how,
            "table": table_hash(table),
            "full": scored[0].key,
            "oracle": scored[1].key,
        },
        work=work,
        needs=(start.key, scored[0].key, scored[1].key),
        cost=amount,
    )


def _method(
    setting: Setting, store: Store, item: _Search, nodes: Mapping[tuple[str, int], Node]
) -> MethodTuning:
    points = []
    for index, settings in enumerate(item.settings):
        node = nodes[item.objective.name, index]
        place = store.node(node.kind, node.key)
        record = place.verified()
        raw = json.loads((place.path / EPOCHS).read_text(encoding="utf-8"))
        points.append(
            Point(
                node=node.key,
                settings=settings,
                epochs=tuple(EpochResult.model_validate(epoch) for epoch in raw),
                stopped=str(record.result["stopped"]),
                seconds=record.seconds,
            )
        )
    chosen = choose(points, infeasible=item.objective.role == "control")
    candidates = [epoch for point in points for epoch in point.epochs]
    post_hoc = item.objective.post_hoc is not None
    common: dict[str, Any] = {
        "method": item.objective.name,
        "title": item.objective.title,
        "control": item.objective.role == "control",
        "grid": item.grid,
        "points": tuple(points),
        "candidates": len(candidates),
        "feasible_candidates": sum(epoch.feasible for epoch in candidates),
        "budget": len(candidates) if post_hoc else len(points) * setting.plan.tuning.epochs,
    }
    notes = []
    if post_hoc:
        common["fitted"] = EpochResult.model_validate(record.result["fitted"])
        if record.result["fitted_at_bound"]:
            notes.append("the likelihood's temperature lies at the bound of its search")
    if chosen is None:
        notes.insert(0, "no feasible candidate")
        return MethodTuning(**common, settings=None, chosen=None, edges=(), note="; ".join(notes))
    point, epoch = chosen
    if not epoch.feasible:
        notes.insert(0, "no feasible candidate: a control, so the one of the smallest objective stands")
    settings = chosen_settings(point, epoch)
    last = () if post_hoc or epoch.epoch < setting.plan.tuning.epochs else ("epochs",)
    return MethodTuning(
        **common,
        settings=settings,
        chosen=epoch,
        edges=(*edges(item.grid, settings), *last),
        unbracketed=unbracketed(item.grid),
        note="; ".join(notes),
    )
