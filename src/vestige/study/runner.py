"""Running a study: plan -> cells -> nodes -> predictions -> assessments, skipping what is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from vestige.contracts import Assessment
from vestige.errors import CheckFailed, Interrupted
from vestige.seeds import digest
from vestige.study.candidates import EVERYTHING, Offer, offers
from vestige.study.cells import (
    Configured,
    Node,
    Setting,
    configurations,
    full_node,
    oracle_node,
    predictions_node,
    prepare,
    unlearned_node,
    unlearning_cost,
)
from vestige.study.deletions import (
    Deletions,
    expected_rows,
    first_nodes,
    gate_of,
    refuse_impossible,
    refuse_reserved,
    settle,
    view_table,
)
from vestige.study.evaluate import Cell, assess_cell, register
from vestige.study.frozen import Frozen, taken
from vestige.study.pool import Failure, Reporter, Silent, Team
from vestige.study.probes import SCHEMA_PROBES, ProbeNodes, SchemaProbe, probed
from vestige.study.protocol import DEFAULT_BACKEND, load_backend
from vestige.study.recovery import foreseen, recover
from vestige.study.start import start_sentences
from vestige.study.store import RECORDS, Store, canonical, now, program_sha256
from vestige.study.summaries import summarise
from vestige.study.untrained import random_node
from vestige.study.work import load_node_predictions

if TYPE_CHECKING:
    from vestige.attacks.records import RecoveryRecord
    from vestige.data.intents import IntentData
    from vestige.deletion.gates import AcquisitionGate
    from vestige.study.plan import Plan
    from vestige.study.protocol import Backend

__all__ = ["Execution", "StudyResult", "frozen_records", "note_failures", "run_study"]


@dataclass(frozen=True)
class Execution:
    """How to run, which changes no number that the identity does not name. jobs: worker processes; threads:
    of each (default: all cores for one job, one each for several). reuse: run folders whose finished parts
    are taken where all that changes their numbers is equal."""

    jobs: int = 1
    threads: int | None = None
    backend: str = DEFAULT_BACKEND
    reuse: tuple[Path, ...] = ()

    def opened(self) -> Backend:
        """The backend, with the threads of this process where one job runs. Raises InputError."""
        backend = load_backend(self.backend)
        if self.jobs == 1 and self.threads is not None:
            backend.set_threads(self.threads)
        return backend


@dataclass(frozen=True)
class StudyResult:
    """What a run left. assessments: path in the folder -> record. failures: nodes that diverged.
    recoveries: path without suffix -> record."""

    root: Path
    assessments: dict[str, Assessment]
    failures: tuple[Failure, ...] = ()
    recoveries: dict[str, RecoveryRecord] = dataclasses.field(default_factory=dict)


def run_study(
    plan: Plan,
    out: str | Path,
    *,
    text: str = "",
    execution: Execution | None = None,
    report: Reporter | None = None,
    data: IntentData | None = None,
) -> StudyResult:
    """Run what is missing of a study in `out` and assess every cell.

    text: the study file as given, kept. data: the plan's own, where it was loaded before. Raises InputError
    for a plan or folder that does not fit, Interrupted with what was kept when the user stops it.
    """
    execution = execution or Execution()
    report = report or Silent()
    backend = execution.opened()
    setting = prepare(plan, backend, data)
    refuse_impossible(setting)
    with Store.writing(out, execution.reuse) as store:
        open_folder(store, setting, text, "run")
        configured = configurations(setting, frozen_records(store, plan))
        try:
            with team(store, setting, execution, report) as workers:
                result = _run(setting, store, configured, workers, report)
            close_folder(store)
            return result
        except (KeyboardInterrupt, Interrupted):
            raise stopped(store) from None


def open_folder(store: Store, setting: Setting, text: str, verb: str) -> None:
    """Refuse a folder whose reserve is broken or whose data differ, then note this run's plan in it."""
    refuse_reserved(store)
    data = setting.data
    store.write_once(
        "data.json",
        {
            "name": data.name,
            "sha256": data.sha256,
            "options": [option.id for option in data.options],
            "out_of_scope": data.out_of_scope,
            "report": data.report.model_dump(mode="json"),
        },
        "data set",
    )
    plan = setting.plan.model_dump(mode="json", exclude_unset=True)
    if text:
        store.write("study.yaml", text.encode())
    store.write_json("plan.json", plan)
    history = store.json("history.json") if store.has("history.json") else []
    entry = {
        "time": now(),
        "verb": verb,
        "plan": digest(canonical(plan)),
        "environment": setting.backend.environment(),
        "records": RECORDS,
        "program": program_sha256(),
        "start": start_sentences(setting),
    }
    store.write_json("history.json", [*history, entry])


def close_folder(store: Store) -> None:
    """Note that this run came to its end: what it planned is there, or has failed."""
    *before, last = store.json("history.json")
    store.write_json("history.json", [*before, {**last, "ended": now()}])


def stopped(store: Store) -> Interrupted:
    """The message of an interrupted run: what is kept."""
    done = len(store.nodes())
    parts = len(list((store.root / "nodes").glob(".part-*")))
    tail = " and the checkpoint of the part at work" if parts else ""
    return Interrupted(
        f"interrupted: {done} finished part(s){tail} are kept in {store.root}; "
        "run the same command again to go on"
    )


def _run(
    setting: Setting,
    store: Store,
    configured: Configured,
    workers: Team,
    report: Reporter,
) -> StudyResult:
    plan = setting.plan
    needed = (plan.primary, *plan.full_seeds) if plan.deletion.gated else plan.full_seeds
    fulls = {seed: full_node(setting, seed) for seed in dict.fromkeys(needed)}
    asked = dict.fromkeys((plan.primary, *plan.seeds))
    before = first_nodes(setting, list(fulls), list(asked), "evaluation")
    first, gated = before.nodes, before.gated
    missing = pending(first, store)
    report.total = cost(missing) + expected_cost(setting, configured)
    # Only the primary seed decides what is deleted: its oracles need not wait for the other full models.
    failures = workers.work_through(first, until=before.deciding)
    if pending(before.deciding, store):
        raise CheckFailed(f"{failures[0].label}: {failures[0].reason}")
    gates = read_gates(setting, store, gated)
    deletions = settle(setting, store, gates, plan.bundles)
    ahead = 0.0
    if plan.recovery is not None:
        ahead = foreseen(setting, deletions.requests, plan.recovery, len(configured.used))
    cells, nodes = _cells(setting, store, deletions, configured, fulls)
    report.total = cost(missing) + cost(pending(nodes, store)) + ahead
    failures += workers.work_through([*first, *nodes])
    if len(gates) < len(gated):  # gates of other seeds came later: their failures are recorded now
        deletions = settle(setting, store, read_gates(setting, store, gated), plan.bundles)
    note_failures(store, nodes, failures)
    entries = register(setting, store, deletions, configured, cells)
    assessments: dict[str, Assessment] = {}
    for cell in sorted(cells, key=lambda cell: cell.offer.options is not None):
        report.stage(f"assessing bundle {cell.bundle}, seed {cell.seed}, {cell.offer.name}")
        start = None
        if cell.offer.options is not None:
            start = assessments.get(dataclasses.replace(cell, offer=EVERYTHING).assessment)
            if start is None:
                continue
        made = assess_cell(setting, store, deletions, configured, cell, entries, start)
        if made is not None:
            assessments[cell.assessment] = made
    report.stage("summaries over seeds and bundles")
    summarise(setting, store, cells, assessments)
    recovered = None
    if plan.recovery is not None:
        recovered = recover(setting, store, workers, report, plan.recovery, ahead)
        note_failures(store, recovered.nodes, recovered.failures)
        failures += recovered.failures
    return StudyResult(store.root, assessments, tuple(failures), recovered.records if recovered else {})


def team(store: Store, setting: Setting, execution: Execution, report: Reporter) -> Team:
    """The processes that a run works with."""
    return Team(
        store,
        setting,
        report=report,
        jobs=execution.jobs,
        threads=execution.threads,
        backend=execution.backend,
    )


def pending(nodes: Sequence[Node], store: Store) -> list[Node]:
    """Nodes that are neither there nor in the store's sources, each once."""
    found: dict[str, Node] = {}
    for node in nodes:
        if not store.available(store.node(node.kind, node.key)):
            found[node.key] = node
    return list(found.values())


def cost(nodes: Sequence[Node]) -> float:
    """Work in training rows."""
    return sum(node.cost for node in nodes)


def expected_cost(setting: Setting, configured: Configured) -> float:
    """Work after the gate, about, in training rows."""
    plan = setting.plan
    one = full_node(setting, plan.primary).cost
    rows = expected_rows(setting)
    scoring = 0.3 * len(setting.data.rows("evaluation"))
    total = one * sum(len(plan.oracle_seeds_of(bundle)) for bundle in plan.bundles)
    for cell in plan.planned:
        here = configured.at(cell.bundle, cell.seed)
        total += scoring * (len(here) + 2) + sum(unlearning_cost(item.settings, rows) for item in here)
    return total


def read_gates(setting: Setting, store: Store, gated: Mapping[int, Node]) -> dict[int, AcquisitionGate]:
    """The acquisition gate at each seed whose development probabilities are there."""
    return {
        seed: gate_of(setting, store, load_node_predictions(store.root, node.key, f"full seed {seed}"), seed)
        for seed, node in gated.items()
        if store.node(node.kind, node.key).record() is not None
    }


def _cells(
    setting: Setting,
    store: Store,
    deletions: Deletions,
    configured: Configured,
    fulls: Mapping[int, Node],
) -> tuple[list[Cell], list[Node]]:
    """Every cell, and every node that they need, models before their probabilities."""
    plan = setting.plan
    cells: list[Cell] = []
    models: list[Node] = []
    scores: list[Node] = []
    offered = offers(setting, store, deletions)
    untrained = {seed: random_node(setting, seed) for seed in plan.seeds} if plan.seed_metrics else {}
    models += untrained.values()
    for bundle, request in deletions.requests.items():
        table = view_table(setting, store, request, "evaluation", deletions.held_out)
        oracles = {seed: oracle_node(setting, request, seed) for seed in plan.oracle_seeds_of(bundle)}
        here = [cell for cell in plan.planned if cell.bundle == bundle]
        unlearned = {
            cell.seed: {
                item.label: replace(unlearned_node(setting, request, cell.seed, item), stage=cell.stage)
                for item in configured.at(bundle, cell.seed)
            }
            for cell in here
        }
        models += [*oracles.values(), *(node for made in unlearned.values() for node in made.values())]
        for offer in offered[bundle]:

            def scored(
                model: Node, table: pd.DataFrame = table, bundle: str = bundle, offer: Offer = offer
            ) -> Node:
                node = predictions_node(setting, model, table, "evaluation", bundle, offer)
                scores.append(node)
                return node

            def asked(
                model: Node, probe: SchemaProbe, table: pd.DataFrame = table, bundle: str = bundle
            ) -> Node:
                node = probed(setting, model, table, bundle, probe)
                scores.append(node)
                return node

            randoms = {
                cell.seed: ((cell.seed, scored(untrained[cell.seed])),)
                for cell in here
                if cell.seed in untrained and offer.options is None
            }
            full = {seed: scored(fulls[seed]) for seed in plan.full_seeds_of(bundle)}
            oracle = {seed: scored(node) for seed, node in oracles.items()}

            cells += [
                Cell(
                    bundle=bundle,
                    seed=cell.seed,
                    stage=cell.stage,
                    offer=offer,
                    fulls=_first(full, cell.seed),
                    oracles=_first(oracle, cell.seed),
                    unlearned={label: scored(node) for label, node in unlearned[cell.seed].items()},
                    randoms=randoms.get(cell.seed, ()),
                    probes={
                        probe: ProbeNodes(
                            {seed: asked(fulls[seed], probe) for seed in plan.full_seeds_of(bundle)},
                            {seed: asked(node, probe) for seed, node in oracles.items()},
                            {label: asked(node, probe) for label, node in unlearned[cell.seed].items()},
                        )
                        for probe in SCHEMA_PROBES
                        if probe in plan.probes and offer.options is None
                    },
                )
                for cell in here
            ]
    return cells, [*models, *scores]


def _first(nodes: Mapping[int, Node], seed: int) -> tuple[tuple[int, Node], ...]:
    """The node of a seed, then the others."""
    return ((seed, nodes[seed]), *((other, node) for other, node in nodes.items() if other != seed))


def note_failures(store: Store, nodes: Sequence[Node], failures: Sequence[Failure]) -> None:
    """Keep failures.json to what failed and is still missing."""
    old = store.json("failures.json") if store.has("failures.json") else []
    done = {node.key for node in nodes if store.node(node.kind, node.key).record() is not None}
    fresh = [{**dataclasses.asdict(item), "time": now()} for item in failures]
    keys = {item["key"] for item in fresh} | done
    kept = [*(item for item in old if item["key"] not in keys), *fresh]
    if kept:
        store.write_json("failures.json", kept)
    else:
        store.drop("failures.json")


def frozen_records(store: Store, plan: Plan) -> dict[int, Frozen | None]:
    """The frozen records that the plan's methods take their settings from, by place."""
    return {index: taken(store, entry) for index, entry in enumerate(plan.methods) if entry.takes_frozen}
